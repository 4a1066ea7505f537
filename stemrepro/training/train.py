"""Trains one run in its folder: returns at once when finished, resumes when cut short, refuses other settings."""

import logging
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import lightning as L
import torch
import yaml
from safetensors.torch import save as to_bytes

from stemrepro.errors import UserError
from stemrepro.files import atomic_write, write_json
from stemrepro.provenance import provenance
from stemrepro.training.callbacks import Recorder, Report
from stemrepro.training.checkpoint import AtomicCheckpointIO, newest
from stemrepro.training.module import LanguageModule
from stemrepro.training.spec import Run

WRITTEN = ("config.yaml", "metrics.jsonl", "provenance.json", "*.safetensors", "resume/*.ckpt", "resume/*.sha256")


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files that a process which was killed while writing left behind."""
    for name in map(Path, WRITTEN):
        for path in folder.glob(str(name.with_name(f".{name.name}.????????"))):
            path.unlink()


def claim_folder(run: Run, replace: bool) -> None:
    """Makes sure that what lies in the run folder belongs to this run; with `replace` anything else is removed.

    Raises:
        UserError: it was made with other settings; names the keys.
    """
    config = run.folder / "config.yaml"
    remove_leftovers(run.folder)
    if config.exists():
        changes = run.other_settings()
        if changes and not replace:
            raise UserError(f"{run.folder} holds a run with other settings ({changes}); move it or pass --replace")
        if changes:
            shutil.rmtree(run.folder)
    elif run.folder.exists() and any(run.folder.iterdir()):
        if not replace:
            raise UserError(f"{run.folder} is not empty and has no config.yaml; move it or pass --replace")
        shutil.rmtree(run.folder)
    if not config.exists():
        atomic_write(config, yaml.safe_dump(run.config, sort_keys=False))


def train(run: Run, report: Report, replace: bool = False, mark: Callable[[int, dict], None] | None = None) -> None:
    """Trains one run to its end.

    Leaves config.yaml, metrics.jsonl, weights.safetensors, table snapshots (hashed by DVC) and provenance.json (not).
    Weights are written last: a folder that has them is finished. Resume checkpoints are deleted then.

    Args:
        replace: remove what was made with other settings.
        mark: called with (step, losses by source) after each validation; what it raises ends the run (sweeps stop trials so).
    """
    claim_folder(run, replace)
    if run.weights.exists():
        report(run.scale.steps, float("nan"), 0.0)
        return
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # which devices there are, and tips
    warnings.filterwarnings("ignore", module="lightning")
    started, training = time.monotonic(), run.scale.training
    torch.manual_seed(run.seed)  # nothing draws from it so far; whatever will, does so the same in every run of a seed
    module, recorder, resume = LanguageModule(run), Recorder(run, report, mark), run.folder / "resume"
    if training.compile:
        module.model.compile()  # in place: the names of its weights stay
    trainer = L.Trainer(
        accelerator=training.accelerator,
        devices=1,
        precision=training.precision,
        max_steps=run.scale.steps,
        accumulate_grad_batches=training.batch // training.micro_batch,
        callbacks=[recorder],
        plugins=[AtomicCheckpointIO()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    start = newest(resume)
    trainer.fit(module, ckpt_path=start)
    recorder.write_rows()
    seconds = time.monotonic() - started
    about = provenance() | {"seconds": round(seconds, 1), "resumed_from": start and Path(start).name}
    write_json(run.folder / "provenance.json", about | {"params_hash": run.params_hash, "data_hash": run.data_hash})
    weights = {name: value.detach().cpu().contiguous() for name, value in module.model.state_dict().items()}
    atomic_write(run.weights, to_bytes(weights))
    shutil.rmtree(resume, ignore_errors=True)
