"""`make soak`: how its kills are shared out, and that it goes on where it stopped. Its parts are tested in small form in
test_kill, test_attacks and test_corrections.
"""

import json
import sys

from benchmarks import soak


def test_half_of_the_kills_are_on_either_database_and_no_store_sees_more_than_fifty():
    for kills in (1, 2, 20, 120, 1000):
        shared = soak.stores(kills)
        assert sum(count for _, count in shared) == kills
        assert max(count for _, count in shared) <= soak.STORE_KILLS
        assert abs(sum(count if name == "sqlite" else -count for name, count in shared)) <= 1


def test_a_run_goes_on_where_it_stopped_unless_its_options_changed(tmp_path, monkeypatch, capsys):
    killed = []

    def kill_store(name, kills, seed, _server, _label):
        killed.append((name, seed))
        if len(killed) == 2:
            raise KeyboardInterrupt
        return {"database": name, "kills": kills}

    monkeypatch.setattr(soak, "kill_store", kill_store)
    monkeypatch.setattr(soak, "stores", lambda _: [("sqlite", 2), ("sqlite", 1), ("sqlite", 1)])

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["soak", "--parts", "kills", "--out", str(tmp_path), *words])
        try:
            soak.main()
        except SystemExit as ended:
            return str(ended)
        return ""

    assert "The same command goes on" in run()
    assert run() == ""
    assert killed == [("sqlite", 1), ("sqlite", 2), ("sqlite", 2), ("sqlite", 3)]
    assert [each["kills"] for each in json.loads((tmp_path / "report.json").read_text())["kills"]] == [2, 1, 1]
    assert run() == ""
    assert len(killed) == 4, "everything is done"
    assert run("--seed", "9") == ""
    assert [seed for _, seed in killed[4:]] == [9, 10, 11]
    assert "3 stores, 2 done" in capsys.readouterr().out
