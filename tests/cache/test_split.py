import numpy as np
import pytest

from networks import (
    BATCH,
    assign,
    attention,
    augmented,
    everything,
    inputs_of,
    nested_and_subclassed,
    recurrent,
    residual,
    traced_and_cut,
    trained_step,
    two_inputs_and_outputs,
    updating_statistics,
    values,
)


def assert_the_same_training(tf, step, x, y, spec, alike=0.0, steps=3):
    """Steps in two parts give what whole steps give: bit for bit, or up to `alike`; returns the split."""
    traced, cut = traced_and_cut(step, spec)
    split = traced.split(cut)
    variables = everything(step)
    before = values(variables)
    losses = [float(step(x, y)) for _ in range(steps)]
    whole = values(variables)
    assert any(not np.array_equal(a, b) for a, b in zip(whole, before))
    assign(variables, before)
    flat_x, flat_y = tf.nest.flatten(x), tf.nest.flatten(y)
    # With the shapes of the whole step: TensorFlow computes with those it knows in another order.
    stored = [tf.TensorSpec(t.shape, t.dtype) for t in cut.tensors]
    prefix = tf.function(split.prefix, tf.nest.flatten(spec[0]))
    suffix = tf.function(split.suffix, [*stored, *tf.nest.flatten(spec[1])])
    apart = [float(suffix(*prefix(*flat_x), *flat_y)) for _ in range(steps)]
    np.testing.assert_allclose(apart, losses, rtol=alike, atol=0.0)
    for variable, one, other in zip(variables, whole, values(variables)):
        np.testing.assert_allclose(one, other, rtol=alike, atol=alike, err_msg=variable.name)
    assign(variables, before)
    return split


def spec_of(tf, data, batch):
    return tf.nest.map_structure(lambda t: tf.TensorSpec((batch, *t.shape[1:]), t.dtype), data)


CASES = [
    (residual, ["head"]),
    (residual, ["c4", "head"]),
    (residual, ["c2"]),
    (augmented, ["c2"]),
    (updating_statistics, ["head"]),
    (recurrent, ["head"]),
    (recurrent, ["inner", "head"]),
    (attention, ["attention_b", "head"]),
    (nested_and_subclassed, ["inner"]),
    # Once more the kinds of cuts above.
    pytest.param(residual, ["c3"], marks=pytest.mark.long),
    pytest.param(augmented, ["head"], marks=pytest.mark.long),
    pytest.param(recurrent, ["outer"], marks=pytest.mark.long),
    pytest.param(nested_and_subclassed, ["head"], marks=pytest.mark.long),
]


def name_of_case(part):
    """Return the network's name, or those of its layers that train."""
    return "-".join(part) if isinstance(part, list) else part.__name__


@pytest.mark.parametrize("network, layers", CASES, ids=name_of_case)
def test_a_step_in_two_parts_is_the_step(tf, network, layers):
    batch = BATCH if layers == ["head"] else None  # static or any
    tf.keras.utils.set_random_seed(1)
    model = network(tf)
    x, y = inputs_of(tf, model), tf.constant([0, 1, 2, 0], tf.int64)
    step = trained_step(tf, model, layers)
    # TensorFlow fuses ops of attention where they are together, and may round their results otherwise.
    alike = 1e-6 if network is attention else 0.0
    assert_the_same_training(tf, step, x, y, (spec_of(tf, x, batch), spec_of(tf, y, batch)), alike)


def test_a_step_of_several_inputs_and_outputs_splits(tf):
    tf.keras.utils.set_random_seed(1)
    model = two_inputs_and_outputs(tf)
    x, y = inputs_of(tf, model), [tf.constant([0, 1, 2, 0], tf.int64), tf.constant([0, 1, 1, 0], tf.int64)]
    sparse = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss(labels, outputs):
        return sparse(labels[0], outputs[0]) + sparse(labels[1], outputs[1])

    step = trained_step(tf, model, ["p"], loss=loss)
    split = assert_the_same_training(tf, step, x, y, (spec_of(tf, x, BATCH), spec_of(tf, y, BATCH)))
    assert len(tf.function(split.prefix)(*x)) == len(split.cut.tensors) >= 1


def in_parts(tf, model, layers):
    """The traced step that trains these layers, and its cut."""
    spec = spec_of(tf, inputs_of(tf, model), BATCH), tf.TensorSpec((BATCH,), tf.int64)
    return traced_and_cut(trained_step(tf, model, layers), spec)


def test_augmentation_and_an_inner_dropout_are_done_once_and_the_outer_one_is_not(tf):
    traced, cut = in_parts(tf, augmented(tf), ["head"])
    assert len({v.ref() for v in traced.split(cut).random_states}) >= 2
    again = {traced.ops.operations[k].name for k in traced.needed() | cut.recomputed}
    assert any("outer_dropout" in name for name in again)
    assert not any("inner_dropout" in name or "flip" in name for name in again)


def test_split_names_the_variables_that_the_prefix_reads(tf):
    from elastictrainer.steps.keras_compat.variables import name_of, tf_variable

    model = residual(tf)
    traced, cut = in_parts(tf, model, ["c4"])
    fixed = {id(v) for v in traced.split(cut).fixed}
    read = {name_of(v).split("/")[-2] for v in model.trainable_variables if id(tf_variable(v)) in fixed}
    assert read == {"c1", "c2", "c3"}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_steps_of_random_networks_split(tf, seed):
    """Layers drawn at random, a random part of which trains; ops that are fused round otherwise."""
    tf.keras.utils.set_random_seed(seed)
    random = np.random.default_rng(seed)
    layers = tf.keras.layers
    inputs = tf.keras.Input((6, 6, 3))
    made = [layers.Conv2D(4, 3, padding="same", name="l0")(inputs)]
    for k in range(1, 8):
        x = made[random.integers(max(0, len(made) - 3), len(made))]
        kind = random.integers(6)
        if kind == 0:
            x = layers.Add()([x, made[random.integers(len(made))]])
        elif kind == 1:
            x = layers.BatchNormalization(name=f"l{k}")(x, training=False)
        elif kind == 2:
            x = layers.Dropout(0.3)(x)
        elif kind == 3:
            x = layers.DepthwiseConv2D(3, padding="same", name=f"l{k}")(x)
        else:
            x = layers.Conv2D(4, 3, padding="same", activation="relu", name=f"l{k}")(x)
        made.append(x)
    model = tf.keras.Model(inputs, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D()(made[-1])))
    from builders import tensor_names

    owners = sorted({name.split("/")[-2] for name in tensor_names(model)})
    trained = [name for name in owners if random.random() < 0.3] + ["head"]
    x, y = inputs_of(tf, model, seed), tf.constant([0, 1, 2, 0], tf.int64)
    step = trained_step(tf, model, trained)
    assert_the_same_training(tf, step, x, y, (spec_of(tf, x, BATCH), spec_of(tf, y, BATCH)), alike=1e-5)
