"""The functions that worker processes call; imports inside, so that the parent process needs no torch."""

from collections.abc import Callable
from pathlib import Path


def train_job(run: object, report: Callable, replace: bool) -> None:
    """Trains the run; with `replace` whatever else lies in its folder is removed."""
    from stemrepro.training.train import train

    train(run, report, replace)


def loss_job(run: object, report: Callable, context: bool) -> dict:
    """Scores the run on the validation split."""
    from stemrepro.evaluation.losses import score

    return score(run, report, context)


def steps_job(run: object, report: Callable) -> dict:
    """Reads how the run's training went."""
    from stemrepro.evaluation.losses import steps

    return steps(run)


def benchmark_job(run: object, report: Callable, tokenizer: Path, items: Path) -> dict:
    """Scores the run on the scale's benchmarks."""
    from stemrepro.evaluation.benchmarks import score

    return score(run, tokenizer, items, report)


def geometry_job(run: object, report: Callable) -> dict:
    """Compares the run's FFN vectors."""
    from stemrepro.evaluation.geometry import score

    return score(run, report)
