"""Code that a run's settings name is run for the user who wrote them; for any other, only if asked."""

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.run_folder import RunFolder


def load_trusted_settings(run: RunFolder, trust: bool) -> TrainSettings:
    """Load the settings in a run folder.

    Args:
        run: its folder.
        trust: they may name code, whoever wrote them.

    Raises:
        UsageError: they cannot be read, or name code and are not this user's.
    """
    settings = load(TrainSettings, run.config_path)
    named = [
        f"{name}: {getattr(settings, name)}" for name in ("scheme", "model") if ":" in getattr(settings, name)
    ]
    named += [f"callback: {settings.callback}"] if settings.callback else []
    named += ["trust_model: true"] if settings.trust_model else []
    if named and not trust and not run.is_own():
        raise UsageError(
            f"{run.config_path} names code to run ({', '.join(named)}), and was not written by you on this "
            "machine, or was changed since. If you trust where it is from: --trust-run."
        )
    return settings
