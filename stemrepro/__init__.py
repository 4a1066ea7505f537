"""STEM reproduced: claims, runs, scores and verdicts."""
