import numpy as np
import pytest

from elastictrainer.steps.graph_optimisation import optimised


@pytest.mark.parametrize("times", [0, 1])
def test_graphs_of_a_block_are_optimised_less_and_the_others_are_as_before(tf, times):
    from tensorflow.python.eager import context

    before = context.context().function_call_options
    with optimised(times):
        within = tf.compat.v1.ConfigProto.FromString(
            context.context().function_call_options.config_proto_serialized
        )
        rewriting = within.graph_options.rewrite_options
        assert rewriting.disable_meta_optimizer == (times == 0)
        assert rewriting.meta_optimizer_iterations == times
        np.testing.assert_allclose(tf.function(lambda x: x + 1.0)(tf.constant(1.0)), 2.0)
    assert context.context().function_call_options is before
