"""What of a folder may be removed, and whose it is."""

import stat

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.runs import ownership
from elastictrainer.runs.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    """A run folder with everything that a run leaves, and what a user put beside it."""
    made = RunFolder.create(tmp_path / "run")
    made.write_config({"scheme": "full"})
    files = "model.keras best.keras summary.json checkpoints/step-000000007/variables.index"
    files += " events/events.out.tfevents.1.host export/model.tflite export/saved_model/saved_model.pb"
    for name in (*files.split(), *(f"evaluation/{name}" for name in ownership.EVALUATION)):
        (made.path / name).parent.mkdir(parents=True, exist_ok=True)
        (made.path / name).write_text("ours")
    return made


USERS = (
    *"notes.txt .git/HEAD data/train/a/1.png export/my-model.tflite events/readme".split(),
    *"evaluation/notes.csv checkpoints/step-best/variables.index checkpoints/step-1.tar.gz".split(),
    "checkpoints/step-0000000070",
)


@pytest.mark.parametrize("users", [USERS, ()])
def test_only_what_the_program_wrote_is_removed(run, users):
    for name in users:
        path = run.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    RunFolder.create(run.path, overwrite=True)
    left = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
    assert left == {*users, ".lock", ownership.MARKER}


def test_a_folder_with_a_file_named_config_is_no_run(tmp_path):
    (tmp_path / "config.yaml").write_text("scheme: full\n")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder.create(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists() and (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize("place", ["", "..", "../.."])
def test_the_working_directory_and_what_it_lies_in_are_not_replaced(run, monkeypatch, place):
    inner = run.path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(run.path if not place else inner if place == "../.." else inner.parent)
    with pytest.raises(UsageError, match="in which .* lies"):
        RunFolder.create(place or ".", overwrite=True)
    assert run.model_path.exists()


def test_home_and_what_the_new_run_reads_are_not_replaced(run, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(run.path)
    for needed in (run.path, run.model_path, elsewhere / "profile.json"):
        with pytest.raises(UsageError, match="in which .* lies"):
            with run.claimed(overwrite=True, needed=[needed]):
                pass
    with run.claimed(overwrite=True, needed=[tmp_path, tmp_path / "run-2"]):
        pass
    monkeypatch.setenv("HOME", str(run.path))
    with pytest.raises(UsageError, match="in which .* lies"):
        RunFolder.create(run.path, overwrite=True)


LINKS = "metrics.jsonl checkpoints events export/model.tflite model.keras best.keras evaluation/classes.csv"


@pytest.mark.parametrize("name", LINKS.split())
def test_a_link_in_a_run_folder_is_refused(tmp_path, name):
    target = tmp_path / "valuable"
    target.write_text("mine")
    run = RunFolder.create(tmp_path / "run")
    run.write_config({"scheme": "full"})
    path = run.path / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    for options in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(UsageError, match="is a link"):
            with run.claimed(**options):
                pass
    assert target.read_text() == "mine"


def test_the_run_folder_itself_may_lie_behind_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    RunFolder.create(tmp_path / "runs" / "first").write_config({"scheme": "full"})
    assert (tmp_path / "disk" / "first" / "config.yaml").exists()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_run_folder_is_its_makers_until_its_config_is_changed(tmp_path, home, monkeypatch):
    run = RunFolder.create(tmp_path / "run")
    run.write_config({"scheme": "full"})
    (key,) = (path for path in home.rglob("*") if path.is_file())
    assert run.is_own() and stat.S_IMODE(key.stat().st_mode) == 0o600
    run.config_path.write_text(run.config_path.read_text() + "model: m:f\n")
    assert not run.is_own()
    run.write_config({"scheme": "full"})
    assert run.is_own()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    assert not run.is_own(), "who has no key has signed nothing"
    RunFolder.create(tmp_path / "other").write_config({"scheme": "full"})
    assert not run.is_own()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    for marker in (b"", b"\xfc", b"a line\n\n"):
        (run.path / ownership.MARKER).write_bytes(marker)
        assert not run.is_own()


def test_where_no_key_can_be_kept_nothing_is_signed_and_nothing_fails(tmp_path, home):
    home.write_text("a file where the folder should be")
    run = RunFolder.create(tmp_path / "run")
    run.write_config({"scheme": "full"})
    assert not run.is_own()
