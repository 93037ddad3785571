import pytest

from safedial import Agent, Dial, Dose, Features, InvalidInput, hill, make_policy, power
from safedial.online import savefile
from tests.conftest import make_spec


@pytest.fixture
def saved(tmp_path):
    features = Features(names=("a", "b"), center=(1, 2), scale=(3, 4), intercept=True)
    agent = Agent(
        3,
        make_spec(context_bound=2.0, promise="joint"),
        policy=make_policy("epsilon_greedy", epsilon=0.3),
        dose=Dose(hill(0.5, 2.0), power(1.5)),
        dial=Dial(high=20, unit="mg", levels=[1, 2, 20]),
        features=features,
        seed=3,
    )
    for value in (0.5, 1.5, 2.5):
        decision = agent.decide([value, value])
        agent.update([value, value], decision.action, 0.1, 0.2)
    path = tmp_path / "agent.safedial"
    agent.save(path)
    return agent, path


def test_everything_comes_back_exactly(saved):
    agent, path = saved
    twin = Agent.load(path)
    for _ in range(20):
        here, there = agent.decide([1.0, 2.0]), twin.decide([1.0, 2.0])
        assert here.certificate == there.certificate
    assert twin.decisions == agent.decisions
    assert twin.evidence == agent.evidence


def test_every_truncation_is_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for length in [*range(100), *range(100, len(whole), 211), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidInput, match="path"):
            Agent.load(path)


def test_every_altered_byte_is_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for position in [*range(100), *range(100, len(whole), 61)]:
        altered = bytearray(whole)
        altered[position] ^= 0x10
        path.write_bytes(altered)
        with pytest.raises(InvalidInput, match="path"):
            Agent.load(path)


def test_other_files_and_versions_are_named_for_what_they_are(saved, tmp_path):
    _, path = saved
    path.write_bytes(path.read_bytes().replace(b"safedial-agent 2", b"safedial-agent 99", 1))
    with pytest.raises(InvalidInput, match="version 99"):
        Agent.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(InvalidInput, match="not a safedial save file"):
        Agent.load(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Agent.load(tmp_path / "nothing")


def test_a_file_without_a_part_is_refused(tmp_path):
    savefile.write(tmp_path / "part", {"dim": 2}, {})
    with pytest.raises(InvalidInput, match="lacks a part"):
        Agent.load(tmp_path / "part")


def test_a_folder_that_is_not_there_is_named(saved, tmp_path):
    with pytest.raises(InvalidInput, match="nowhere"):
        saved[0].save(tmp_path / "nowhere" / "agent")


def test_someone_elses_policy_is_given_again_on_loading(tmp_path):
    mine = make_policy("hp_ucb")._replace(name="mine")
    agent = Agent(2, make_spec(), policy=mine)
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="mine"):
        Agent.load(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="mine"):
        Agent.load(tmp_path / "agent", policy=make_policy("hp_ucb"))
    assert Agent.load(tmp_path / "agent", policy=mine).decide([0.1, 0.1]) is not None


def test_a_failed_save_leaves_the_old_file_and_no_debris(saved, monkeypatch):
    agent, path = saved
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(savefile.os, "replace", fail)
    with pytest.raises(InvalidInput, match="disk full"):
        agent.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
