"""A note where training undoes a solved head."""

from types import SimpleNamespace

from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training.rising_loss import RisingLoss
from log_lines import listen


def said(tf, losses, start_loss=0.5):
    """Return the lines over steps of these losses, of a classifier of 100 classes."""
    lines, watching = listen(), RisingLoss(100)
    model = SimpleNamespace(optimizer=tf.keras.optimizers.SGD(0.001))
    watching.run_state = SimpleNamespace(
        progress=SimpleNamespace(start_loss=start_loss), loss=0.0, model=model, rates=RateSchedule(4e-4)
    )
    for batch, loss in enumerate(losses):
        watching.run_state.loss = loss
        watching.on_train_batch_end(batch)
    return lines


def test_a_loss_far_above_its_start_is_said_once_with_half_the_rate(tf):
    (line,) = said(tf, [4.6] * 400)
    assert "risen from 0.50 to" in line and "--learning-rate 0.0002" in line


def test_a_single_minibatch_and_a_loss_that_recovers_say_nothing(tf):
    assert not said(tf, [0.5, 6.0, 0.5, 0.5] * 100)
    assert not said(tf, [2.0] * 200 + [0.3] * 200)


def test_a_run_without_a_solved_head_says_nothing(tf):
    assert not said(tf, [4.6] * 400, start_loss=None)
