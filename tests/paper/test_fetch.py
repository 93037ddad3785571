"""Fetching from a local server: resume, checksums, damaged archives; nothing half-written is taken for whole."""

import hashlib

import pytest

from safedial.errors import InvalidInput
from safedial.paper import battery_fetch
from safedial.paper.battery_data import load_steps
from safedial.paper.battery_fetch import download, fetch_archive
from tests.paper.conftest import zipped
from tests.paper.generate import write_b


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_archive_becomes_a_step_table_with_progress(server, archive, tmp_path):
    seen = []
    sha256 = hashlib.sha256(archive).hexdigest()
    folder = tmp_path / "new" / "data"
    done = fetch_archive(folder, server.url, sha256=sha256.upper(), progress=lambda *now: seen.append(now))
    assert (done.sha256, done.downloaded, list(done.files)) == (sha256, True, ["RW9.mat", "RW10.mat"])
    assert (seen[0], seen[-1]) == ((0, len(archive)), (len(archive), len(archive)))
    assert names(folder) == ["RW10.mat", "RW9.mat", "fetched.json"]
    assert load_steps(folder, "rw_mat").groupby("battery", sort=False).size().to_dict() == {"RW9": 60, "RW10": 60}


def test_what_is_there_is_not_fetched_again_and_what_was_damaged_is(server, tmp_path):
    fetch_archive(tmp_path, server.url)
    assert not fetch_archive(tmp_path, server.url).downloaded
    assert len(server.asked) == 1
    (tmp_path / "RW9.mat").write_bytes(b"cut")
    assert fetch_archive(tmp_path, server.url).downloaded


def test_an_interrupted_download_goes_on_where_it_stopped(server, archive, tmp_path):
    half = len(archive) // 2
    server.break_after = half
    with pytest.raises(InvalidInput, match=f"{half:,} bytes are kept: run it again to continue"):
        download(server.url, tmp_path / "a.zip", attempts=1)
    assert names(tmp_path / ".")[0] == "a.zip.partial"
    server.break_after = None
    seen = []
    found = download(server.url, tmp_path / "a.zip", progress=lambda *now: seen.append(now))
    assert server.asked == [None, f"bytes={half}-"]
    assert seen[0] == (half, len(archive))
    assert found == hashlib.sha256(archive).hexdigest()
    assert (tmp_path / "a.zip").read_bytes() == archive


def test_a_connection_that_breaks_is_taken_up_again_by_itself(server, archive, tmp_path):
    server.break_after = len(archive) // 3 + 1
    assert download(server.url, tmp_path / "a.zip", attempts=3) == hashlib.sha256(archive).hexdigest()
    assert len(server.asked) == 3


@pytest.mark.parametrize("left", ["all of it", "too much", "server without ranges"])
def test_odd_leftovers_end_in_the_right_file(server, archive, tmp_path, left):
    partial = tmp_path / "a.zip.partial"
    partial.write_bytes({"all of it": archive, "too much": archive + b"more"}.get(left, b"other bytes"))
    server.ranges = left != "server without ranges"
    download(server.url, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == archive
    assert not partial.exists()


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server, tmp_path):
    folder = tmp_path / "data"
    with pytest.raises(InvalidInput, match=r"SHA-256 of the download is .*, not 00.*removed"):
        fetch_archive(folder, server.url, sha256="0" * 64)
    assert names(folder) == []


def test_files_of_the_known_archive_are_checked_one_by_one(server, tmp_path, monkeypatch):
    monkeypatch.setattr(battery_fetch, "ARCHIVE", server.url)
    folder = tmp_path / "data"
    with pytest.raises(InvalidInput, match=r"RW9\.mat = .*must be 8169a09a.*nothing was kept"):
        fetch_archive(folder, server.url)
    assert names(folder) == []


def test_a_damaged_archive_is_refused_and_leaves_nothing(server, archive, tmp_path):
    folder = tmp_path / "data"
    middle = len(archive) // 2
    for body in (archive[:-100], archive[:middle] + b"\0" * 50 + archive[middle + 50 :], b"<html>Busy</html>"):
        server.body = body
        with pytest.raises(InvalidInput, match="damaged or not a zip file"):
            fetch_archive(folder, server.url)
        assert names(folder) == []
    server.body = zipped({"README.txt": "nothing else"})
    with pytest.raises(InvalidInput, match=r"no \.mat file"):
        fetch_archive(folder, server.url)


def test_archives_inside_the_archive_are_opened_and_names_must_agree(server, tmp_path):
    mat = write_b(tmp_path / "B0005.mat").read_bytes()
    folder = tmp_path / "data"
    server.body = zipped({"1.zip": zipped({"B0005.mat": mat}), "2.zip": zipped({"x/B0005.mat": mat})})
    assert list(fetch_archive(folder, server.url).files) == ["B0005.mat"]
    assert set(load_steps(folder, "b_mat")["source"]) == {"b_mat"}
    server.body = zipped({"a/B0005.mat": mat, "b/B0005.mat": mat + b"\0"})
    with pytest.raises(InvalidInput, match="two different files of this name"):
        fetch_archive(folder, server.url + "?again")
    assert names(folder) == ["B0005.mat", "fetched.json"]


def test_an_address_or_checksum_that_cannot_be_meant_is_refused(server, tmp_path):
    for url, words in ((f"{server.url[:-17]}/absent", "answers 404"), ("file:///etc/hosts", "must begin with http")):
        with pytest.raises(InvalidInput, match=words):
            fetch_archive(tmp_path, url)
    with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
        fetch_archive(tmp_path, server.url, sha256="abc")
    server.server_close()


def test_a_disk_that_cannot_be_written_to_is_told_apart_from_the_network(server, tmp_path):
    (tmp_path / "a.zip.partial").mkdir()
    with pytest.raises(InvalidInput, match=r"a\.zip\.partial: cannot be written"):
        download(server.url, tmp_path / "a.zip")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InvalidInput, match="cannot be made"):
        fetch_archive(tmp_path / "file" / "data", server.url)


def test_an_archive_left_whole_by_an_interrupted_unpacking_is_not_fetched_again(server, archive, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(battery_fetch.shutil, "copyfileobj", full)
        with pytest.raises(InvalidInput, match=r"No space left on device.*archive is kept"):
            fetch_archive(tmp_path / "data", server.url)
    assert [name[-4:] for name in names(tmp_path / "data")] == [".zip"]
    assert list(fetch_archive(tmp_path / "data", server.url).files) == ["RW9.mat", "RW10.mat"]
    assert len(server.asked) == 1


def test_no_server_is_said_kindly(tmp_path):
    with pytest.raises(InvalidInput, match=r"could not be downloaded .*0 bytes are kept"):
        fetch_archive(tmp_path, "http://127.0.0.1:9/a.zip")
