"""When a run's rate rises, stays and falls, where it is validated, and where longer runs part from it."""

import math

from stemrepro.config.training import RunTraining


def rate_factor(step: int, training: RunTraining) -> float:
    """Share of the peak rate at a step, counted from 0: linear while it rises, then by the schedule down to `final_rate`.

    "cosine" falls from the end of the rise on. "trunk" stays, then falls by a straight line from `branch_step` on (Haegele et al.,
    arXiv 2405.18392), so that budgets differ in their last part alone.
    """
    steps, final = training.steps, training.final_rate
    if step < training.rising:
        return (step + 1) / training.rising
    first = training.rising if training.schedule == "cosine" else max(training.rising, branch_step(training))
    done = min(1.0, max(0.0, (step - first) / max(1, steps - first)))
    left = 0.5 * (1 + math.cos(math.pi * done)) if training.schedule == "cosine" else 1 - done
    return final + (1 - final) * left


def branch_step(training: RunTraining) -> int:
    """Steps that a run on the trunk shares with every longer one: all before its cool-down."""
    return training.steps - round(training.cooldown * training.steps)


def mark_steps(training: RunTraining) -> set[int]:
    """Steps after which a run is validated: evenly spaced; on the trunk `marks` to a doubling, the same for every budget, and the last."""
    steps, marks = training.steps, training.marks
    if training.schedule == "cosine":
        return {round(steps * (i + 1) / marks) for i in range(marks)}
    return {round(2 ** (i / marks)) for i in range(5 * marks, int(marks * math.log2(steps)) + 1)} | {steps}
