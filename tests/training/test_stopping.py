from types import SimpleNamespace

import numpy as np
import pytest


@pytest.mark.parametrize("asks", [[False, False], [True, False], [False, True]])
def test_all_processes_stop_after_the_epoch_in_which_one_was_asked_to(tf, asks):
    from elastictrainer.training.stopping import StopTogether

    mine, others = asks
    callback = StopTogether(SimpleNamespace(gather=lambda flags: np.array([flags, [others]])))
    model = SimpleNamespace(stop_training=mine)
    callback.set_model(model)
    callback.on_train_batch_end(0)
    assert not model.stop_training  # this one would leave the others waiting
    callback.on_epoch_end(0)
    assert model.stop_training == any(asks)
    others = False
    model.stop_training = False
    callback.on_epoch_end(1)
    assert not model.stop_training  # what was asked for is not asked for again
