"""A process that must end in time, by a clock of its own."""

import numpy as np
import pytest

from builders import ArrayData, invented_profile, train_classifier
from cache_builders import with_reuse
from elastictrainer.training.deadline import Deadline, process_age_s
from networks import residual


def test_a_deadline_counts_from_the_start_of_the_process():
    first = process_age_s()
    assert 0 < first <= process_age_s() < first + 60


def test_what_an_interrupted_run_had_taken_counts_and_what_was_slept_does_not():
    deadline = Deadline(100.0, lambda: 7.0, age_s=lambda: 5.0)
    deadline.resume(20.0)
    assert deadline.spent_s() == 25.0 and deadline.for_training_s() == 93.0
    deadline.lost_s = 3.0
    assert deadline.spent_s() == 22.0
    deadline.slowdown = 2.0
    assert deadline.for_training_s() == 86.0, "the end takes longer as well"


def test_a_finished_run_can_be_given_more_time():
    deadline = Deadline(100.0, more_s=30.0, age_s=lambda: 5.0)
    assert deadline.extends
    deadline.resume(98.0)
    assert deadline.seconds == 128.0 and deadline.spent_s() == 103.0


@pytest.mark.parametrize("scheme", ["elastic", "full"])
def test_a_run_ends_when_its_time_is_used_up(tf, scheme):
    """Each look at the clock takes a tenth of a second."""
    now = [0.0]

    def age_s():
        now[0] += 0.1
        return now[0]

    tf.keras.utils.set_random_seed(1)
    model = residual(tf)
    profile = with_reuse(invented_profile(model))
    deadline = Deadline(60.0, age_s=age_s)
    rates = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(np.asarray(self.model.optimizer.learning_rate)))

    from elastictrainer.steps.rates import RateSchedule

    history = train_classifier(
        tf,
        model,
        ArrayData(tf, steps=10),
        tf.keras.optimizers.SGD(0.05),
        scheme=scheme,
        profile=profile,
        deadline=deadline,
        rates=RateSchedule(0.05),
        callbacks=[Watch()],
        epochs=3,
    )
    results = history.elastic
    assert results["steps"] == len(rates) > 30, "the epochs asked for do not end it"
    assert 58.0 < now[0] < 61.0
    assert rates == sorted(rates, reverse=True) and rates[0] > 0.045 and rates[-1] < 0.002
    assert len(history.epoch) == results["epochs"]
