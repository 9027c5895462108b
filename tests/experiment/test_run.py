"""et-train as a function: from settings to a filled run folder."""

import dataclasses
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import spoil
from elastictrainer import RunError, Trainer, UsageError
from elastictrainer.experiment import profiling
from elastictrainer.experiment.run import _reserve_s, train
from elastictrainer.experiment.run_images import load_run_images
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs import resident
from elastictrainer.runs.log import printed
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.training.clock import process_age_s
from elastictrainer.training.memory import MemoryLimit


@pytest.fixture
def settings(tf, image_folder, tmp_path, monkeypatch):
    """A made-to-measure TrainSettings: a tiny network on tiny images, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def made(**given):
        usual = {"model": "usermodels:good", "dataset": str(image_folder), "image_size": 16, "batch_size": 4}
        usual.update(optimizer="sgd", learning_rate=0.003, importance_batches=2, interval=1, epochs=1)
        # A step of half a millisecond hardly gets shorter, least of all on a machine with much to do.
        usual.update(scheme="full", calibration_seconds=0.5, rho=1.0)
        return TrainSettings(**{**usual, **given})

    return made


@pytest.fixture
def run(tmp_path):
    """An empty run folder; what is told of the run is printed, as by the command."""
    with printed():
        yield RunFolder.create(tmp_path / "run")


def test_a_run_leaves_all_that_it_is_told_to(settings, run, capsys):
    chosen = settings(scheme="elastic", epochs=2, export="keras", seed=3)
    summary = train(chosen, run, resume=False)
    assert summary == run.summary() and summary["seed"] == 3
    assert summary["steps"] >= 1 and summary["epochs"] >= 1 and summary["selections"] >= 1
    assert 0 <= summary["accuracy"] <= summary["accuracy_best"] <= 1
    assert TrainSettings(**run.config()) == dataclasses.replace(chosen, precision="float32")
    assert run.environment()["class_names"] == ["dark", "light"]
    head, *epochs = run.metrics()
    assert [line["epoch"] for line in (head, *epochs)] == list(range(summary["epochs"] + 1))
    assert head["test_accuracy"] is not None and epochs[-1]["test_accuracy"] == summary["accuracy"]
    page = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text()
    keys = {*summary, *head, *epochs[0], *run.selections()[0]}
    assert not [key for key in keys if f"`{key}`" not in page]
    for path in (run.profile_path, run.model_path, run.events_path, run.checkpoints_path):
        assert path.exists(), path
    said = capsys.readouterr().out
    started = "24 training and 8 test images, 6 trainable", f"run: {run.path}", "profile: profiles/"
    for words in (*started, "solved head: test accuracy ", "epoch   1  loss ", "written: "):
        assert words in said


@pytest.mark.parametrize(
    "model, head_init, kept",
    [("normalised", "solve", True), ("normalised", "keep", False), ("normalised_untrained", "solve", False)],
)
def test_norms_keep_the_statistics_that_the_head_is_solved_for(
    tf, settings, run, capsys, model, head_init, kept
):
    train(settings(model=f"usermodels:{model}", head_init=head_init, epochs=2), run, resume=False)
    found = tf.keras.models.load_model(run.model_path).get_layer("norm").moving_mean
    began = 0.5 if model == "normalised" else 0.0
    assert bool(tf.reduce_all(found == began)) == kept
    assert ("note: batch normalisation keeps its statistics" in capsys.readouterr().out) == kept


def test_where_no_full_step_fits_the_head_alone_is_solved(settings, run, monkeypatch):
    chosen = settings(scheme="elastic", memory="64GB", epochs=2, interval=None)
    monkeypatch.setattr(resident, "give_back_freed_memory", lambda: None)  # it is for the rest of the process
    monkeypatch.setattr(MemoryLimit, "measuring_bytes", lambda self, examples: 1e12)
    summary = train(chosen, run, resume=False)
    assert summary["scheme"] == "head-alone" and summary["steps"] == 1
    assert summary["full_step_ms"] is None and summary["selections"] == 0
    assert run.metrics()[0]["test_accuracy"] == summary["accuracy"]
    assert TrainSettings(**run.config()) == dataclasses.replace(chosen, precision="float32")
    assert not run.profile_path.exists()


@pytest.mark.slow
def test_within_a_limit_without_time_for_a_profile_the_last_layers_train(settings, run, monkeypatch):
    monkeypatch.setattr(resident, "give_back_freed_memory", lambda: None)
    chosen = settings(scheme="freeze-below", memory="64GB", time=f"{process_age_s() + 15:.0f}s")
    summary = train(chosen, run, resume=False)
    assert summary["scheme"] == "last-layers" and summary["steps"] >= 1
    assert not run.profile_path.exists()


def test_a_run_without_a_profile_resumes_without_one(settings, run, monkeypatch):
    chosen = settings(scheme="freeze-below", time=f"{process_age_s() + 15:.0f}s")
    steps = train(chosen, run, resume=False)["steps"]
    assert steps and not run.profile_path.exists()
    monkeypatch.setattr(profiling, "obtain_profile", lambda *a, **b: pytest.fail("has made one"))
    more = train(chosen, run, resume=True, extra_time=f"{process_age_s() + 15:.0f}s")
    assert more["scheme"] == "last-layers" and more["steps"] > steps


@pytest.mark.parametrize("scheme", ["elastic", "userschemes:ByLargestGradient"])
def test_a_head_that_is_kept_has_its_own_rate_no_warm_up_and_is_not_trained_alone(
    settings, run, tmp_path, scheme
):
    own = {"optimizer": "adamw", "learning_rate": None, "schedule": "constant", "scheme": scheme}
    train(settings(**own), run, resume=False)
    solved = [line["learning_rate"] for line in run.metrics()[1:]]
    assert solved[-1] == pytest.approx(3e-4)
    again = RunFolder.create(tmp_path / "again")
    train(settings(**own, init_from=str(run.path)), again, resume=False)
    assert [line["learning_rate"] for line in again.metrics()] == pytest.approx([1e-4] * len(again.metrics()))
    with pytest.raises(UsageError, match="the model knows these classes already"):
        train(settings(scheme="head-alone", init_from=str(run.path)), again, resume=False)


def test_within_a_limit_a_scheme_of_the_users_own_that_selects_nothing_is_refused(settings, run, monkeypatch):
    monkeypatch.setattr(resident, "give_back_freed_memory", lambda: None)  # it is for the rest of the process
    with pytest.raises(UsageError, match="selects nothing"):
        train(settings(scheme="userschemes:OddTensors", memory="64GB"), run, resume=False)


def test_a_finished_run_is_resumed_to_its_figures_left_alone_by_bad_requests_and_replaced(settings, run):
    summary = train(settings(epochs=2), run, resume=False)
    again = train(settings(epochs=2), run, resume=True)
    for name in ("steps", "epochs", "accuracy", "loss", "training_intervals"):
        assert again[name] == summary[name], name
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    for wrong in (
        {"scheme": "elastic", "rho": 0.01},  # below the cheapest selection
        {"model": "usermodels:all_frozen"},
        {"dataset": "nowhere/at/all"},
        {"label_column": "fine"},
    ):
        with pytest.raises(UsageError):
            train(settings(**wrong), run, resume=False)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    summary = train(settings(output=str(run.path), overwrite=True), run, resume=False)
    assert summary["epochs"] == 1 and [line["epoch"] for line in run.metrics()] == [0, 1]
    assert run.config()["overwrite"] is False, "or its own settings would replace it"


def test_a_finished_run_that_is_given_more_time_exports_anew_and_is_unfinished_meanwhile(
    settings, run, monkeypatch, capsys
):
    chosen = settings(time="20s", export="keras")
    train(chosen, run, resume=False)
    (run.export_path / "model.tflite").write_bytes(b"of the model before")
    first, whole = (run.export_path / "deployed.keras").read_bytes(), Trainer.fit

    def interrupted(*arguments, **options):
        whole(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_summary", lambda *_: None)
        patch.setattr(Trainer, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(chosen, run, resume=True, extra_time="2s")
    assert not run.summary_path.exists(), "what is left can be resumed"
    train(chosen, run, resume=True)
    assert run.summary_path.exists() and (run.export_path / "deployed.keras").read_bytes() != first
    assert "model.tflite is of the model before: et-export" in capsys.readouterr().out


def test_an_image_that_was_cut_short_is_named_before_training(settings, run, image_folder):
    victim = image_folder / "test" / "light" / "3.png"
    victim.write_bytes(victim.read_bytes()[:-2000])
    with pytest.raises(UsageError, match=r"light/3\.png .*delete"):
        train(settings(), run, resume=False)
    assert not run.config_path.exists()


@pytest.mark.parametrize("part", ["train", pytest.param("test", marks=pytest.mark.slow)])
def test_a_run_is_resumed_after_the_image_that_it_named_was_replaced(settings, run, image_folder, part):
    victim = image_folder / part / "light" / "3.png"
    whole = victim.read_bytes()
    spoil(victim)
    with pytest.raises(RunError, match=r"light/3\.png .*Replace"):
        train(settings(), run, resume=False)
    assert not run.summary_path.exists() and run.environment()["damaged"]["damaged"] == [str(victim)]
    victim.unlink()
    with pytest.raises(UsageError, match=r"light/3\.png is gone: put a picture of its class there"):
        train(settings(), run, resume=True)
    victim.write_bytes((image_folder / "test" / "light" / "1.png").read_bytes())
    assert train(settings(), run, resume=True)["steps"] == 6
    assert load_run_images(run, part).split.count == {"train": 24, "test": 8}[part]
    victim.write_bytes(whole)
    (image_folder / part / "light" / "2.png").unlink()
    with pytest.raises(UsageError, match="is not what "):
        train(settings(), run, resume=True)


def test_damaged_images_are_left_out_and_stay_so(settings, run, image_folder, capsys):
    cut, spoiled = (image_folder / "train" / "light" / name for name in ("3.png", "4.png"))
    cut.write_bytes(cut.read_bytes()[:-2000])
    spoil(spoiled)
    train(settings(skip_damaged=True), run, resume=False)
    said = capsys.readouterr().out
    assert "left out: 2 " in said and "22 training and 8 test" in said
    spoiled.unlink()
    train(settings(skip_damaged=True), run, resume=True)
    assert "22 training and 8 test" in capsys.readouterr().out


def interrupted(chosen, run):
    """Train `chosen` into `run`, then leave all but the last epoch, as if it had been stopped there.

    Returns:
        The summary and the metrics that the whole run had.
    """
    whole = train(chosen, run, resume=False), run.metrics()
    for path in (run.summary_path, run.model_path):
        path.unlink()
    newest = max(run.checkpoints_path.glob("step-*"))
    newest.rename(newest.with_name("last"))
    return whole


def test_changed_data_is_noticed_when_a_run_goes_on(settings, run, image_folder, capsys):
    chosen = settings(epochs=2)
    interrupted(chosen, run)
    assert not run.profile_path.exists()
    images = sorted((image_folder / "train" / "dark").iterdir())
    away = images[1].with_name("zzz.png")
    images[1].rename(away)
    with pytest.raises(UsageError, match="is not what "):
        train(chosen, run, resume=True)
    away.rename(images[1])
    assert train(chosen, run, resume=True)["epochs"] == 2
    assert "resumed after step 6" in capsys.readouterr().out


def test_a_run_goes_on_under_another_limit_of_processors(settings, run, capsys):
    # The number of epochs ends it, not the clock.
    chosen = settings(epochs=2, scheme="elastic", activation_cache="off")
    interrupted(chosen, run)
    profile = json.loads(run.profile_path.read_text())
    profile["metadata"]["threads"]["processors"] += 6
    run.profile_path.write_text(json.dumps(profile))
    assert train(chosen, run, resume=True)["epochs"] == 2
    assert "(threads: " in capsys.readouterr().out
    assert json.loads(run.profile_path.read_text())["metadata"]["threads"] != profile["metadata"]["threads"]


def test_a_run_goes_on_without_the_weights_that_it_started_from(settings, run, tmp_path):
    from elastictrainer.models import zoo

    weights = tmp_path / "weights.npz"
    weights.write_bytes(zoo.DEMO_WEIGHTS.read_bytes())
    chosen = settings(model="demo", weights=str(weights), epochs=2)
    expected, _ = interrupted(chosen, run)
    weights.unlink()
    assert train(chosen, run, resume=True)["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_training_options_are_the_same_after_an_interruption(settings, run, image_folder):
    """Class weights and smoothed labels are in the cache, the schedule goes on where it was."""
    for k in range(8):
        (image_folder / "train" / "dark" / f"{k}.png").unlink()
    options = {"optimizer": "adamw", "schedule": "cosine", "warmup": 1 / 6, "label_smoothing": 0.1}
    options.update(class_weights="balanced", scheme="traditional-tl", epochs=3, interval=3)
    chosen = settings(**options)
    expected, lines = interrupted(chosen, run)
    assert expected["cached_share"] == 1
    rates = [line["learning_rate"] for line in lines[1:]]
    assert 0.003 > rates[0] > rates[1] > rates[2] >= 0
    assert train(chosen, run, resume=True)["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    for line, other in zip(lines, run.metrics()):
        assert line["train_loss"] == pytest.approx(other["train_loss"], rel=1e-6)
        assert line.get("learning_rate") == other.get("learning_rate")
    with zipfile.ZipFile(run.model_path) as archive:
        loss = json.loads(archive.read("config.json"))["compile_config"]["loss"]["config"]
    assert loss["label_smoothing"] == 0.1 and loss["class_weights"] == pytest.approx([2.0, 2 / 3])


def test_a_callback_sees_the_run(settings, run, monkeypatch):
    import usercallbacks

    monkeypatch.setattr(usercallbacks, "SEEN", [])
    train(settings(callback="usercallbacks:Notes", epochs=2), run, resume=False)
    steps = [("batch", k, ["accuracy", "loss"]) for k in range(6)]
    logs = ["accuracy", "loss", "val_accuracy", "val_loss"]  # what `Model.fit` would give
    assert usercallbacks.SEEN == [*steps, ("epoch", 0, logs), *steps, ("epoch", 1, logs), ("end",)]


@pytest.mark.parametrize(
    "place, steps",
    [("stops_after_three_steps", 3), pytest.param("stops_after_an_epoch", 6, marks=pytest.mark.long)],
)
def test_a_callback_can_end_a_run(settings, run, place, steps):
    chosen = settings(callback=f"usercallbacks:{place}", epochs=3)
    summary = train(chosen, run, resume=False)
    assert summary["steps"] == steps and summary["epochs"] == 1
    assert [line["epoch"] for line in run.metrics()] == [0, 1]
    for path in (run.summary_path, run.model_path):  # as if it had been killed before these were written
        path.unlink()
    again = train(chosen, run, resume=True)
    assert again["steps"] == steps and again["epochs"] == 1 and run.model_path.exists()
    assert again["loss"] == summary["loss"]


@pytest.mark.parametrize("kind", ["file", pytest.param("function", marks=pytest.mark.slow)])
def test_images_have_the_size_that_a_model_of_ones_own_takes(settings, run, tf, tmp_path, kind):
    import usermodels

    usermodels.of_a_fixed_size(2).save(tmp_path / "m.keras")
    model = str(tmp_path / "m.keras") if kind == "file" else "usermodels:of_a_fixed_size"
    train(settings(model=model, image_size=None), run, resume=False)
    assert tf.keras.models.load_model(run.model_path).input_shape == (None, 12, 20, 3)


@pytest.mark.parametrize("name", ["reduces_the_rate", "backs_up"])
def test_a_callback_that_does_not_fit_is_refused_before_anything_is_written(settings, run, name):
    message = {"reduces_the_rate": "--schedule constant", "backs_up": "et-train --resume"}[name]
    with pytest.raises(UsageError, match=message):
        train(settings(callback=f"usercallbacks:{name}", epochs=3), run, resume=False)
    assert not run.config_path.exists()


@pytest.mark.parametrize("validated", [pytest.param(False, marks=pytest.mark.long), True])
def test_weights_that_early_stopping_puts_back_are_those_of_the_summary(settings, run, validated):
    """The learning rate is so high that the network soon becomes worse."""
    from elastictrainer.experiment.scoring import score
    from elastictrainer.models import predictor

    chosen = settings(
        callback="usercallbacks:puts_the_best_back",
        epochs=9,
        learning_rate=0.5,
        optimizer="adam",
        validation_split=0.3 if validated else None,
        export="keras",
    )
    summary = train(chosen, run, resume=False)
    card = (run.export_path / "README.md").read_text()
    scores = score(predictor.load(run.path), load_run_images(run), None)
    of_part = "val_loss" if validated else "test_loss"
    losses = [line[of_part] for line in run.metrics() if line["epoch"]]  # without the solved head
    assert losses[-1] > min(losses) and len(losses) < 9
    assert scores.accuracy == pytest.approx(summary["accuracy"])
    assert f"{100 * summary['accuracy']:.1f} % with these weights" in card
    if not validated:
        assert summary["kept_epoch"] == 1 + losses.index(min(losses))
        assert summary["loss"] == min(losses)


def test_what_the_run_has_measured_takes_the_place_of_what_was_expected():
    record = SimpleNamespace(writing_s=0.0)
    expected_s = _reserve_s(record, 0)
    record.writing_s = 10.0
    assert _reserve_s(record, 0) > expected_s + 15, "a checkpoint and the model"
    assert _reserve_s(record, 1) > _reserve_s(record, 0) + 5, "an export takes time"
