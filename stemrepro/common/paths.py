"""Where things lie below the working directory."""

from pathlib import Path

RECIPES, ANALYSES = Path("recipes"), Path("analysis")
DATA, RUNS, SCORES, RESULTS = Path("data"), Path("runs"), Path("scores"), Path("results")
