import pytest

from safedial import Agent, Dial, Dose, Features, InvalidInput, hill, io, make_policy, power
from safedial.model.dose import DoseCurve
from safedial.rounds.agent import FORM
from tests.conftest import make_spec
from tests.policies.own_linear import Mine


@pytest.fixture
def saved(tmp_path):
    features = Features(names=("a", "b"), center=(1, 2), scale=(3, 4), intercept=True)
    agent = Agent(
        3,
        make_spec(context_bound=2.0, guarantee="joint"),
        policy=make_policy("epsilon_greedy", epsilon=0.3),
        dose=Dose(hill(0.5, 2.0), power(1.5)),
        dial=Dial(high=20, unit="mg", levels=[1, 2, 20]),
        features=features,
        seed=3,
    )
    for value in (0.5, 1.5, 2.5):
        decision = agent.ask([value, value])
        agent.tell([value, value], decision.action, 0.1, 0.2)
    path = tmp_path / "agent.safedial"
    agent.save(path)
    return agent, path


def test_everything_comes_back_exactly(saved):
    agent, path = saved
    twin = Agent.load(path)
    for _ in range(20):
        here, there = agent.ask([1.0, 2.0]), twin.ask([1.0, 2.0])
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


def test_other_files_and_formats_are_named_for_what_they_are(saved, tmp_path):
    _, path = saved
    path.write_bytes(path.read_bytes().replace(b"safedial-agent 1", b"safedial-agent 99", 1))
    with pytest.raises(InvalidInput, match="has format 99"):
        Agent.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(InvalidInput, match="not a safedial save file"):
        Agent.load(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Agent.load(tmp_path / "nothing")


def test_a_file_without_a_part_is_refused(tmp_path):
    io.write_archive(tmp_path / "part", {"dim": 2}, {}, form=FORM)
    with pytest.raises(InvalidInput, match="is not a complete"):
        Agent.load(tmp_path / "part")


def test_a_folder_that_is_not_there_is_named(saved, tmp_path):
    with pytest.raises(InvalidInput, match="nowhere"):
        saved[0].save(tmp_path / "nowhere" / "agent")


def test_someone_elses_policy_is_given_again_on_loading(tmp_path):
    agent = Agent(2, make_spec(), policy=Mine())
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="mine"):
        Agent.load(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="mine"):
        Agent.load(tmp_path / "agent", policy=make_policy("hp_ucb"))
    assert Agent.load(tmp_path / "agent", policy=Mine()).ask([0.1, 0.1]) is not None


def test_a_failed_save_leaves_the_old_file_and_no_debris(saved, monkeypatch):
    agent, path = saved
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(io.os, "replace", fail)
    with pytest.raises(InvalidInput, match="disk full"):
        agent.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def squared(name="mine", by=2.0):
    effect, inverse = (lambda action: action**by), (lambda intensity: intensity ** (1 / by) * (1 - 1e-12))
    return DoseCurve(name, {"points": [1, 2]}, effect, inverse)


@pytest.fixture
def with_own_curve(tmp_path):
    agent = Agent(2, make_spec(), dose=Dose(hill(0.5), squared()), dial=Dial(high=20, unit="mg"))
    for value in (0.1, 0.2, 0.3):
        agent.tell(agent.ask([value, 0.1]), reward=0.1, cost=0.05)
    agent.save(tmp_path / "agent")
    return agent, tmp_path / "agent"


def test_an_agent_with_a_dose_curve_of_ones_own_comes_back_exactly(with_own_curve):
    """Its file was written and could not be read: what it had learned was lost."""
    agent, path = with_own_curve
    twin = Agent.load(path, dose=Dose(hill(0.5), squared()))
    for _ in range(5):
        assert agent.ask([0.3, 0.2]).certificate == twin.ask([0.3, 0.2]).certificate
    assert twin.informative_rounds == 3


def test_a_dose_curve_of_ones_own_must_be_given_again_and_be_the_saved_one(with_own_curve):
    _, path = with_own_curve
    with pytest.raises(InvalidInput, match=r"\['mine'\].*give it again: Agent.load\(path, dose=...\)"):
        Agent.load(path)
    for wrong in (squared(), Dose(hill(0.5), squared("his")), Dose(hill(0.4), squared()), power(2.0)):
        with pytest.raises(InvalidInput, match="must be the saved one"):
            Agent.load(path, dose=wrong)
    for by in (2.0 + 1e-9, 3.0):
        with pytest.raises(InvalidInput, match="is the distance of this function from the saved one"):
            Agent.load(path, dose=Dose(hill(0.5), squared(by=by)))


def test_a_built_in_dose_may_be_given_again_too(saved):
    agent, path = saved
    twin = Agent.load(path, dose=Dose(hill(0.5, 2.0), power(1.5)))
    assert twin.preview([1.0, 2.0]).certificate == agent.preview([1.0, 2.0]).certificate
    with pytest.raises(InvalidInput, match="must be the saved one"):
        Agent.load(path, dose=power(1.5))
