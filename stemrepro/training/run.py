"""A run: one arm at one variant x one seed at one scale, and everything that decides its weights.

Its address is arm@variant; at the scale itself, the variant "main", the arm's name alone. Its identity is its settings
and a hash of the code that decides it: backbone, training, and the modules of its feed-forward networks.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stemrepro.common.code_hash import code_hash
from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, flat
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import Address
from stemrepro.config.parallel import Parallel
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig
from stemrepro.model.names import memory_module, module_of

DECIDING_NOTHING = (
    *(f"stemrepro.common.{name}" for name in ("code_hash", "errors", "files", "provenance", "yaml_records")),
    "stemrepro.training.devices",
    "stemrepro.config.parallel",
)
"""Modules that the hash of a run's code leaves out: files, errors and records, and how several devices share a run."""


@cache
def run_code(ffns: tuple[str, ...], memory: str = "") -> str:
    """Return the hash of the code that decides a run of these feed-forward networks and this memory."""
    memories = [memory_module(memory)] if memory else []
    return code_hash("stemrepro.training.train", *map(module_of, ffns), *memories, without=DECIDING_NOTHING)


def params_hash(config: dict[str, Any]) -> str:
    """Return the short hash of a run's settings without its seed."""
    return digest({key: value for key, value in config.items() if key != "seed"})


@dataclass(frozen=True)
class InitFrom:
    """The finished run that another one resumes from.

    Attributes:
        folder: of the finished run.
        parent: short hash of that run's settings, seed and all.
        tables: "kept"; "anew": drawn again, and the optimiser has no state of them; or a kind of
            stemrepro.config.retrofit: made from the finished run, which is dense.
        tokens: of the same text, that the finished run was trained on; 0 where this one reads another text.
        batches: these tokens in micro-batches of this run, which begins after them; 0 where its sequences are others.
        row_tokens: tokens that rows are made from.
    """

    folder: Path
    parent: str
    tables: str
    tokens: int
    batches: int = 0
    row_tokens: int = 0

    @property
    def address(self) -> Address:
        """Arm and variant of the finished run."""
        return Address(*self.folder.parts[-3:-1])

    @property
    def settings(self) -> dict[str, Any]:
        """What the run folder's config.yaml has of it."""
        rows = {"row_tokens": self.row_tokens} if self.row_tokens else {}
        return {"parent": self.parent, "tables": self.tables} | rows


@dataclass(frozen=True)
class Run:
    """One arm at one variant x one seed at one scale.

    Attributes:
        folder: the run folder, `runs/<scale>/<variant>/<arm>/seed<k>`.
        mix: where its text comes from.
        blocks: folder of the token blocks.
        data_hash: sha256 of the training blocks.
        text_ratio: tokens of a text in the run's vocabulary / in the scale's.
        prefixes: folders of the shorter runs that share its stable phase, the shortest first.
        init_from: the run whose end it resumes from; None: from initialisation.
        keep_final_checkpoint: whether another run resumes from its end.
        parallel: the devices that train it together, which decide nothing but roundings; None: one.
    """

    address: Address
    seed: int
    model: ModelConfig
    training: RunTraining
    folder: Path
    mix: str
    blocks: Path
    data_hash: str
    text_ratio: float = 1.0
    prefixes: tuple[Path, ...] = ()
    init_from: InitFrom | None = None
    keep_final_checkpoint: bool = False
    parallel: Parallel | None = None

    def __str__(self) -> str:
        return f"{self.address} seed {self.seed}"

    @property
    def devices(self) -> int:
        """Number of devices that train it together."""
        return self.parallel.ranks if self.parallel else 1

    @property
    def weights(self) -> Path:
        """Final weights; they exist if and only if the run came to its end."""
        return self.folder / "weights.safetensors"

    @property
    def diverged(self) -> int | None:
        """The step at which the loss was NaN or infinite, which ended the run; None for a run that didn't diverge."""
        path = self.folder / "diverged.json"
        try:
            return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.exists() else None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise UserError(f"{path} is damaged ({error}); delete {self.folder} and train that run again") from error

    @property
    def end(self) -> Path:
        """Checkpoint of the last step, for runs that resume from it."""
        return self.folder / "end.ckpt"

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train in the folder, whatever made it."""
        return (
            self.weights.exists() and (self.end.exists() or not self.keep_final_checkpoint)
        ) or self.diverged is not None

    @property
    def ended(self) -> bool:
        """Whether this very run came to its end, or diverged."""
        return self.finished and not self.other_settings()

    @property
    def code(self) -> str:
        """Hash of the code that decides this run."""
        layers = range(self.model.layers)
        return run_code(tuple(sorted({self.model.ffn_of(layer) for layer in layers})), self.model.memory)

    @property
    def config(self) -> dict[str, Any]:
        """All that decides the weights, as the run folder's config.yaml has it."""
        return {
            "arm": self.address.arm,
            "variant": self.address.variant,
            "seed": self.seed,
            "model": self.model.settings,
            "training": self.training.model_dump(mode="json"),
            "data": {"mix": self.mix, "train_sha256": self.data_hash},
            "code": self.code,
        } | ({"init_from": self.init_from.settings} if self.init_from else {})

    def other_settings(self) -> str:
        """Return how the settings in the run folder differ from this run's; "" when they don't.

        A file that can't be read differs in everything.
        """
        try:
            existing = flat(read_yaml(self.folder / "config.yaml"))
        except UserError:
            existing = {}
        requested = flat(self.config)
        keys = sorted(key for key in existing.keys() | requested.keys() if existing.get(key) != requested.get(key))
        return "; ".join(f"{key}: {existing.get(key)} there, {requested.get(key)} requested" for key in keys[:5])

    @property
    def stable_phase(self) -> str:
        """Short hash of all that decides the weights before a decay: the settings without variant and budget."""
        config = self.config
        training = {key: value for key, value in config["training"].items() if key != "tokens"}
        return digest({key: value for key, value in config.items() if key != "variant"} | {"training": training})

    @property
    def params_hash(self) -> str:
        """Short hash of `config`, without the seed."""
        return params_hash(self.config)
