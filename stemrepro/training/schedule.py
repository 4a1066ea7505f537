"""The learning-rate schedules (cosine, WSD), the steps of evaluations, and where longer runs branch off."""

import math

from stemrepro.config.training import RunTraining


def schedule_factor(step: int, training: RunTraining) -> float:
    """Give the share of the peak learning rate at a step, counted from 0: a linear warm-up, then the schedule.

    "cosine" decays from the end of the warm-up to `final_rate`. "wsd" (warm-up, stable phase, decay) stays at the peak,
    then decays linearly from `branch_step` on (Haegele et al., arXiv 2405.18392). So budgets differ in their decay
    alone.
    """
    steps, final = training.steps, training.final_rate
    if step < training.warmup_steps:
        return (step + 1) / training.warmup_steps
    decay_start = training.warmup_steps
    if training.schedule == "wsd":
        decay_start = max(decay_start, branch_step(training))
    done = min(1.0, max(0.0, (step - decay_start) / max(1, steps - decay_start)))
    left = 0.5 * (1 + math.cos(math.pi * done)) if training.schedule == "cosine" else 1 - done
    return final + (1 - final) * left


def branch_step(training: RunTraining) -> int:
    """Count the steps of warm-up and stable phase, which a run shares with every longer one."""
    return training.steps - round(training.decay * training.steps)


def eval_steps(training: RunTraining) -> set[int]:
    """List the steps after which a run is evaluated.

    They are evenly spaced under "cosine". Under "wsd" there are `evals` per doubling, the same for every budget, and
    the last step.
    """
    steps, evals = training.steps, training.evals
    if training.schedule == "cosine":
        return {round(steps * (i + 1) / evals) for i in range(evals)}
    return {round(2 ** (i / evals)) for i in range(5 * evals, int(evals * math.log2(steps)) + 1)} | {steps}
