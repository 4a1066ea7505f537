"""Recipes measured and drawn, as many at a time as there are cores, after one import."""

from pathlib import Path

from stemrepro.common.workers import Job, run_jobs
from stemrepro.report.analyse import analyse


def analyse_all(names: list[str], scale: str, scores: Path, results: Path, formats: tuple[str, ...] = ()) -> int:
    """Analyse recipes and return how many claims they have.

    Raises:
        UserError: see `analyse`.
    """
    if len(names) == 1:  # in this process, which has imported all that it takes
        return len(analyse(names[0], scale, scores, results, formats))
    given = {"scale": scale, "scores": scores, "results": results, "formats": formats}
    jobs = [Job(f"{__name__}:_analyse", name, name, 1, given) for name in names]
    return sum(len(rows) for _, rows in run_jobs(jobs, len(jobs), 1, [__name__], "analyses"))


def _analyse(name: str, report: object, **given: object) -> list[dict]:
    return analyse(name, **given)
