"""Optuna's searches for an arm's settings."""
