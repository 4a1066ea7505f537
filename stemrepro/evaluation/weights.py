"""Reader of the trained model of a run folder; nothing in its files is executed.

A network in a user's own file is imported only where an arm of the recipes here names it, or where the user trusts it.
"""

import math
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import parameter_counts
from stemrepro.model.names import OWN_FILE
from stemrepro.model.transformer import Decoder
from stemrepro.training.run import Run
from stemrepro.training.run_folder import check_trusted, read_config


def device_of(accelerator: str) -> torch.device:
    """Return where a scale's models are scored: where they are trained.

    UserError: the scale needs a GPU and torch sees none.
    """
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise UserError(
            "the scale's accelerator is a GPU and torch sees none; score where there is one, or set 'accelerator: cpu'"
        )
    return torch.device("cuda" if accelerator == "gpu" else "cpu")


def _least(config: ModelConfig) -> int:
    if OWN_FILE.fullmatch(config.ffn):
        config = replace(config, ffn="dense", ffn_width=0, replaced_layers=(), table_shared=False)
    return parameter_counts(config)["total"]


def load_model(folder: Path, config: ModelConfig, settings: str, device: torch.device) -> Decoder:
    """Return the trained model of a run folder.

    Args:
        settings: hash of the run's settings, which the weights must carry.

    UserError: there is no finished run, or its weights have another shape or other settings, or aren't finite.
    """
    path = folder / "weights.safetensors"
    if not path.exists():
        raise UserError(f"{path} is missing; train it first ('make reproduce' with its SCALE, or 'stemrepro train')")
    try:
        with safe_open(path, "pt") as opened:
            made_with = (opened.metadata() or {}).get("config")
            stored = sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        if stored < (least := _least(config)):  # before memory is taken for a model that no such file can fill
            raise ValueError(f"it has {stored:,} numbers, the model {least:,} or more")
        model = Decoder(config)
        model.load_state_dict(load_file(path))
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path} does not hold the weights of a model with {config}: {reason}") from error
    if made_with != settings:
        raise UserError(f"{path} was made with other settings ({made_with}, not {settings}); train that run again")
    for name, value in model.state_dict().items():
        if not value.isfinite().all():
            raise UserError(
                f"{path}: '{name}' holds NaN or infinite numbers, with which a model says nothing; train that run again"
            )
    return model.eval().to(device)


def load_run(run: Run) -> Decoder:
    """Return the trained model of a run, where its scale scores.

    UserError: it isn't finished, or was made with other settings than the planned ones.
    """
    if changes := run.other_settings() if run.folder.exists() else "":
        raise UserError(f"{run.folder} holds a run with other settings ({changes}); train it again before scoring it")
    return load_model(run.folder, run.model, digest(run.config), device_of(run.training.accelerator))


def load_folder(folder: Path, trust: bool = False) -> tuple[Decoder, int]:
    """Return the trained model of a run folder, as its config.yaml says, and the length of its training sequences.

    `trust` also executes the file of a network that no arm of the recipes here names.
    UserError: there is none, it is damaged, or its network is such a file.
    """
    settings = read_config(folder)
    if not trust:
        check_trusted(folder, settings.model)
    return load_model(folder, settings.model, settings.hash, torch.device("cpu")), settings.training.sequence
