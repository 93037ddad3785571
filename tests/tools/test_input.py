"""Bad input: errors that name the way out; and the command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from safedial import Agent, InvalidInput, SafetySpec, clairvoyant, evaluate, growth, make_policy
from safedial.cli import make_app
from safedial.rounds.log_file import log_text
from safedial.rounds.specfile import SpecFile, save_spec
from tests.tools.test_outcomes import log_of
from tests.tools.test_reproduction import SPEC, live

BRACKET_GROWTH = growth.relative(0.7, 1.4, floor=0.05)
PROPOSED = make_policy("hp_shield", base="proposal", growth=BRACKET_GROWTH, start_scale=0.2)
BRACKET = SafetySpec(threshold=0.5, guarantee="bracket", violation_risk=0.1)
STUDENT = SafetySpec(threshold=0.5, guarantee="student", violation_risk=0.1)


@pytest.fixture
def files(tmp_path):
    """A log of 60 rounds with units, and its spec file."""
    log, _ = live(Agent(3, SPEC, policy="fixed"), 60)
    lines = log_text(log).splitlines()
    rows = [f"{line},{'unit' if not place else f'p{place % 3}'}" for place, line in enumerate(lines)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    save_spec(SpecFile(spec=SPEC, dim=3), tmp_path / "spec.toml")
    return tmp_path


def run(*words):
    return CliRunner().invoke(make_app(), ["evaluate", *map(str, words)])


@pytest.mark.parametrize(
    ("log", "policy", "spec", "words"),
    [
        (log_of([0, 0], [0, 0]), "hp_ucb", SPEC, "no round with a dose above 0"),
        (log_of([0.5], [0.1]), clairvoyant(), SPEC, "knows the truth"),
        (log_of([0.5], [0.1]), PROPOSED, BRACKET, "lacks the column `proposal`"),
        (log_of([0.5], [0.1]), "hp_probe", STUDENT, "needs constants that a spec with guarantee = 'student'"),
        (log_of([0.5], [0.1]), "hp_ubc", SPEC, "did you mean 'hp_ucb'"),
        (log_of([0.5], [0.1]), "hp_ucb", None, "spec.*: is missing.*; name a spec file (--spec FILE"),
        (log_of([0.5], [0.1]), "hp_shield", BRACKET, "state base.* in a spec file, or, in Python, make_policy"),
        ([1, 2], "hp_ucb", SPEC, "is not a log"),
        (log_of([0.5], [2.0], np.array([np.inf])), "hp_ucb", SPEC, "reward = inf"),
    ],
)
def test_bad_input_names_the_way_out(log, policy, spec, words):
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(")):
        evaluate(log, policy, spec=spec)


def test_an_engine_must_be_known_and_fit():
    log = log_of([0.5], [0.1])
    with pytest.raises(InvalidInput, match="must be one of auto, agent, replay"):
        evaluate(log, "hp_ucb", spec=SPEC, engine="fast")
    with pytest.raises(InvalidInput, match=r"engine = 'replay': does not know .*; use engine='agent'"):
        evaluate(log, "hp_student", spec=SPEC, engine="replay", start_action=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x1,x2,x3,reward,cost\n0,0,0,1,1\n", "has no column `action`"),
        ("x1,x2,x3,action,cost\n0,0,0,1,1\n", "lacks the column `reward`, which hp_ucb learns from"),
        ("x1,x2,x3,ward,action,reward,cost\n0,0,0,b,1,1,1\n", "column 'ward' = 'b': must be a finite number"),
        ("x1,x2,x3,x4,action,reward,cost\n0,0,0,1,1,1,1\n", r"4 context columns \(x1, x2, x3, x4\)"),
        ("x1,x2,x3,action,reward,cost\n", "too few rows"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(files, text, words):
    (files / "bad.csv").write_text(text)
    with pytest.raises(InvalidInput, match=words):
        evaluate(files / "bad.csv", "hp_ucb", spec=files / "spec.toml")


@pytest.mark.parametrize("text", ["", "{}\n", "nonsense\n", '{"seq": 2, "decision_id": null}\n'])
def test_a_file_of_events_must_be_a_studys(files, text):
    (files / "bad.jsonl").write_text(text)
    with pytest.raises(InvalidInput, match="log"):
        evaluate(files / "bad.jsonl")


def test_the_command_prints_a_table_that_fits_and_writes_a_page(files, monkeypatch):
    monkeypatch.chdir(files)  # so that the path that it prints is a short one
    named = [word for name in ("on_expectation", "epsilon_greedy", "hp_student") for word in ("--policy", name)]
    words = ("--start-action", "0.1", "--out", "page.html")
    found = run(files / "log.csv", "--spec", files / "spec.toml", *named, *words)
    assert found.exit_code == 0, found.output
    assert max(map(len, found.output.splitlines())) <= 80
    assert "carry-over: " in found.output
    page = (files / "page.html").read_text()
    assert page.count("data:image/png") == 1
    terms = "the cost must not exceed 0.5; stated risk: at most 20% in a round; dial: 0 to 1."
    assert terms in page
    assert terms in " ".join(found.output.split())
    assert "p1" in page or "No group has any" in page


def test_the_command_as_json_has_the_table_the_rounds_and_the_groups(files):
    words = (files / "log.csv", "--spec", files / "spec.toml", "--policy", "on_expectation", "--json")
    told = json.loads(run(*words).output)
    (logged, row) = told["table"]
    assert (logged["policy"], row["policy"], row["rounds"]) == ("as logged", "on_expectation", 60)
    assert len(told["exceeding"]) == row["violations"] > 0
    assert {each["unit"] for each in told["exceeding"]} <= {"p0", "p1", "p2"}
    assert {each["column"] for each in told["groups"]} == {"unit", "x1", "x2", "x3"}


def test_a_policy_may_be_a_spec_file_with_its_own_guarantee(files):
    own = {"name": "hp_student", "start_dose": 0.1}
    save_spec(SpecFile(spec=STUDENT, dim=3, policy=own), files / "student.toml")
    found = evaluate(files / "log.csv", ["hp_ucb", files / "student.toml"], spec=files / "spec.toml")
    assert [each.rules.spec.guarantee for each in found.policies] == ["certified", "student"]
    assert repr(found).startswith("Evaluation(log.csv: as logged: ")
    (alone,) = evaluate(files / "log.csv", files / "student.toml").policies
    np.testing.assert_array_equal(alone.played.advised, found.policies[1].played.advised)


def test_a_study_in_a_store_is_evaluated_by_its_name(tmp_path):
    from safedial import Study

    table = {"name": "hp_shield", "base": "proposal", "growth": BRACKET_GROWTH.to_dict(), "start_scale": 0.2}
    save_spec(SpecFile(spec=BRACKET, dim=3, policy=table), tmp_path / "shield.toml")
    storage = f"sqlite:///{tmp_path}/trial.db"
    study = Study.create("trial", SPEC, dim=3, storage=storage, fallback_action=0)
    for context in ([0.5, 0.1, 0.1], [0.2, 0.4, 0.1]):
        study.tell(study.ask(context).id, reward=0.1, cost=0.1)
    study.store.close()
    refused = run("trial", "--storage", storage, "--policy", tmp_path / "shield.toml")
    assert "lacks the column `proposal`" in str(refused.exception)
    told = json.loads(run("trial", "--storage", storage, "--json").output)
    assert [row["policy"] for row in told["table"]] == ["as logged", "hp_probe"]
    assert told["rounds"] == 2


def test_progress_is_told_in_steps():
    log, _ = live(Agent(3, SPEC, policy="fixed"), 1100)
    steps = []
    evaluate(log, "fixed", spec=SPEC, progress=lambda name, count: steps.append((name, count)))
    assert steps == [("fixed", 500), ("fixed", 500)]
