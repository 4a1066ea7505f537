"""When a run's rate rises, stays and falls, where it is validated, and where longer runs part from it."""

import math

from stemrepro.config.training import RunTraining


def rate_factor(step: int, training: RunTraining) -> float:
    """Return share of the peak rate at a step, counted from 0: linear while it rises, then by the schedule down to `final_rate`.

    "cosine" falls from the end of the rise on. "wsd" stays, then falls by a straight line from `branch_step` on (Haegele et al.,
    arXiv 2405.18392), so that budgets differ in their last part alone.
    """
    steps, final = training.steps, training.final_rate
    if step < training.warmup_steps:
        return (step + 1) / training.warmup_steps
    first = (
        training.warmup_steps if training.schedule == "cosine" else max(training.warmup_steps, branch_step(training))
    )
    done = min(1.0, max(0.0, (step - first) / max(1, steps - first)))
    left = 0.5 * (1 + math.cos(math.pi * done)) if training.schedule == "cosine" else 1 - done
    return final + (1 - final) * left


def branch_step(training: RunTraining) -> int:
    """Return steps that a run on the trunk shares with every longer one: all before its decay."""
    return training.steps - round(training.decay * training.steps)


def eval_steps(training: RunTraining) -> set[int]:
    """Return steps after which a run is validated: evenly spaced; on the trunk `marks` to a doubling, the same for every budget, and the last."""
    steps, evals = training.steps, training.evals
    if training.schedule == "cosine":
        return {round(steps * (i + 1) / evals) for i in range(evals)}
    return {round(2 ** (i / evals)) for i in range(5 * evals, int(evals * math.log2(steps)) + 1)} | {steps}
