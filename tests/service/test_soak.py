"""`make soak`: how its kills are shared out, and that it goes on where it stopped. Its parts are tested in small form
in test_kill and test_attacks.
"""

import json
import sys

import pytest

from benchmarks import soak


def test_half_of_the_kills_are_on_either_database_and_no_store_sees_more_than_fifty():
    for kills in (1, 2, 20, 120, 1000):
        shared = soak.stores(kills)
        assert sum(count for _, count in shared) == kills
        assert max(count for _, count in shared) <= soak.STORE_KILLS
        assert abs(sum(count if name == "sqlite" else -count for name, count in shared)) <= 1


@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_and_what_is_done_is_not_done_again(tmp_path, monkeypatch, capsys):
    file = tmp_path / "report.json"
    monkeypatch.setattr(
        sys, "argv", ["soak", "--kills", "0", "--seed", "7", "--parts", "kills", "--out", str(tmp_path)]
    )
    soak.main()
    report = json.loads(file.read_text())
    assert (report["options"]["seed"], report["kills"]) == (7, [])
    done = [{"database": name, "kills": kills} for name, kills in soak.stores(100)]
    file.write_text(json.dumps({"options": {**report["options"], "kills": 100}, "kills": done, "drift": {}}))
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--kills", "100", "--parts", "kills", "drift"])
    soak.main()
    assert "Kills: 100 in 2 stores, 100 done" in capsys.readouterr().out
    assert json.loads(file.read_text())["kills"] == done
