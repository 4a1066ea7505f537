"""The functions that worker processes call; imports inside, so that the parent process needs no torch."""

from collections.abc import Callable


def train_job(job: tuple, report: Callable) -> None:
    """job = (run, replace): trains the run."""
    from stemrepro.training.train import train

    run, replace = job
    train(run, report, replace)


def score_job(run: object, report: Callable) -> dict:
    """Scores the run on the validation split."""
    from stemrepro.evaluation.losses import score

    return score(run, report)
