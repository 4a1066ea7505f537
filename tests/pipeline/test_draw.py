"""All analyses of a scale, drawn in processes that share an import."""

from pathlib import Path

from stemrepro.pipeline import draw


def test_rows_come_in_the_order_of_the_recipes(monkeypatch):
    """Workers end in any order."""

    def backwards(jobs, *_):
        return reversed([(number, [{"claim": job.run}]) for number, job in enumerate(jobs)])

    monkeypatch.setattr(draw, "run_jobs", backwards)
    rows = draw.analyse_all(["rivals", "retrofit", "needle"], "tiny", Path("scores"), Path("results"))
    assert [row["claim"] for row in rows] == ["rivals", "retrofit", "needle"]
