"""Where things lie below the working directory."""

from pathlib import Path

RECIPES, ANALYSES = Path("recipes"), Path("analysis")
NO_RECIPES = ("models", "model_cards", "arms", "mixes", "paper", "questions", "variants", "shapes")
"""Files of recipes/ that are no recipes."""
DATA, RUNS, SCORES, RESULTS = Path("data"), Path("runs"), Path("scores"), Path("results")
