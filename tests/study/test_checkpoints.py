"""Checkpoints as files, of the right study, and signed where the package for it is installed."""

import json
import sys
from pathlib import Path

import pytest

from safedial.checkpoints import check_signature, read_marks
from safedial.errors import InvalidInput, MissingExtra
from safedial.study import Store, checkpoint_store, create_study, verify_store
from tests.study.conftest import SPEC
from tests.study.test_cli import CREATE, answer, study

__all__ = ["study"]


def test_a_checkpoint_names_its_study_its_first_event_and_its_time(lite, tmp_path):
    lite.ask([0.1, 0.2])
    mark = lite.checkpoint("end of January")
    events = lite.events()["events"]
    assert mark == {
        "study": "trial",
        "seq": 3,
        "hash": events[2]["hash"],
        "first": events[0]["hash"],
        "at": events[2]["at"],
    }
    path = tmp_path / "mark.json"
    path.write_text(json.dumps(mark))
    for kept in (mark, path, json.dumps(mark), f"3:{mark['hash']}"):
        assert lite.verify(checkpoint=kept).ok
    store = checkpoint_store(lite.store, actor="tester")
    assert verify_store(lite.store, checkpoint=store).ok
    with pytest.raises(InvalidInput, match="is of another study, '_store'; this is 'trial'"):
        lite.verify(checkpoint=store)
    with pytest.raises(InvalidInput, match="is of another study, 'trial'; this is '_store'"):
        verify_store(lite.store, checkpoint=mark)


def test_a_study_made_anew_under_the_same_name_does_not_match(lite, tmp_path):
    mark = lite.checkpoint()
    with Store(f"sqlite:///{tmp_path}/other.db") as store:
        again = create_study("trial", SPEC, storage=store)
        again.ask([0.1, 0.2])
        report = again.verify(checkpoint=mark)
    assert (report.ok, report.first_bad) == (False, 1)
    assert "another study of this name, or all of the log was rewritten" in report.problem


@pytest.mark.parametrize(
    "given",
    ["3", "x:y", "0:" + "0" * 64, "3:00", "{", "[]", {"seq": 3}, {"seq": "x", "hash": "00"},
     {"seq": 3, "hash": "0" * 64, "first": "00"}, {"seq": 3, "hash": 7}, {},
     '{"seq": 1e999, "hash": "00"}', '{"a":' * 100_000, 5, [1], b"1:00"],
    ids=lambda given: repr(given)[:30],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(given):
    with pytest.raises(InvalidInput, match="checkpoint"):
        read_marks(given, "trial")


def test_checkpoints_at_a_shell(study, tmp_path):
    file = tmp_path / "mark.json"
    words = study("checkpoint", "trial", "--out", file)[1].strip()
    assert json.loads(file.read_text())["seq"] == int(words.partition(":")[0])
    assert "all agree" in study("verify", "trial", "--checkpoint", file)[1]
    assert study("create", "other", *CREATE)[0] == 0
    code, _, said = study("verify", "other", "--checkpoint", file)
    assert (code, "checkpoint: is of another study, 'trial'; this is 'other'" in said) == (2, True)
    code, _, said = study("verify", "trial", "--checkpoint", tmp_path / "none.json")
    assert (code, "cannot be read" in said) == (2, True)
    (tmp_path / "key.pem").write_text("no key")
    code, _, said = study("checkpoint", "trial", "--sign-with", tmp_path / "key.pem")
    assert (code, "--out FILE" in said) == (2, True)
    before = answer(study("status", "trial", "--json"))["seq"]
    code, _, said = study("checkpoint", "trial", "--out", file, "--sign-with", tmp_path / "key.pem")
    assert (code, "with an Ed25519 key that has no password" in said) == (2, True)
    assert answer(study("status", "trial", "--json"))["seq"] == before


def test_without_the_package_the_error_names_the_extra_and_nothing_is_written(lite, monkeypatch):
    for name in {"cryptography", *(name for name in sys.modules if name.startswith("cryptography."))}:
        monkeypatch.setitem(sys.modules, name, None)
    for call in (lambda: lite.checkpoint(sign_with="key.pem"), lambda: lite.verify(checkpoint="1:", public_key="x")):
        with pytest.raises(MissingExtra, match=r'needs the package cryptography: pip install .*\[sign\]"'):
            call()
    assert lite.status()["seq"] == 1
    assert lite.verify(checkpoint=lite.checkpoint()).ok


def made_keys(folder):
    """Two key pairs as PEM files."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    for name in ("one", "two"):
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / f"{name}.pem").write_bytes(private)
        (folder / f"{name}.pub").write_bytes(public)


def test_a_signed_checkpoint_is_checked_with_the_public_key(lite, tmp_path):
    made_keys(tmp_path)
    mark = lite.checkpoint(sign_with=tmp_path / "one.pem")
    assert lite.verify(checkpoint=mark, public_key=tmp_path / "one.pub").ok
    assert lite.verify(checkpoint=mark).ok
    for changed, public in ((mark, "two"), ({**mark, "seq": 1}, "one"), ({**mark, "signature": "zz"}, "one")):
        with pytest.raises(InvalidInput, match="signature is not that of this public key"):
            lite.verify(checkpoint=changed, public_key=tmp_path / f"{public}.pub")
    with pytest.raises(InvalidInput, match="has no signature"):
        check_signature(lite.checkpoint(), tmp_path / "one.pub")
    with pytest.raises(InvalidInput, match=r"public_key = .*must be a PEM file"):
        check_signature(mark, Path(__file__))
    assert lite.status()["seq"] == 3
