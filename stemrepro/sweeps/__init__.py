"""Searches for an arm's settings by Optuna."""
