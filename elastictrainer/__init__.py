"""Fine-tune a pre-trained network within a chosen time by training only the tensors worth their time."""

import importlib
import os
import platform
import sys

__version__ = "0.1.0"

_HOME = {
    "profile_model": "elastictrainer.profiler.profile_model",
    "Profile": "elastictrainer.profiler.profile",
    "select": "elastictrainer.selection.selector",
    "Selection": "elastictrainer.selection.selector",
    "ImportanceEvaluator": "elastictrainer.selection.importance",
    "Objective": "elastictrainer.steps.objective",
    "Trainer": "elastictrainer.training.trainer",
    "Deadline": "elastictrainer.training.clock",
    "RateSchedule": "elastictrainer.steps.rates",
    "CacheSettings": "elastictrainer.cache.settings",
    "BestWeights": "elastictrainer.training.evaluation",
    "Checkpointing": "elastictrainer.training.checkpoints",
    "EnergyMetering": "elastictrainer.training.energy",
    "find_sensor": "elastictrainer.training.energy",
    "Evaluation": "elastictrainer.training.evaluation",
    "RunRecord": "elastictrainer.training.record",
    "RunFolder": "elastictrainer.runs.run_folder",
    "Scheme": "elastictrainer.selection.schemes",
    "Elastic": "elastictrainer.selection.schemes",
    "UsageError": "elastictrainer.errors",
    "RunError": "elastictrainer.errors",
}

__all__ = sorted(_HOME)

# TensorFlow leaves oneDNN's kernels out on x86 processors without AVX512-VNNI. With them a full step took
# 0.62 to 0.79 of its time there (four networks, docs/results.md). It looks at this when it is imported.
if platform.machine().lower() in ("x86_64", "amd64") and "tensorflow" not in sys.modules:
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def __getattr__(name: str):
    # Loaded on first use: reading a profile or selecting from one needs no TensorFlow.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
