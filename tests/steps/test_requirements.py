"""What a model must be like to be trained here."""

import pytest

from builders import small_network
from elastictrainer import UsageError
from elastictrainer.steps.keras_compat.version import KERAS_3
from elastictrainer.steps.objective import KerasObjective
from elastictrainer.steps.requirements import require_supported, require_trainable


def test_a_compiled_model_is_accepted(tf):
    model = small_network(tf)
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    require_supported(model)


@pytest.mark.parametrize(
    "options, message",
    [
        (None, "not compiled: call compile"),
        ({"run_eagerly": True}, "run_eagerly"),
        ({"jit_compile": True}, "jit_compile=False"),
        ({"steps_per_execution": 4}, "steps_per_execution must be 1"),
        pytest.param(
            {"steps_per_execution": "auto"},
            "steps_per_execution must be 1",
            marks=pytest.mark.skipif(KERAS_3, reason="Keras 3 takes numbers only"),
        ),
    ],
)
def test_a_way_of_training_that_excludes_selection_is_refused(tf, options, message):
    model = small_network(tf)
    if options is not None:
        model.compile(optimizer="sgd", loss="mse", **options)
    with pytest.raises(UsageError, match=message):
        require_supported(model)


def test_auto_clustering_is_refused(tf):
    tf.config.optimizer.set_jit("autoclustering")
    try:
        with pytest.raises(UsageError, match="set_jit"):
            require_trainable(small_network(tf))
    finally:
        tf.config.optimizer.set_jit("")
    require_trainable(small_network(tf))


def test_a_model_with_its_own_train_step_is_refused(tf):
    class Custom(tf.keras.Model):
        def train_step(self, data):
            return {}

    with pytest.raises(UsageError, match="Custom .*train_step"):
        require_supported(Custom())


def test_loss_scaling_is_refused(tf):
    model = small_network(tf)
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer=scaled, loss="mse")
    with pytest.raises(UsageError, match="loss scaling"):
        require_supported(model)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no older kind")
def test_an_older_optimizer_that_counts_steps_is_refused_where_tensors_pause(tf):
    model, older = small_network(tf), tf.keras.optimizers.legacy
    model.compile(older.Adam(), loss="mse")
    with pytest.raises(UsageError, match="Adam .*older"):
        require_supported(model)
    require_supported(model, pauses=False)
    for supported in (older.SGD(0.1, momentum=0.9), tf.keras.optimizers.Adam(1e-4)):
        model.compile(supported, loss="mse")
        require_supported(model)


@pytest.mark.skipif(not KERAS_3, reason="an optimizer of Keras 3")
def test_an_optimizer_that_needs_all_gradients_is_refused(tf):
    model, kinds = small_network(tf), tf.keras.optimizers
    model.compile(kinds.MultiOptimizer(kinds.OptimizerMap(kinds.Adam())), loss="mse")
    with pytest.raises(UsageError, match="MultiOptimizer"):
        require_supported(model, pauses=False)


@pytest.mark.skipif(not KERAS_3, reason="an option of Keras 3")
def test_a_factor_for_the_loss_is_refused(tf):
    model = small_network(tf)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1, loss_scale_factor=1024.0), loss="mse")
    with pytest.raises(UsageError, match="loss scaling"):
        require_supported(model)


def test_a_model_with_its_own_loss_is_trained_by_it_and_one_with_own_metrics_refused(tf):
    class OwnLoss(tf.keras.Model):
        def call(self, x):
            return x

        def compute_loss(self, x, y, y_pred, sample_weight):
            return 7.0 * tf.reduce_sum(y_pred)

    class OwnMetrics(OwnLoss):
        def compute_metrics(self, x, y, y_pred, sample_weight):
            return {}

    model = OwnLoss()
    model.compile(optimizer="sgd", loss="mse")
    require_supported(model)
    x = tf.ones((2, 1))
    _, loss = KerasObjective(model)(x, (x, None), training=True)
    assert float(loss) == 14.0
    with pytest.raises(UsageError, match="OwnMetrics .*compute_metrics"):
        require_supported(OwnMetrics())
