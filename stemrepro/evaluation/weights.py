"""Reads the trained model of a run folder; nothing in its files is executed."""

from pathlib import Path

import yaml
from safetensors.torch import load_file

from stemrepro.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder
from stemrepro.recipe import Arm, Shape, shaped
from stemrepro.training.spec import Run


def load_model(folder: Path, config: ModelConfig) -> Decoder:
    """The trained model of a run folder, on the CPU.

    Raises:
        UserError: no finished run there, or weights of another shape.
    """
    path = folder / "weights.safetensors"
    if not path.exists():
        raise UserError(f"{path} is missing; train that run first ('dvc repro' or 'stemrepro train')")
    model = Decoder(config)
    try:
        model.load_state_dict(load_file(path))
    except Exception as error:
        raise UserError(f"{path} does not hold the weights of a model with {config}: {error}") from error
    return model.eval()


def load_run(run: Run) -> Decoder:
    """The trained model of a run.

    Raises:
        UserError: it isn't finished, or was made with other settings than those asked for.
    """
    model = load_model(run.folder, run.model)
    if changes := run.other_settings():
        raise UserError(f"{run.folder} holds a run with other settings ({changes}); train it again before scoring it")
    return model


def recorded_shape(folder: Path) -> tuple[ModelConfig, int]:
    """The model of a run folder's config.yaml, and the length of the sequences that it was trained on.

    Raises:
        UserError: there is none, or it is damaged.
    """
    path = folder / "config.yaml"
    try:
        config = yaml.safe_load(path.read_text())
        arm = {key: value for key, value in config["arm"].items() if key != "name"}
        shape = Shape(**config["model"])
        return shaped(shape, Arm(**arm)), shape.sequence
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path} is missing or damaged ({' '.join(str(error).split())}); train that run again"
        ) from error
