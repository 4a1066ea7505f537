"""Checkpoints that survive a kill: written aside, synced, renamed; hashed when written and checked when read.

The two newest are kept. `newest` returns the last good one and warns of a damaged one by name.
Reading executes no code.
"""

import io
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, sha256
from stemrepro.training.devices import read
from stemrepro.training.run import Run
from stemrepro.training.schedule import branch_step

KEPT = 2
STABLE = "stable.ckpt"
"""The checkpoint of the last step before a WSD run's decay."""
END = "end.ckpt"
"""The checkpoint of the last step, where other runs resume from it (Run.end)."""


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's way to disk, made atomic and verified: next to `x.ckpt` lies `x.ckpt.sha256`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write the hash after the file, so that a checkpoint with a hash is a whole one."""
        buffer = io.BytesIO()
        torch.save(_canonical(checkpoint), buffer)
        atomic_write(path, buffer.getvalue())
        atomic_write(f"{path}.sha256", sha256(path) + "\n")

    def load_checkpoint(
        self, path: str | Path, map_location: object = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read tensors and plain values only, from a file or from the folder of a sharded run (`devices.write`).

        UserError: the file isn't the one that was written, or never was a checkpoint.
        """
        if not intact(Path(path)):
            raise UserError(f"{path} is damaged (its sha256 is not the recorded one); delete it to use the one before")
        try:
            folder = Path(path).is_dir()
            checkpoint = read(Path(path)) if folder else torch.load(path, map_location="cpu", weights_only=True)
            checkpoint["state_dict"].keys()
        except Exception as error:  # pickle, zipfile and torch raise different ones
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{path} is no checkpoint of tensors and plain values ({reason}); delete it") from error
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint and its hash."""
        if Path(path).is_dir():
            shutil.rmtree(path)
        Path(path).unlink(missing_ok=True)
        Path(f"{path}.sha256").unlink(missing_ok=True)


def _canonical(value: Any) -> Any:
    """Return the same value, in which equal texts are one object and nothing else is shared.

    A pickle's bytes depend on which objects are shared. A resumed run shares other ones than an uninterrupted run.
    """
    if isinstance(value, str):
        return sys.intern(str(value))
    if isinstance(value, dict):
        parts = type(value)((_canonical(key), _canonical(part)) for key, part in value.items())
        if hasattr(value, "__dict__"):  # an OrderedDict's, as a module's state has
            vars(parts).update(vars(value))
        return parts
    return type(value)(map(_canonical, value)) if type(value) in (list, tuple) else value


def intact(path: Path) -> bool:
    """Return whether a checkpoint's bytes have the hash that was recorded when it was written; a folder has none."""
    recorded = Path(f"{path}.sha256")
    whole = recorded.exists() and path.is_file() and recorded.read_text(encoding="utf-8").strip() == sha256(path)
    return path.is_dir() or whole


def newest(folder: Path) -> Path | None:
    """Return the newest good checkpoint in a folder, or None. Damaged ones are named in a warning and passed over."""
    paths = sorted(folder.glob("step*.ckpt"))
    while paths:
        path = paths.pop()
        if intact(path):
            return path
        instead = "using the checkpoint before it" if paths else "no other is left, so the run starts anew"
        warnings.warn(f"{path} is damaged or was cut short; {instead}", stacklevel=2)
    return None


def stable_phase_of(run: Run) -> Path | None:
    """Return the last checkpoint that a shorter run with the same stable phase left before its decay, or None.

    A run that resumes from it ends with the bytes of a run that starts anew: up to that step both are the same run.
    """
    for folder in reversed(run.prefixes):
        path = folder / STABLE
        if intact(path):
            checkpoint = AtomicCheckpointIO().load_checkpoint(path)
            same_phase = checkpoint.get("stable_phase") == run.stable_phase
            if same_phase and checkpoint["global_step"] <= branch_step(run.training):
                return path
    return None


def beginning_of(run: Run) -> dict[str, Any]:
    """Return the last checkpoint of the run that another one resumes from.

    UserError: that run isn't finished, or is another than the one that was planned.
    """
    parent = run.init_from
    assert parent is not None, f"{run} begins anew"
    path, place = parent.folder / END, parent.address
    if (parent.folder / "diverged.json").exists():
        raise UserError(
            f"{run} resumes from a run that diverged; leave '{run.address.arm}' out of that variant, "
            "or lower its learning rate"
        )
    if not path.exists():
        raise UserError(f"{path} is missing; {run} resumes from that run, train it first ('stemrepro train {place}')")
    if not intact(path):
        raise UserError(
            f"{path} is damaged; delete it and train that run again ('stemrepro train {place}'), {run} resumes from it"
        )
    checkpoint = AtomicCheckpointIO().load_checkpoint(path)
    if digest(checkpoint.get("run_config")) != parent.parent:
        raise UserError(
            f"{path} was made with other settings than those planned; "
            "train that run again ('make reproduce' with its SCALE)"
        )
    return checkpoint


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of a step's checkpoint."""
    return folder / f"step{step:09d}.ckpt"


def prune(folder: Path) -> None:
    """Delete all but the newest two checkpoints."""
    for path in sorted(folder.glob("step*.ckpt"))[:-KEPT]:
        AtomicCheckpointIO().remove_checkpoint(path)
