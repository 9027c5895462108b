"""The metrics of importance that the study compares, of each layer of a network as it is.

update_N: -<gradient at w + dw, dw> on N minibatches (paper Eq. 2 and 6). update_path: along eight full
steps, each from where the one before led. gradient, weight: sums of absolute values. fisher: sum of squared
gradients. rgn: norm of the gradient over that of the weights (Auto-RGN). snr: squared mean gradient over
its variance between minibatches. size: numbers in the tensors. depth: place from the input. random: drawn.
"""

import numpy as np

COUNTS = (1, 5, 16, 48)  # minibatches of `update_N`
PATH = 8  # steps of `update_path`
_TINY = 1e-30  # for a layer without any gradient


def by_layer(study, minibatches):
    """For each metric the score of every layer but the head, by name.

    Args:
        study: a `truth.Study`; it is trained on by eight steps.
        minibatches: 48.
    """
    layers = {name: tensors for name, tensors in study.layers.items() if name != study.head}
    updates = _updates(study, minibatches)
    mean, mean_square, mean_size = _gradients(study, minibatches)
    weights = [v.numpy().astype(np.float64) for v in study.variables]

    def summed(values):
        return {name: sum(float(values[k]) for k in tensors) for name, tensors in layers.items()}

    square = summed([g.sum() for g in mean_square])
    norm = summed([(w**2).sum() for w in weights])
    signal = summed([(g**2).sum() for g in mean])
    random = np.random.default_rng(0).permutation(len(layers))
    return {
        **{f"update_{n}": summed(updates[:n].sum(axis=0)) for n in COUNTS},
        "update_path": summed(_along_a_path(study, minibatches[:PATH])),
        "gradient": summed(mean_size),
        "weight": summed([abs(w).sum() for w in weights]),
        "fisher": square,
        "rgn": {name: np.sqrt(signal[name] / norm[name]) for name in layers},
        "snr": {name: signal[name] / max(square[name] - signal[name], _TINY) for name in layers},
        "size": summed([w.size for w in weights]),
        "depth": {name: float(k) for k, name in enumerate(layers)},
        "random": {name: float(k) for name, k in zip(layers, random)},
    }


def _evaluator(study):
    from elastictrainer.selection.importance import ImportanceEvaluator

    return ImportanceEvaluator(study.objective, study.optimizer)


def _updates(study, minibatches):
    """(n, N): the update metric of each tensor on each minibatch."""
    evaluator = _evaluator(study)
    return np.array([evaluator([minibatch]) for minibatch in minibatches])


def _along_a_path(study, minibatches):
    """(N,): the update metric on each minibatch, after full steps on those before."""
    evaluator, total = _evaluator(study), np.zeros(len(study.variables))
    for minibatch in minibatches:
        total += evaluator([minibatch])
        study.full(*minibatch)
    return total


def _gradients(study, minibatches):
    """Of each tensor's gradients: the mean, the mean of their squares, the mean sum of absolute values."""
    import tensorflow as tf

    @tf.function
    def gradients(x, y):
        return [tf.convert_to_tensor(g) for g in study.objective.gradients(x, y, study.variables)[2]]

    mean = [np.zeros(v.shape) for v in study.variables]
    square = [np.zeros(v.shape) for v in study.variables]
    size = np.zeros(len(mean))
    for minibatch in minibatches:
        for k, gradient in enumerate(gradients(*minibatch)):
            value = gradient.numpy().astype(np.float64)
            mean[k] += value / len(minibatches)
            square[k] += value**2 / len(minibatches)
            size[k] += abs(value).sum() / len(minibatches)
    return mean, square, size
