"""The figure scripts: what they would run, and the figures themselves on the embedded data."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import roughly_profiled, write_digits
from processes import Process

pytest.importorskip("tensorflow")

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FIGURES = ["figure15", "figure15ad", *(f"figure{k}" for k in range(16, 24)), "table2"]


PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def run(command, folder, status=0, **settings):
    """What a command says, which is run in `folder` with `settings` in its environment."""
    result = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": PATH, "TF_CPP_MIN_LOG_LEVEL": "3", **settings},
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture
def here(script, tmp_path, monkeypatch, capsys):
    """A function that runs figure.py in this process, in an empty folder; returns what it said."""

    def call(*arguments, status=0, folder=tmp_path, **settings):
        before = signal.getsignal(signal.SIGINT)
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            for name, value in settings.items():
                patch.setenv(name, value)
            assert script("figure").main(arguments) == status
        signal.signal(signal.SIGINT, before)
        return "".join(capsys.readouterr())

    return call


@pytest.fixture
def dry(here):
    """A function as `here`, for what a figure would run."""
    return functools.partial(here, DRY_RUN="1")


@pytest.mark.parametrize(
    "arguments, settings, said",
    [
        *((names, {}, "bash scripts/figure.sh NAME") for names in ((), ("figure14",), FIGURES[:2])),
        (["figure22"], {"FORMAT": "doc"}, "none of: png pdf svg"),
        (["figure22"], {"SEEDS": "0,1"}, "is no list of seeds"),
    ],
)
def test_what_cannot_be_made_is_status_2(here, arguments, settings, said):
    found = here(*arguments, status=2, **settings)
    assert said in found and (settings or all(f" {name}" in found for name in FIGURES))


def test_shellcheck_is_content():
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not on this machine")
    run(["shellcheck", *SCRIPTS.glob("*.sh"), *SCRIPTS.glob("benchmarks/*.sh")], SCRIPTS.parent)


def test_a_finished_run_is_kept_and_one_of_other_options_is_an_error(tmp_path):
    """A table would else show, under new options, what another run reached."""
    fake = tmp_path / "et-train"  # trains nothing: the folder it is given is a finished run
    fake.write_text(
        '#!/usr/bin/env bash\nfolder=${!#}\nmkdir -p "$folder"\ntouch "$folder"/{config.yaml,summary.json}\n'
    )
    fake.chmod(0o755)
    script = f'source "{SCRIPTS}/train_run.sh"; train_run runs/mine "$@"'

    def train(rho, status=0):
        words = ["bash", "-c", script, "bash", "--rho", rho, "--dataset", "my images"]
        return run(words, tmp_path, status, PATH=f"{tmp_path}:{PATH}")

    assert train("0.5") == "" and train("0.5") == "kept: runs/mine\n"
    said = train("0.25", status=2)
    assert "runs/mine.options" in said and "OUTPUT" in said
    shutil.rmtree(tmp_path / "runs" / "mine")
    assert train("0.25") == ""


def test_dry_run_prints_commands_and_trains_nothing(dry, tmp_path):
    said = dry("figure17", DATASET="images", MODEL="mobilenetv2", EPOCHS="2", WEIGHTS="none", RHOS="0.5")
    assert said.count("et-profile ") == 1
    assert (
        "et-train --config" in said
        and "--dataset images --model mobilenetv2 --weights none --epochs 2 --rho 0.5" in said
    )
    for scheme in ("full", "traditional-tl", "bn-bias", "prunetrain"):
        assert f"--scheme {scheme} " in said
    assert not list(tmp_path.iterdir())
    assert "--scheme full" not in dry("figure17", EGO="1", RHOS="0.5")


def test_a_profile_that_cannot_be_made_is_a_failure(here):
    said = here("figure22", status=1, DATASET="nowhere", MODEL="demo", PATH=PATH)
    assert "failed: figures-output/profiles/nowhere_demo.json" in said


@pytest.mark.parametrize("name", ["figure16", "figure19", "table2"])
def test_a_data_folder_may_have_spaces_in_its_name(dry, name):
    said = dry(name, DATASET="my images", MODEL="mobilenetv2", EGO="1")
    commands = [line for line in said.splitlines() if line.startswith(("et-profile ", "et-train "))]
    assert commands and all("--dataset 'my images' --model mobilenetv2 " in line for line in commands)


RUNS = "runs/caltech-birds2011_resnet50"


@pytest.mark.parametrize(
    "settings, trainings, option, folders",
    [
        # Seed 0: the folder of runs without SEEDS.
        ({"SEEDS": "0 2"}, (6, 3), "--seed 2", (f"{RUNS}_full\n", f"{RUNS}_full_seed2\n")),
        ({"MEMORY": "1.2GB"}, (4, 1), "--rho 0.5 --memory 1.2GB ", (f"{RUNS}_elastic-0.5-1.2GB\n",)),
    ],
    ids=["seeds", "within a limit"],
)
def test_what_is_set_makes_runs_of_their_own(dry, settings, trainings, option, folders):
    said = dry("figure22", **settings)
    assert (said.count("et-train "), said.count(option)) == trainings
    assert all(folder in said for folder in folders)


def test_help_says_what_can_be_set_and_what_each_figure_is(tmp_path):
    said = run(["bash", SCRIPTS / "figure.sh", "--help"], tmp_path)
    for setting in ("QUICK", "DRY_RUN", "SEEDS", "FORMAT", "OUTPUT"):
        assert re.search(rf"^  .*{setting}", said, re.M)
    assert all(re.search(rf"^    {name} +[A-Z].+\.$", said, re.M) for name in FIGURES)


QUICK = {"QUICK": "1", "EPOCHS": "1", "DATASET": "digits", "RHO": "0.5", "RHOS": "0.5"}


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """A folder with a fifteenth of the embedded data; figures draw from the same runs, each trained once."""
    folder = tmp_path_factory.mktemp("figures")
    write_digits(folder / "digits", 15)
    (folder / "quick.yaml").write_text(roughly_profiled("quick"))
    return folder


@pytest.fixture
def quick(here, script, output, monkeypatch):
    """A function that makes a figure of `output`; its commands are forked, and need not load TensorFlow."""
    asked = output / "asked"
    (output / "bin").mkdir(exist_ok=True)
    command = output / "bin" / "et-train"  # it tells what a script asks it to do
    command.write_text(f'#!/usr/bin/env bash\nprintf "%s\\0" et-train "$@" >"{asked}"\n')
    command.chmod(0o755)

    def run_forked(words):
        if words[0] == "bash":
            result = subprocess.run(words, capture_output=True, text=True)
            print(result.stdout, result.stderr)
            if not asked.exists():
                return result
            words = asked.read_text().split("\0")[:-1]
            asked.unlink()
        process = Process(output, *words)
        print(process.said())
        return SimpleNamespace(returncode=process.poll())

    figure = script("figure")
    monkeypatch.setattr(figure, "CONFIGS", output)
    monkeypatch.setattr(figure, "subprocess", SimpleNamespace(run=run_forked))
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    return functools.partial(here, folder=output)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "figure22" else pytest.mark.long)
        for name in FIGURES
    ],
)
def test_figure_on_the_embedded_data(output, quick, name):
    said = quick(name, **QUICK)
    written = json.loads((output / "figures-output" / f"{name}.json").read_text())
    assert written["rows"] and all(row["accuracy"] > 0 and row["seconds"] > 0 for row in written["rows"])
    assert "data, model, scheme" in said and "no number" in said
    pictures = list((output / "figures-output").glob(f"{name}*.png"))
    assert pictures or name == "table2"
    assert len(pictures) == len(list((output / "figures-output").glob(f"{name}*.csv")))
    if name == "table2":
        assert "speed-up" in said and {row["activation_cache"] for row in written["speedups"]} == {
            "off",
            "auto",
        }
    if name == "figure17":
        forms = {(row["scheme"], row["activation_cache"]) for row in written["rows"]}
        for scheme in ("elastic", "traditional-tl"):
            assert {(scheme, "off"), (scheme, "auto")} <= forms
        assert ("full", "auto") not in forms


@pytest.mark.long
def test_finished_runs_are_used_again_and_a_failed_one_is_named(output, quick):
    quick("figure22", **QUICK)
    said = quick("figure22", **QUICK)
    assert "kept:" in said and "epoch 1/1" not in said
    shutil.copytree(output / "figures-output" / "profiles", output / "broken" / "profiles")
    said = quick("figure22", status=1, **{**QUICK, "EPOCHS": "0"}, OUTPUT="broken")
    assert "--epochs 0 " in said and "failed: broken/runs/digits_demo_full" in said


@pytest.mark.long
def test_a_race_keeps_what_is_finished_and_names_the_best_rate(tmp_path):
    command = [sys.executable, SCRIPTS / "benchmarks" / "race.py", "--ways", "head-alone", "short"]
    command += ["--rates", "1e-3", "3e-3", "--epochs", "2", "--output", "race", "--csv", "race.csv"]
    command += ["--", "--model", "demo", "--dataset", "demo"]
    said = run(command, tmp_path)
    rows = (tmp_path / "race.csv").read_text().splitlines()
    assert [row.split(",")[:4] for row in rows[1:]] == [
        ["head-alone", "", "1e-3", "0"],
        ["short", "0.5", "1e-3", "0"],
        ["short", "0.5", "3e-3", "0"],
    ]
    assert re.search(r"^short +0.5 +[13]e-3 +[89]\d", said, re.M), said
    finished = {path: path.stat().st_mtime for path in tmp_path.rglob("summary.json")}
    run(command, tmp_path)
    assert finished == {path: path.stat().st_mtime for path in tmp_path.rglob("summary.json")}


@pytest.mark.parametrize("whole", [False, True])
def test_rows_of_a_race_are_drawn(script, tmp_path, monkeypatch, whole):
    """By the time of training, or where the file has it by that of the whole command, with the profile."""
    rows = ["way,setting,rate,seed,accuracy,training_s"]
    rows += ["elastic,0.5,1e-3,0,88,50", "elastic,0.5,1e-3,1,89,52", "elastic,0.5,3e-3,0,70,50"]
    rows += ["last-layers,1m,1e-3,0,85,45", "freeze-below,2m,1e-3,0,86,90", "freeze-below,0.5,1e-3,0,87,51"]
    rows += ["full,12 epochs,1e-4,0,90,102", "head-alone,,,0,80,30", "other,1m,,0,85,60"]
    if whole:
        rows = [f"{row},{float(row.split(',')[-1]) + 9 if k else 'wall_s'}" for k, row in enumerate(rows)]
    (tmp_path / "race.csv").write_text("\n".join(rows) + "\n")
    ways = ["--ways", "elastic", "full", "head-alone", "last-layers", "freeze-below"]
    options = [*ways, "--csv", str(tmp_path / "race.csv"), "--profile-s", "6" if whole else "0"]
    monkeypatch.setattr("sys.argv", ["race.py", *options, "--plot", str(tmp_path / "race.png")])
    race, drawn = script("race"), []
    monkeypatch.setattr(race, "save", lambda drawing, path: drawn.append(drawing.figure.axes[0]))
    race.main()
    (axes,) = drawn
    labels = {line.get_label(): line.get_xydata() for line in axes.lines}
    before, profile = (9.0, 6.0) if whole else (0.0, 0.0)

    def points(label):
        return [(round(60 * x - before, 3), y) for x, y in labels[label]]

    assert points("chosen tensors (--rho)") == [(51.0 + profile, 88.5)]
    assert points("late layers (--rho)") == [(51.0 + profile, 87.0)]
    assert points("late layers (--time)") == [(45.0, 85.0), (90.0, 86.0)]
    assert points("everything") == [(102.0, 90.0)] and points("head-alone") == [(30.0, 80.0)]
    assert "other" not in labels and [text.get_text() for text in axes.texts] == ["rho 0.5"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["no pip", pytest.param("no interpreter", marks=pytest.mark.long)])
def test_an_environment_that_was_left_half_made_is_completed(tmp_path, damage):
    """As after Debian's python without its venv package, an interrupt, or an upgrade of the system."""
    repository = tmp_path / "a path with spaces"
    for name in ("scripts/environment.sh", "pyproject.toml", "elastictrainer/__init__.py"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SCRIPTS.parent / name, repository / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", repository / ".venv"], check=True)
    (repository / ".venv" / "mine").write_text("stays")
    if damage == "no interpreter":
        for link in (repository / ".venv" / "bin").glob("python*"):
            link.unlink()
            link.symlink_to("/nowhere/python3")

    def prepare(extra=""):
        command = "source scripts/environment.sh; install() { :; }; "
        command += f"prepare_environment {extra} && python -m pip --version"
        said = run(["bash", "-c", command], repository, PYTHON=sys.executable, STACK="")
        assert "a path with spaces/.venv" in said.splitlines()[-1]
        return "\ninstalling" in f"\n{said}"

    (repository / ".venv" / "installed").write_text("of the interpreter before\n")
    assert prepare("test") and (repository / ".venv" / "mine").read_text() == "stays"
    assert not prepare("test") and not prepare(), "what is there already"
    assert prepare("lint")
    with open(repository / "pyproject.toml", "a") as file:
        file.write("# changed\n")
    assert prepare("test")
