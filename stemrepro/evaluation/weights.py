"""Reads the trained model of a run folder; nothing in its files is executed."""

from pathlib import Path

import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

from stemrepro.errors import UserError
from stemrepro.files import digest
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder
from stemrepro.runs import Run


def device_of(accelerator: str) -> torch.device:
    """Where a scale's models are scored: where they are trained.

    Raises:
        UserError: the scale wants a GPU and torch sees none.
    """
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError(
            "the scale's accelerator is a GPU and torch sees none; score where there is one, or set 'accelerator: cpu'"
        )
    return torch.device("cuda" if accelerator == "gpu" else "cpu")


def load_model(folder: Path, config: ModelConfig, settings: str, device: torch.device) -> Decoder:
    """The trained model of a run folder.

    Args:
        settings: hash of the run's settings, which the weights must carry.

    Raises:
        UserError: no finished run there, or weights of another shape or of other settings.
    """
    path = folder / "weights.safetensors"
    if not path.exists():
        raise UserError(f"{path} is missing; train that run first ('dvc repro' or 'stemrepro train')")
    model = Decoder(config)
    try:
        with safe_open(path, "pt") as opened:
            made_with = (opened.metadata() or {}).get("config")
        model.load_state_dict(load_file(path))
    except Exception as error:
        raise UserError(f"{path} does not hold the weights of a model with {config}: {error}") from error
    if made_with != settings:
        raise UserError(f"{path} was made with other settings ({made_with}, not {settings}); train that run again")
    return model.eval().to(device)


def load_run(run: Run) -> Decoder:
    """The trained model of a run, where its scale scores.

    Raises:
        UserError: it isn't finished, or was made with other settings than those asked for.
    """
    if changes := run.other_settings() if run.folder.exists() else "":
        raise UserError(f"{run.folder} holds a run with other settings ({changes}); train it again before scoring it")
    return load_model(run.folder, run.model, digest(run.config), device_of(run.training.accelerator))


def read_config(folder: Path) -> dict:
    """The settings of a run folder, with those that its model is made of.

    Raises:
        UserError: there are none, or they are damaged.
    """
    path = folder / "config.yaml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        dict(config["model"]), int(config["training"]["sequence"]), str(config["data"]["mix"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path} is missing or damaged ({' '.join(str(error).split())}); train that run again"
        ) from error
    return config


def load_folder(folder: Path) -> tuple[Decoder, int]:
    """The trained model of a run folder by what its config.yaml says, and the length of the sequences that it was trained on.

    Raises:
        UserError: there is none, or it is damaged.
    """
    config = read_config(folder)
    shape = {key: tuple(value) if isinstance(value, list) else value for key, value in config["model"].items()}
    try:
        model = ModelConfig(**shape)
    except TypeError as error:
        raise UserError(f"{folder / 'config.yaml'} is damaged ({error}); train that run again") from error
    return load_model(folder, model, digest(config), torch.device("cpu")), int(config["training"]["sequence"])
