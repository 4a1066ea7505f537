"""Training of many runs, each in a process."""

from stemrepro.common.workers import Job, run_jobs
from stemrepro.model.cost import flops_per_token
from stemrepro.training.run import Run


def cost(run: Run) -> float:
    """Return the forward FLOPs of a whole run."""
    return run.training.tokens * flops_per_token(run.model, run.training.sequence)


def train_runs(runs: list[Run], workers: int, replace: bool, done: int = 0) -> None:
    """Train each run in a process; raise as stemrepro.training.train does.

    Args:
        replace: remove runs that were made with other settings.
        done: number of runs that had ended before.
    """
    if any(run.training.schedule == "wsd" for run in runs):
        runs = sorted(runs, key=lambda run: run.training.tokens)  # longer ones resume from shorter ones
    threads = runs[0].training.threads if runs else 1
    jobs = [
        Job("stemrepro.training.train:train", run, str(run), run.training.steps, {"replace": replace}, cost(run), True)
        for run in runs
    ]
    first = [job for job in jobs if not job.run.init_from]
    later = [job for job in jobs if job.run.init_from]  # these resume from others
    preload, shown = "stemrepro.training.train", "training"
    for _ in run_jobs(first, workers, threads, preload, shown, done, later):
        pass
    for _ in run_jobs(later, workers, threads, preload, shown, done + len(first)):
        pass
