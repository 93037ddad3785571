"""`safedial study`, through the program's own entry point: answers on stdout, complaints on stderr, exit codes."""

import csv
import json
import signal
import sqlite3
import subprocess
import sys

import pytest

from safedial.cli import main

FIELDS = ("dim=2", "threshold=0.5", "total_risk=0.1", "reward_noise=0.3", "cost_noise=0.3")
BOUNDS = ("coefficient_bound=1", "context_bound=1")
CREATE = [word for field in (*FIELDS, *BOUNDS) for word in ("--set", field)]


@pytest.fixture
def study(tmp_path, monkeypatch, capfd):
    """study(*words): (exit code, stdout, stderr) of `safedial study` on a store of its own."""
    monkeypatch.setenv("SAFEDIAL_STORAGE", f"sqlite:///{tmp_path}/trial.db")
    before = signal.getsignal(signal.SIGINT)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["safedial", "study", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    assert run("create", "trial", *CREATE)[0] == 0
    yield run
    signal.signal(signal.SIGINT, before)


def answer(done):
    assert done[0] == 0, done
    return json.loads(done[1])


def test_a_round_from_the_shell(study, tmp_path):
    decision = answer(study("ask", "trial", "0.6,0.3", "--key", "a", "--format", "json"))
    again = answer(study("ask", "trial", "[0.6, 0.3]", "--key", "a", "--json"))
    assert again == {**decision, "replayed": True}
    named = {
        "id",
        "seq",
        "hash",
        "action",
        "intensity",
        "safe_action",
        "certificate",
        "replayed",
        "stop_reason",
        "amended",
    }
    assert set(decision) == named
    code, _, err = study("tell", decision["id"], "--cost", 0.2)
    assert (code, err) == (
        2,
        "safedial: reward: must be reported: hp_probe learns from it which settings are worth giving\n",
    )
    told = answer(study("tell", decision["id"], "--reward", 0.1, "--cost", 0.2, "--json"))
    assert (told["decision_id"], told["seq"], told["replayed"]) == (decision["id"], 3, False)
    assert "Already recorded" in study("tell", decision["id"], "--reward", 0.1, "--cost", 0.2)[1]
    assert answer(study("correct", decision["id"], "--cost", 0.1, "--reason", "typing error", "--json"))["seq"] == 4
    assert "typing error" in study("explain", decision["id"])[1]
    assert answer(study("explain", decision["id"], "--json"))["events"][0]["kind"] == "outcome"
    assert answer(study("status", "trial", "--json"))["outcomes"] == 1
    assert answer(study("list", "--json")) == {"studies": [{"name": "trial", "events": 4}]}
    assert "trial" in study("list")[1]
    assert "evidence" in study("status", "trial")[1]
    second, third = (answer(study("ask", "trial", "0.1,0.1", "--json"))["id"] for _ in range(2))
    assert study("void", second, "--reason", "device off", "--unrelated")[0] == 0
    assert study("expire", third, "--reason", "six weeks")[0] == 0
    mark = study("checkpoint", "trial")[1].strip()
    assert "all agree" in study("verify", "trial", "--checkpoint", mark)[1]
    study("export", "trial", tmp_path / "out.csv")
    rows = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert [row["status"] for row in rows] == ["corrected", "void", "expired"]
    assert "checked" in study("backup", tmp_path / "copy.db")[1]


def test_a_visit_from_the_shell(study, tmp_path):
    features = {"names": ["age", "weight"], "scale": [200, 200], "ranges": {"age": [0, 120]}}
    fields = [*CREATE[2:], "--set", f"features={json.dumps(features)}"]
    code, out, err = study("create", "ward", *fields, "--set", 'dial={"high": 20, "unit": "mg"}')
    assert (code, out) == (0, "Study ward is ready.\n")
    assert err == (
        "safedial: warning: if the study stops, it advises 0 mg to everybody: state fallback_action if that is not "
        "safe\n"
    )
    made = answer(study("create", "safe", *fields, "--set", "fallback_action=0", "--json"))
    assert made["warnings"] == []
    context = '{"age": 65, "weight": 90}'
    words = ["ask", "ward", context, "--key", "visit-17", "--meta", "patient=P-04", "--meta", "weeks=2"]
    assert "Visit: visit-17." in study(*words)[1]
    decision = answer(study(*words, "--json"))
    assert decision["certificate"]["meta"] == {"patient": "P-04", "weeks": 2}
    assert "used for another request" in study(*words[:-1], "weeks=3")[2]
    assert "NAME=VALUE" in study("ask", "ward", context, "--meta", "patient")[2]
    code, out, err = study("ask", "ward", '{"age": 600, "weight": 90}')
    assert (code, out) == (2, "")
    assert "context['age'] = 600: must lie between 0 and 120" in err
    far = answer(study("ask", "ward", '{"age": 125, "weight": 90}', "--allow-extrapolation", "--json"))
    assert far["certificate"]["extrapolated"] == ["age"]
    told = ["tell", decision["id"], "--reward", 0, "--cost", 0, "--applied-action", 0]
    assert study(*told, "--unrelated")[0] == 0
    status = answer(study("status", "ward", "--json"))
    assert (status["void"], status["frozen"], status["unwatched"], status["resumes"]) == (1, False, 0, 0)
    shown = study("status", "ward")[1]
    for name in ("unwatched", "resumes", "oldest open", "0.0 hours ago"):
        assert name in shown
    assert answer(study("verify", "ward", "--json"))["ok"]


def test_a_warning_is_one_sentence_without_a_file_name(tmp_path):
    words = [*CREATE, "--set", "fallback_action=0", "--set", 'dial={"levels": [0.9, 1]}']
    command = [sys.executable, "-m", "safedial", "study", "create", "trial", "--storage", f"sqlite:///{tmp_path}/a.db"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("safedial: warning: the lowest level, 0.9, has intensity 0.9")
    assert len(done.stderr.splitlines()) == 1
    assert ".py" not in done.stderr


def test_verify_exits_1_with_the_first_bad_seq(study, tmp_path):
    for _ in range(2):
        study("ask", "trial", "0.6,0.3")
    with sqlite3.connect(tmp_path / "trial.db") as connection:
        connection.execute("UPDATE events SET actor = 'somebody' WHERE seq = 2")
    connection.close()
    code, out, _ = study("verify", "trial")
    assert (code, "event 2" in out) == (1, True)
    code, out, _ = study("verify", "trial", "--json")
    assert (code, json.loads(out)["first_bad"]) == (1, 2)
    with sqlite3.connect(tmp_path / "trial.db") as connection:
        connection.execute("UPDATE events SET body = '{' WHERE seq = 1")
    connection.close()
    code, out, _ = study("verify", "trial")
    assert (code, "event 1" in out) == (1, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ask", "trial", "a,b"], "comma-separated numbers"),
        (["ask", "trial", "[0.1, 0.2"], "is not JSON: expecting ',' delimiter at character 10"),
        (["status", "trial", "--format", "xml"], "table or json"),
        (["status", "trial", "--storage", "sqlite:///none/none.db"], "no such file"),
        (["create", "trial", *CREATE], "already is such a study; load_if_exists=True, or --load-if-exists, opens it"),
        (["create", "b", "--set", "dim"], "NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(study, words, complaint):
    code, out, err = study(*words)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_a_study_from_a_spec_file_resumes_and_starts_warm(study, tmp_path):
    text = "[spec]\n" + "\n".join(field for field in (*FIELDS[1:], *BOUNDS)) + "\n[world]\ndim = 2\n"
    (tmp_path / "spec.toml").write_text(text)
    fields = {**dict(field.split("=") for field in (*FIELDS, *BOUNDS))}
    (tmp_path / "spec.json").write_text(json.dumps({name: float(value) for name, value in fields.items()} | {"dim": 2}))
    (tmp_path / "past.csv").write_text("x0,x1,action,reward,cost\n0.1,0.2,0.5,0.1,0.1\n")
    for name, file in (("one", "spec.toml"), ("two", "spec.json")):
        stop = ["--set", 'guard={"stop": {"decisions": 1}}']
        made = answer(study("create", name, "--spec", tmp_path / file, *stop, "--json"))
        assert made["spec"]["threshold"] == 0.5
        assert answer(study("import", name, tmp_path / "past.csv", "--json"))["imported"] == 1
        study("ask", name, "0.1,0.1")
        assert answer(study("status", name, "--json"))["stop_reason"] == "stop_rule"
        assert study("resume", name, "--reason", "extended")[0] == 0
    (tmp_path / "broken.json").write_text("{")
    assert study("create", "three", "--spec", tmp_path / "broken.json")[0] == 2


SHIELD = """
[spec]
guarantee = "bracket"
threshold = 70.0
violation_risk = 0.2
[[policy]]
name = "hp_shield"
base = "proposal"
direction = "below"
start_scale = 0.25
growth = {growth = "additive", low = 4, high = 60}
[features]
names = ["glucose"]
[dial]
high = 25
unit = "U"
"""


def test_a_storage_that_is_not_stated_is_asked_for(study, monkeypatch):
    monkeypatch.delenv("SAFEDIAL_STORAGE")
    code, out, err = study("list")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "give --storage sqlite:///my.db, or set the variable: export SAFEDIAL_STORAGE=sqlite:///my.db" in err


def test_proposals_and_several_costs_from_the_shell(study, tmp_path):
    costs = SHIELD.replace("threshold = 70.0\n", "").replace('direction = "below"\n', "")
    costs = (
        costs.replace('growth = {growth = "additive", low = 4, high = 60}\n', "")
        + """
[spec.costs.trough]
threshold = 20
growth = {growth = "relative", low = 0.7, high = 1.4, floor = 0.5}
[spec.costs.auc]
threshold = 600
growth = {growth = "additive", low = 0, high = 90}
"""
    )
    (tmp_path / "two.toml").write_text(costs)
    assert study("create", "two", "--spec", tmp_path / "two.toml")[0] == 0
    decision = answer(study("ask", "two", "150", "--proposal", "6", "--json"))
    told = ["tell", decision["id"], "--reward", "0"]
    assert study(*told, "--cost", "12")[0] == 2
    assert study(*told, "--cost", "12", "--cost", "13")[0] == 2
    assert study(*told, "--cost", "trough=12", "--cost", "auc=410")[0] == 0
    assert study("correct", decision["id"], "--cost", "trough=12", "--cost", "auc=null", "--reason", "typed")[0] == 0
    export = tmp_path / "two.csv"
    assert study("export", "two", export)[0] == 0
    (row,) = csv.DictReader(export.read_text().splitlines())
    assert (row["cost_trough"], row["cost_auc"], row["proposal"]) == ("12.0", "", "6.0")
    assert row["proposal_answer"] == "lowered"


def test_units_and_visits_at_a_shell(study):
    assert study("create", "ward", *CREATE)[0] == 0
    asked = ("ask", "ward", "0.6,0.3", "--unit", "P-04", "--visit", "1")
    decision = answer(study(*asked, "--json"))
    code, _, said = study(*asked)
    assert (code, f"already has a decision, {decision['id']}" in said) == (2, True)
    code, _, said = study("tell", "P-04", "--reward", 0.1, "--cost", 0.2)
    assert (code, "decision_id = 'P-04'" in said) == (2, True)
    assert "of the form STUDY.NUMBER.TAG, such as infusion.2.0f6a33b1" in said
    assert "`safedial study waiting STUDY`" in said
    (open_,) = answer(study("waiting", "ward", "--json"))["waiting"]
    assert open_ == {
        **{"decision_id": decision["id"], "at": decision["certificate"]["at"], "action": decision["action"]},
        **{"unit": "P-04", "visit": "1", "key": None},
    }
    listed = study("waiting", "ward")[1]
    assert decision["id"] in listed
    assert "P-04" in listed
    assert study("tell", decision["id"], "--reward", 0.1, "--cost", 0.2)[0] == 0
    assert study("waiting", "ward")[1] == "No decision waits for an outcome.\n"
    assert [each["unit"] for each in answer(study("units", "ward", "--json"))["units"]] == ["P-04"]
    assert "P-04" in study("units", "ward")[1]
    told = answer(study("units", "ward", "P-04", "--json"))
    assert (told["outcomes"], told["course"][0]["visit"]) == (1, "1")
    assert "states nothing for one unit alone" in study("units", "ward", "P-04")[1]
    code, _, said = study("units", "ward", "P-05")
    assert (code, "check the label" in said) == (2, True)
