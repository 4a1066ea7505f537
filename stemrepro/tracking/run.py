"""What a run folder says of its run, as far as MLflow shows it."""

import json
from pathlib import Path

from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.training.run_folder import model_of, named_here

UNKNOWN = "unknown"
"""The commit of what doesn't say it."""


def steps_of(config: dict) -> int:
    """Optimiser steps of a run of these settings."""
    training = config["training"]
    return training["tokens"] // (training["batch"] * training["sequence"])


def cost_of(config: dict) -> dict:
    """FLOPs and parameters of a run of these settings, as summary.json of its losses will have them; none where counting would execute
    a file that no arm of the recipes here names.
    """
    model = model_of(config)
    if not named_here(model.ffn):
        return {}
    flops = flops_per_token(model, config["training"]["sequence"])
    return {"forward_flops_per_token": flops, "parameters": parameter_counts(model)}


def ended(folder: Path) -> tuple[str, int] | None:
    """Return how a run ended in MLflow's words, and when (ms); None for one that hasn't. A run that diverged failed."""
    for name, status in (("weights.safetensors", "FINISHED"), ("diverged.json", "FAILED")):
        if (folder / name).exists():
            return status, int((folder / name).stat().st_mtime * 1000)
    return None


def made_at(folder: Path) -> str:
    """Return the commit that a run was made at, or UNKNOWN."""
    try:
        return str(json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["commit"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return UNKNOWN
