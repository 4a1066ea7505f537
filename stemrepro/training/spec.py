"""One run: an arm, a seed, a scale, and everything that decides its weights."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from stemrepro.files import digest, flat, sha256
from stemrepro.model.config import ModelConfig
from stemrepro.recipe import Arm, Scale, model_config

PACKAGE = Path(__file__).parent.parent
CODE = (
    "data/blocks.py", "model/config.py", "model/ffn.py", "model/ffns.py", "model/loss.py", "model/moe.py", "model/rivals.py",
    "model/transformer.py", "training",
)  # fmt: skip
"""What decides a run's weights beside its settings: the code that the train stages of dvc.yaml depend on."""


@cache
def code_hash() -> str:
    """Short hash of that code. It is part of a run's config, so that a finished or half-finished run made by other code
    is trained anew, not adopted."""
    files = [file for name in CODE for file in (sorted((PACKAGE / name).glob("*.py")) or [PACKAGE / name])]
    return digest({file.relative_to(PACKAGE).as_posix(): sha256(file) for file in files})


def params_hash(config: dict) -> str:
    """Short hash of a run's settings without its seed."""
    return digest({key: value for key, value in config.items() if key != "seed"})


@dataclass(frozen=True)
class Run:
    """One arm x one seed at one scale.

    Attributes:
        folder: the run folder, `runs/<scale>/<arm>/seed<k>`.
        blocks: folder of the token blocks.
        data_hash: sha256 of the training blocks.
    """

    arm_name: str
    seed: int
    arm: Arm
    scale: Scale
    learning_rate: float
    folder: Path
    blocks: Path
    data_hash: str

    @property
    def model(self) -> ModelConfig:
        """Shape of the model."""
        return model_config(self.scale, self.arm)

    @property
    def weights(self) -> Path:
        """Final weights; there if and only if the run is finished."""
        return self.folder / "weights.safetensors"

    @property
    def config(self) -> dict:
        """All that decides the weights, as it stands in the run folder's config.yaml."""
        training = self.scale.training.model_dump(mode="json")
        matched = {"ffn_width": self.model.ffn_width, "experts": self.model.experts}
        return {
            "arm": {"name": self.arm_name, **self.arm.model_dump(mode="json")},
            "seed": self.seed,
            "model": self.scale.model.model_dump(mode="json"),
            "training": {**training, "learning_rate": self.learning_rate},
            "data": {"mix": self.scale.data, "train_sha256": self.data_hash},
            **({} if self.arm.match == "none" else {"matched": matched}),
            "code": code_hash(),
        }

    def other_settings(self) -> str:
        """How the settings in the run folder differ from this run's, "" when they don't. A file that can't be read
        differs in everything."""
        try:
            value = yaml.safe_load((self.folder / "config.yaml").read_text())
        except (OSError, yaml.YAMLError, UnicodeDecodeError):
            value = None
        found, asked = flat(value if isinstance(value, dict) else {}), flat(self.config)
        keys = sorted(key for key in found.keys() | asked.keys() if found.get(key) != asked.get(key))
        return "; ".join(f"{key}: {found.get(key)} there, {asked.get(key)} asked" for key in keys[:5])

    @property
    def params_hash(self) -> str:
        """Short hash of `config`, without the seed."""
        return params_hash(self.config)
