"""One run: an arm, a seed, a scale, and everything that decides its weights."""

from dataclasses import dataclass
from pathlib import Path

from stemrepro.files import digest
from stemrepro.model.config import ModelConfig
from stemrepro.recipe import Arm, Scale, model_config


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
        return {
            "arm": {"name": self.arm_name, **self.arm.model_dump(mode="json")},
            "seed": self.seed,
            "model": self.scale.model.model_dump(mode="json"),
            "training": {**training, "learning_rate": self.learning_rate},
            "data": {"mix": self.scale.data, "train_sha256": self.data_hash},
        }

    @property
    def params_hash(self) -> str:
        """Short hash of `config`, without the seed."""
        return digest({key: value for key, value in self.config.items() if key != "seed"})
