"""Whose run folder it is."""

import stat

import pytest

from elastictrainer.runs import provenance
from elastictrainer.runs.run_folder import RunFolder


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_user_knows_what_he_signed(home):
    signed = provenance.signature(b"scheme: full")
    assert signed and provenance.is_own(b"scheme: full", signed)
    assert not provenance.is_own(b"scheme: os:getcwd", signed)
    assert not provenance.is_own(b"scheme: full", "") and not provenance.is_own(b"scheme: full", "\xfc")
    (key,) = (path for path in home.rglob("*") if path.is_file())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_what_another_user_signed_is_not_ones_own(tmp_path, monkeypatch):
    signed = provenance.signature(b"scheme: full")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    assert not provenance.is_own(b"scheme: full", signed)  # who has no key has signed nothing
    provenance.signature(b"anything")
    assert not provenance.is_own(b"scheme: full", signed)


def test_where_no_key_can_be_kept_nothing_is_signed_and_nothing_fails(home):
    home.write_text("a file where the folder should be")
    assert provenance.signature(b"x") == "" and not provenance.is_own(b"x", "")


def test_a_run_folder_is_its_makers_until_its_config_is_changed(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path / "run")
    run.write_config({"scheme": "full"})
    assert run.is_own()
    run.config_path.write_text(run.config_path.read_text() + "model: m:f\n")
    assert not run.is_own()
    run.write_config({"scheme": "full"})
    assert run.is_own()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    assert not run.is_own()
