"""Counters and sums of a run."""

import json

from elastictrainer.training.progress import Progress


def test_an_epoch_begins_anew_and_the_run_goes_on():
    progress = Progress()
    for loss in (2.0, 1.0):
        progress.step_took(30.0)
        progress.step_done(loss)
    progress.flops = 5.0
    assert (progress.batch, progress.step, progress.loss_sum) == (2, 2, 3.0)
    progress.epoch_done(trained_s=1.5)
    assert (progress.epoch, progress.batch, progress.step, progress.loss_sum) == (1, 0, 2, 0.0)
    assert progress.epoch_ms == [] and progress.recent_ms == [30.0, 30.0]
    assert progress.trained_s == 1.5 and progress.epochs_flops == 5.0


def test_it_is_the_same_after_a_checkpoint():
    progress = Progress(epoch=2, batch=3, step=11, loss_sum=0.1, predicted_ratio=1 / 3)
    progress.step_took(12.5)
    saved = json.loads(json.dumps(progress.to_json()))
    other = Progress()
    other.restore({**saved, "cached": 4})
    assert other == progress, "another version counted more"


def test_a_checkpoint_holds_the_latest_ten_thousand_step_times():
    progress = Progress()
    for k in range(25_000):
        progress.step_took(float(k))
        progress.epoch_ms.clear()
    kept = progress.to_json()["recent_ms"]
    assert len(kept) == 10_000 and kept[-1] == 24_999 and len(progress.recent_ms) <= 20_000
