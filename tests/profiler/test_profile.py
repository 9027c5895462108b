import numpy as np
import pytest

from builders import ArrayData, small_network, tensor_names
from elastictrainer import UsageError, profile_model
from elastictrainer.profiler.attribution import attribute
from elastictrainer.profiler.validation import random_masks
from elastictrainer.profiler.xplane import charge_to, wall_shares
from elastictrainer.steps.objective import classification_loss


def profile(tf, model, batch, **options):
    return profile_model(model, classification_loss(), batch, warmup=2, steps=4, **options)


def test_profile_of_a_small_network(tf):
    model = small_network(tf)
    batch = next(ArrayData(tf).train(0))
    before = [v.numpy() for v in model.variables]
    timings = profile(tf, model, batch, validate=3, metadata={"model": "small"})
    assert timings.names == tuple(tensor_names(model))
    assert timings.metadata["coverage"] > 0.95 and timings.metadata["model"] == "small"
    assert timings.full_ms == pytest.approx(timings.metadata["step_ms"])
    assert np.all(timings.t_dw > 0) and not timings.estimated.any() and timings.connected.all()
    assert 0 < timings.rho_min < 1 and 0 < timings.forward_share < 1
    # From the output inwards: the head, then the inner convolution, then the stem.
    depth = {name.split("/")[0]: k for k, name in enumerate(timings.names[i] for i in timings.order)}
    assert depth["head"] < depth["inner_bn"] < depth["inner"] < depth["stem_bn"] < depth["stem"]
    assert len(timings.validation) == 3 and np.all(np.isfinite(timings.validation_errors))
    for variable, value in zip(model.variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_any_keras_model_token_classifier_with_a_gru_and_an_unused_tensor(tf):
    class Classifier(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = tf.keras.layers.Embedding(50, 8)
            self.gru = tf.keras.layers.GRU(8)
            self.head = tf.keras.layers.Dense(3)
            self.unused = self.add_weight(name="unused", shape=(4,))

        def call(self, tokens, training=False):
            return self.head(self.gru(self.embedding(tokens), training=training))

    model = Classifier()
    tokens = tf.random.uniform((4, 10), 0, 50, tf.int32)
    model(tokens)
    timings = profile(tf, model, (tokens, tf.constant([0, 1, 2, 0])))
    unused = [name for name, connected in zip(timings.names, timings.connected) if not connected]
    assert len(unused) == 1 and "unused" in unused[0]
    assert np.all(timings.t_dw[timings.connected] > 0)
    assert np.isinf(timings.alone_ms[~timings.connected]).all() and timings.rho_min < 1
    assert all(
        mask[timings.connected].any() and not mask[~timings.connected].any()
        for mask in random_masks(timings, 5, 0)
    )


def test_a_trace_without_ops_is_estimated_and_marked(tf, monkeypatch):
    from elastictrainer.profiler import profile as module
    from elastictrainer.profiler.xplane import Trace

    monkeypatch.setattr(
        module,
        "capture",
        lambda *a: (Trace(np.array([[0.0, 8e6], [8e6, 16e6]]), (), []), np.array([8.0, 8.0])),
    )
    timings = profile(tf, small_network(tf), next(ArrayData(tf).train(0)))
    assert timings.estimated.all() and timings.metadata["coverage"] == 0
    assert timings.full_ms == pytest.approx(8.0) and np.all(timings.t_dw > 0)


def test_a_tensor_without_time_gets_an_estimate_and_is_named(tf, monkeypatch):
    from test_attribution import image_batch

    from elastictrainer.experiment import assembly
    from elastictrainer.profiler import charging as module

    model = small_network(tf)
    kernel = tensor_names(model).index("inner/kernel")
    names, hidden = [], set()

    def note(*graph):
        found = attribute(*graph)
        names.extend(found[0])
        hidden.update(n for n, c in zip(*found) if c.kind != "forward" and c.members == 1 << kernel)
        return found

    def hide_one_kernel(trace):
        shares, outside = wall_shares(trace)
        for column, k in enumerate(charge_to(trace.ops, names)):
            if k >= 0 and names[k] in hidden:
                shares[:, column] = 0
        return shares, outside

    monkeypatch.setattr(module, "attribute", note)
    monkeypatch.setattr(module, "wall_shares", hide_one_kernel)
    said = []
    timings = assembly.make_profile(
        model,
        image_batch(tf),
        __import__("elastictrainer").optimizers.make("sgd"),
        {},
        said.append,
        warmup=1,
        steps=2,
    )
    assert [n for n, e in zip(timings.names, timings.estimated) if e] == ["inner/kernel"]
    assert timings.t_dw[kernel] > 0 and "inner/kernel" in said[0] and "estimated" in said[0]


def test_model_with_nothing_to_train_is_refused(tf):
    model = small_network(tf)
    model.trainable = False
    with pytest.raises(UsageError, match="no trainable tensor"):
        profile(tf, model, next(ArrayData(tf).train(0)))


def test_flops_of_a_convolution_and_a_dense_layer_by_hand(tf):
    from test_attribution import image_batch, traced

    from elastictrainer.profiler.flops import flops_of

    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Flatten()(layers.Conv2D(5, 3, padding="same", use_bias=False)(inputs))
    step = traced(tf, tf.keras.Model(inputs, layers.Dense(3, use_bias=False)(x)), image_batch(tf))
    by_type = {}
    operations = step.graph.get_operations()
    for op, count in zip(operations, flops_of(operations)):
        by_type.setdefault(op.type, []).append(count)
    assert by_type["Conv2D"] == [2 * 2 * 8 * 8 * 5 * 3 * 3 * 3]  # 2 images, 2 FLOPs per multiply-add
    assert by_type["MatMul"] == [2 * 2 * 320 * 3] * 3  # forward, dW, dy


def test_a_plain_module_is_profiled(tf):
    class Linear(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.random.normal((192, 3)), name="kernel")
            self.bias = tf.Variable(tf.zeros(3), name="bias")

        def __call__(self, x):
            return tf.reshape(x, (-1, 192)) @ self.kernel + self.bias

    timings = profile_model(Linear(), classification_loss(), next(ArrayData(tf).train(0)), warmup=1, steps=2)
    assert set(timings.names) == {"kernel", "bias"} and timings.full_ms > 0


def test_threads_are_those_that_tensorflow_was_told_to_use(tf, monkeypatch):
    from elastictrainer.runs import environment

    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert environment.threads()["intra_op"] == 3
    for nonsense in ("many", ""):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", nonsense)
        assert environment.threads()["intra_op"] == 0
