"""et-profile: what it prints and writes."""

from elastictrainer import Profile
from elastictrainer.cli import profile

QUICK = "--image-size 16 --warmup-steps 1 --steps 2 --calibration-seconds 0".split()


def test_a_profile_is_printed_and_written(tf, tmp_path, monkeypatch, capsys):
    """With --classes, before the images are there."""
    monkeypatch.chdir(tmp_path)
    model = ["--model", "usermodels:good", "--classes", "2", "--dataset", "images/to/come"]
    assert profile.main([*model, *QUICK, "--validate", "2", "--profile", "p.json"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "6 trainable tensors, batch 4, input 16x16x3",
        "rho_min",
        "predicted ms",
        "profile: p.json",
    ):
        assert words in printed
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
    small = ["--model", "usermodels:good", "--classes", "7", "--profile", "p.json"]
    assert profile.main([*small, *QUICK]) == 0
    assert Profile.load("p.json").metadata["classes"] == 7
    (tmp_path / "c.yaml").write_text("classes: 6\n")
    assert profile.main([*small[:2], "--config", "c.yaml", "--profile", "q.json", *QUICK]) == 0
    assert Profile.load("q.json").metadata["classes"] == 6
