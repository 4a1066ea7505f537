"""How far a sweep is, over all of its workers."""

import time
from collections.abc import Iterable, Iterator

import optuna
from optuna.trial import TrialState

from stemrepro.common.progress import Course, Piece
from stemrepro.sweeps.study import ENDED

SHARES = 100
"""Parts in which a trial's progress is told."""


def called(trial: optuna.trial.FrozenTrial) -> str:
    """Return a trial in a line: its arm, and what else is set."""
    settings = trial.user_attrs.get("settings", {})
    others = ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items() if k != "arm"
    )
    return f"{settings.get('arm', f'trial {trial.number}')}{f' {others}' if others else ''}"


class Going:
    """How far a sweep is: from its studies what all workers have begun and ended since, from this worker the share of its own trial."""

    def __init__(self, name: str, studies: Iterable[optuna.Study], done: int, total: int, workers: int) -> None:
        self.name, self.studies, self.done, self.total, self.workers = name, list(studies), done, total, workers
        states = {key: trial.state for key, trial in self._trials()}
        self.before = {key for key, state in states.items() if state != TrialState.WAITING}
        self.running = {key for key, state in states.items() if state == TrialState.RUNNING}
        self.own: tuple[tuple[str, int], float] | None = None

    def _trials(self) -> Iterator[tuple[tuple[str, int], optuna.trial.FrozenTrial]]:
        for study in self.studies:
            for trial in study.get_trials(deepcopy=False):
                yield (study.study_name, trial.number), trial

    def report(self, trial: optuna.Trial, share: float) -> None:
        """So much of this worker's trial is trained."""
        self.own = (trial.study.study_name, trial.number), share

    def course(self) -> Course:
        """As it is now."""
        trials, own, now = list(self._trials()), self.own, 0.0
        done = self.done + sum(key in self.running and trial.state in ENDED for key, trial in trials)
        most = max(0, self.total - done)
        new = [pair for pair in trials if pair[0] not in self.before]
        new = [pair for pair in new if pair[1].state in (*ENDED, TrialState.RUNNING)][:most]
        mine = own[0] if own else None  # of others' trials nobody tells how far they are
        pieces = [Piece(called(trial), SHARES if key == mine else 1) for key, trial in new]
        pieces += [Piece("")] * (most - len(new))
        course = Course(f"sweep {self.name}", pieces, self.workers, done=done, clock=lambda: now)
        for number, (key, trial) in enumerate(new):
            now = trial.datetime_start.timestamp()
            course.begin(number)
            if trial.state in ENDED:
                now = trial.datetime_complete.timestamp()
                course.end(number)
            elif key == mine:
                now = time.time()
                course.report(number, round(SHARES * own[1]))
        return course
