"""What a run folder says of its run, as far as MLflow shows it."""

import json
from pathlib import Path

import yaml

from stemrepro.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts

UNKNOWN = "unknown"
"""The commit of what doesn't say it."""


def steps_of(config: dict) -> int:
    """Optimiser steps of a run of these settings."""
    training = config["training"]
    return int(training["tokens"]) // (int(training["batch"]) * int(training["sequence"]))


def read_config(folder: Path) -> dict:
    """The settings in a run folder; UserError when they can't be read."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        names = {"arm": str(config["arm"]), "point": str(config["point"]), "data": dict(config["data"])}
        steps_of(config)
        return config | names | {"seed": int(config["seed"])}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}/config.yaml is damaged ({reason}); train that run again") from error


def cost_of(config: dict) -> dict:
    """FLOPs and parameters of a run of these settings, as summary.json of its losses will have them; UserError where they make no model."""
    try:
        shape = {key: tuple(value) if isinstance(value, list) else value for key, value in config["model"].items()}
        model = ModelConfig(**shape)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"settings of {config['arm']} seed {config['seed']} make no model ({error}); train that run again"
        ) from error
    flops = flops_per_token(model, int(config["training"]["sequence"]))
    return {"forward_flops_per_token": flops, "parameters": parameter_counts(model)}


def ended(folder: Path) -> tuple[str, int] | None:
    """How a run ended in MLflow's words, and when (ms); None for one that hasn't. A run that diverged failed."""
    for name, status in (("weights.safetensors", "FINISHED"), ("diverged.json", "FAILED")):
        if (folder / name).exists():
            return status, int((folder / name).stat().st_mtime * 1000)
    return None


def made_at(folder: Path) -> str:
    """The commit that a run was made at, or UNKNOWN."""
    try:
        return str(json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        return UNKNOWN
