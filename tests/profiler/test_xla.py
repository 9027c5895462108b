"""Ops that XLA compiles: refused where it hides which tensor the time belongs to, else charged as one op."""

import numpy as np
import pytest

from builders import ArrayData, image_batch, quick_profile, small_network, traced_step
from elastictrainer import UsageError
from elastictrainer.profiler.function_bodies import compiled_functions
from elastictrainer.steps.objective import classification_loss


def compiled_pair(tf, wrapped):
    """A network with two matrices in a function that XLA compiles; `wrapped`: called by one it does not."""

    class Pair(tf.keras.layers.Layer):
        def build(self, shape):
            self.one = self.add_weight(name="one", shape=(shape[-1], 4))
            self.two = self.add_weight(name="two", shape=(4, 4))

        def call(self, x):
            compiled = tf.function(lambda x: tf.tanh(x @ self.one) @ self.two, jit_compile=True)
            return tf.function(lambda x: compiled(x) + 1.0)(x) if wrapped else compiled(x)

    inputs = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(3)(Pair()(tf.keras.layers.Flatten()(inputs))))


def test_a_loss_that_xla_compiles_is_refused(tf):
    @tf.function(jit_compile=True)
    def compiled(outputs):
        return outputs * 2.0

    def loss(labels, outputs):
        return classification_loss()(labels, compiled(outputs))

    with pytest.raises(UsageError, match="compiled by XLA.*jit_compile"):
        quick_profile(small_network(tf), next(ArrayData(tf).train(0)), loss)


def test_a_tensor_that_was_computed_with_before_xla_is_refused(tf):
    """The compiled call sees a variable and a value; the value is a second tensor's."""

    class Scaled(tf.keras.layers.Layer):
        def build(self, shape):
            self.one = self.add_weight(name="one", shape=(shape[-1], 4))
            self.two = self.add_weight(name="two", shape=(4,))

        def call(self, x):
            return tf.function(lambda x, two: (x @ self.one) * two, jit_compile=True)(x, 2.0 * self.two)

    inputs = tf.keras.Input((8, 8, 3))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(Scaled()(tf.keras.layers.Flatten()(inputs))))
    with pytest.raises(UsageError, match="compiled by XLA.*computes with .*one"):
        quick_profile(model, image_batch(tf))


@pytest.mark.parametrize("wrapped", [False, True])
def test_several_tensors_in_what_xla_compiles_are_refused(tf, wrapped):
    with pytest.raises(UsageError, match="compiled by XLA.*jit_compile"):
        quick_profile(compiled_pair(tf, wrapped), image_batch(tf))


def test_one_tensor_in_what_xla_compiles_is_charged_as_a_whole(tf):
    layers = tf.keras.layers
    # Keras has XLA compile a convolution with groups on a CPU; its gradient takes most of the step there.
    inputs = tf.keras.Input((32, 32, 16))
    x = layers.Conv2D(16, 3, groups=4, use_bias=False, name="grouped")(inputs)
    x = layers.Conv2D(16, 3, groups=4, use_bias=False, trainable=False, name="frozen")(x)
    x = layers.Flatten()(layers.Conv2D(16, 3, use_bias=False, name="plain")(x))
    model = tf.keras.Model(inputs, layers.Dense(3, name="head")(x))
    batch = tf.random.normal((2, 32, 32, 16)), tf.zeros(2, tf.int64)
    step = traced_step(tf, model, batch)
    assert compiled_functions(step.graph.as_graph_def().library), (
        "nothing is compiled: this test shows nothing"
    )
    profile = quick_profile(model, batch, warmup_steps=2, steps=4)
    assert profile.metadata["coverage"] > 0.98, profile.metadata["unattributed"]
    grouped, plain = ([word in name for name in profile.names] for word in ("grouped", "plain"))
    assert not any("frozen" in name for name in profile.names)
    # Its gradient is one op, for it alone; what lies between the loss and both is shared by both.
    assert profile.step_time(grouped) > profile.step_time(plain) and not profile.estimated.any()
    assert profile.dw.amount_per_tensor()[grouped] > 10 * profile.t_update.max(), (
        "XLA's time stands elsewhere"
    )
    both = np.flatnonzero(np.array(grouped) | np.array(plain)).tolist()
    assert any(members == both and ms > 0 for members, ms in profile.dy.sets())


def test_auto_clustering_is_refused(tf):
    tf.config.optimizer.set_jit("autoclustering")
    try:
        with pytest.raises(UsageError, match="auto-clustering"):
            quick_profile(small_network(tf), next(ArrayData(tf).train(0)))
    finally:
        tf.config.optimizer.set_jit("")
