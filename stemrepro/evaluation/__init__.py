"""From a trained run to its scores."""
