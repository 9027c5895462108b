"""et-profile: what it prints and writes."""

import re

import numpy as np

from cache_builders import with_reuse
from elastictrainer import Profile
from elastictrainer.cli import profile
from elastictrainer.cli.profile import table
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory

QUICK = "--image-size 16 --warmup-steps 1 --steps 2 --calibration-seconds 0".split()


def test_a_profile_is_printed_and_written(tf, tmp_path, monkeypatch, capsys):
    """With --classes, before the images are there."""
    monkeypatch.chdir(tmp_path)
    model = ["--model", "usermodels:good", "--classes", "2", "--dataset", "images/to/come"]
    assert profile.main([*model, *QUICK, "--validate", "2", "--profile", "p.json"]) == 0
    printed = capsys.readouterr().out
    heading = "6 trainable tensors, batch 16, input 16x16x3"
    assert all(words in printed for words in (heading, "rho_min", "predicted ms", "profile: p.json"))
    made = Profile.load("p.json")
    assert len(made) == 6 and len(made.validation) == 2
    assert made.metadata["model"] == "usermodels:good" and made.metadata["classes"] == 2


def test_a_model_or_data_set_that_does_not_exist_is_refused(capsys):
    assert profile.main(["--model", "resnet05"]) == 2
    assert "'resnet50'" in capsys.readouterr().err
    assert profile.main(["--dataset", "nowhere"]) == 2
    assert "'nowhere'" in capsys.readouterr().err


def test_the_number_of_classes_alone_is_enough(tf, tmp_path, monkeypatch):
    """The data set that et-train would take without a name has nothing to do with it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("classes: 6\n")
    small = ["--model", "usermodels:good", "--config", "c.yaml", "--profile", "p.json"]
    assert profile.main([*small, *QUICK]) == 0
    assert Profile.load("p.json").metadata["classes"] == 6


def invented(names=None, t_dw=None):
    names = names or [f"block_{i}/kernel" for i in range(12)]
    count = len(names)
    profile = Profile.from_chain(
        names, 10.0, np.arange(1.0, count + 1) if t_dw is None else t_dw, np.full(count, 0.5)
    )
    profile.metadata = {
        "model": "tiny",
        "batch_size": 4,
        "input_shape": [16, 16, 3],
        "device": "abacus",
        "threads": {"processors": 2},
        "coverage": 0.987,
        "unattributed": [{"op": f"Op{k}", "ms": 0.1 * k} for k in range(5)],
    }
    return profile


def line(said, start):
    (found,) = [text for text in said.splitlines() if text.startswith(start)]
    return found


def test_the_summary_lines():
    profile = invented()
    said = table(profile)
    heading = said.splitlines()[0]
    assert heading.startswith("tiny: ")
    assert all(words in heading for words in ("12 trainable", "batch 4", "16x16x3", "abacus", "2 processor"))
    assert line(said, "full step").split()[2:] == ["94.0", "ms"]
    assert line(said, "forward").split()[1] == "10.6"
    assert line(said, "coverage").split()[1] == "98.7"
    assert line(said, "rho_min").split()[1] == f"{profile.rho_min:.3f}"

    assert said.count("unattributed:") == 3 and "FLOPs" not in said and "predicted ms" not in said


def test_the_ratio_of_a_cached_step_and_the_memory_of_a_step_are_told_where_they_are_known():
    cached = with_reuse(invented())
    lower = cached.with_cache.rho_min
    assert lower < cached.rho_min
    assert line(table(cached), "rho_min").endswith(f"; {lower:.3f} for a cached step")
    profile = invented()
    assert "memory" not in table(profile)
    held = CostGroups.singletons(np.arange(12) * 1e6)
    nothing = CostGroups.singletons(np.zeros(12))
    profile.memory = StepMemory(held, nothing, 5e6, 2e6, 500e6, 4, nothing)
    assert line(table(profile), "memory").split()[1:3] == ["71", "MB"]
    assert re.search(" 500 MB .* 7 MB ", line(table(profile), "memory"))


def test_the_ten_costliest_tensors_are_listed_in_order():
    said = table(invented())
    rows = [text.split() for text in said.splitlines() if "/kernel" in text]
    assert [row[0] for row in rows] == [f"block_{i}/kernel" for i in range(11, 1, -1)]
    assert rows[0][2:] == ["12.00", "0.50"]


def test_long_names_keep_their_end_and_estimates_are_marked():
    profile = invented(["a" * 60 + "/kernel", "b"])
    profile.estimated[1] = True
    said = table(profile)
    assert line(said, "...").split()[0] == "..." + ("a" * 60 + "/kernel")[-51:]
    assert line(said, "b ").endswith(" estimated")
    columns = {len(line(said, start).replace(" estimated", "")) for start in ("...", "b ")}
    assert len(columns) == 1


def test_measured_selections_have_their_error():
    profile = invented()
    profile.validation = [
        {"selected": [11], "predicted_ms": 11.0, "measured_ms": 10.0},
        {"selected": [0, 1], "predicted_ms": 19.0, "measured_ms": 20.0},
    ]
    said = table(profile)
    assert line(said, "    1 of 12 tensors").split()[-3:] == ["11.0", "10.0", "10.0%"]
    assert line(said, "    2 of 12 tensors").split()[-3:] == ["19.0", "20.0", "-5.0%"]
    assert line(said, "absolute error").startswith("absolute error: median 7.5 %")
