"""Training of one run in its folder: finished runs return at once, interrupted ones resume, others are refused."""

import logging
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import lightning as L
import torch
import yaml
from safetensors.torch import save as to_bytes
from torch import Tensor

from stemrepro.common import mkl_avx512
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, locked, write_json
from stemrepro.common.provenance import provenance
from stemrepro.data.blocks import TokenBlocks
from stemrepro.training import devices
from stemrepro.training.callbacks import Diverged, Recorder, Report
from stemrepro.training.checkpoint import AtomicCheckpointIO, newest, stable_phase_of
from stemrepro.training.compiling import compiler_works
from stemrepro.training.module import LanguageModule
from stemrepro.training.retrofit import beginning
from stemrepro.training.run import Run

MOST_EPOCHS = 4
"""Up to so many, repeated text teaches nearly as much as new text (Muennighoff et al. 2023).

Beyond them arms differ in what they memorise.
"""
WRITTEN = (
    "config.yaml",
    "metrics.jsonl",
    "*.json",
    "*.safetensors",
    "*.ckpt",
    "*.sha256",
    "resume/*.ckpt",
    "resume/*.sha256",
)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a process that was killed while writing."""
    for name in map(Path, WRITTEN):
        for path in folder.glob(str(name.with_name(f".{name.name}.????????"))):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def empty(folder: Path, kept: str = "") -> None:
    """Remove what lies in a folder but the file named `kept`."""
    for path in folder.iterdir():
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def claim_folder(run: Run, replace: bool) -> None:
    """Make sure that what lies in the run folder belongs to this run; with `replace` anything else is removed.

    Raises:
        UserError: it was made with other settings; names the keys.
    """
    config = run.folder / "config.yaml"
    remove_leftovers(run.folder)
    if config.exists():
        changes = run.other_settings()
        if changes and not replace:
            raise UserError(f"{run.folder} holds a run with other settings ({changes}); move it or pass --replace")
        if changes:  # a config.yaml exists at all times: tracking of other seeds reads it
            empty(run.folder, kept=config.name)
            atomic_write(config, yaml.safe_dump(run.config, sort_keys=False))
    elif any(run.folder.iterdir()):
        if not replace:
            raise UserError(f"{run.folder} is not empty and has no config.yaml; move it or pass --replace")
        empty(run.folder)
    if not config.exists():
        atomic_write(config, yaml.safe_dump(run.config, sort_keys=False))


def epochs(run: Run, blocks: TokenBlocks) -> float:
    """Return how many times a run passes over its training text, with the run that it resumes from.

    Raises:
        UserError: more than 4 times.
    """
    planned = run.training.tokens + (run.init_from.tokens if run.init_from else 0)
    available = blocks.count * blocks.length
    if planned > MOST_EPOCHS * available:
        raise UserError(
            f"{run}: {planned:,} training tokens are {planned / available:.1f} passes over the {available:,} tokens of "
            f"{blocks.path}, and more than {MOST_EPOCHS} are refused; plan {MOST_EPOCHS * available:,} tokens or fewer "
            "for it (training.tokens of its scale, times tokens of its variant), or take a larger mix of "
            "recipes/mixes.yaml"
        )
    return planned / available


def train(run: Run, report: Report, replace: bool = False, on_eval: Callable[[int, dict], None] | None = None) -> None:
    """Train one run to its end.

    It leaves these files, which DVC hashes: config.yaml, metrics.jsonl, weights.safetensors and table snapshots; under
    WSD the checkpoint that longer runs resume from; the last step's checkpoint where other runs resume from it;
    provenance.json, which differs from training to training. Weights are written last, with the hash of the settings in
    them: a folder that has them is finished. A run whose loss becomes NaN or infinite ends there and leaves
    diverged.json, {"step": k}, in their place. Resume checkpoints are deleted in either case.

    Args:
        report: called with (steps done, loss, tokens per second).
        replace: remove what was made with other settings.
        on_eval: called with (step, losses by source) after each validation; what it raises ends the run, as sweeps do.

    Raises:
        UserError: another process trains in the folder, or it holds something else; or the run would pass over its text
            more than 4 times; or it asks for several devices, and torchrun or srun hasn't started as many processes.
    """
    devices.join(run)
    with ExitStack() as stack:

        def claim() -> bool:
            place = f"another process is training in {run.folder}; wait for it, or stop it"
            stack.enter_context(locked(run.folder, place))
            claim_folder(run, replace)
            return run.finished

        if devices.from_first(claim):
            report(run.training.steps, float("nan"), 0.0)
            return
        _train(run, report, on_eval)


def _train(run: Run, report: Report, on_eval: Callable[[int, dict], None] | None) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # it lists devices and gives tips
    warnings.filterwarnings("ignore", module="lightning")
    started, training = time.monotonic(), run.training
    torch.manual_seed(run.seed)  # nothing draws from it yet
    compiles = training.compile and compiler_works("cuda" if training.accelerator == "gpu" else "cpu")
    if training.compile and not compiles:
        print(f"stemrepro: {run}: there is no working compiler; it is trained without", file=sys.stderr)
    if training.mkl_avx512 and not mkl_avx512.in_force():
        print(f"stemrepro: {run}: MKL can't be asked for AVX-512; it is trained without", file=sys.stderr)
    module, recorder, resume = LanguageModule(run, compiles), Recorder(run, report, on_eval), run.folder / "resume"
    passes = epochs(run, module.blocks)
    where = devices.devices_of(run)
    trainer = L.Trainer(
        accelerator=training.accelerator,
        **where | {"plugins": [AtomicCheckpointIO(), *where["plugins"]]},
        precision=training.precision,
        max_steps=training.steps,
        accumulate_grad_batches=training.batch // (training.micro_batch * run.devices),
        callbacks=[recorder],
        # Or threads race for an embedding's gradient in compiled code, and sums round by who came first.
        deterministic=compiles and training.threads > 1 and training.accelerator == "cpu",
        default_root_dir=run.folder,  # inside Slurm any hpc_ckpt_* there would be loaded
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    start, diverged = devices.from_first(lambda: newest(resume) or stable_phase_of(run)), None
    if run.init_from and not start:
        module.take_over(beginning(run, module.blocks))
    try:
        trainer.fit(module, ckpt_path=start)
    except Diverged as end:
        diverged = end.step
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # Lightning makes this of it
            raise end.__context__ from None
        raise
    recorder.write_rows()
    weights = devices.gathered(module.model.state_dict()) if diverged is None else {}
    about = {
        "resumed_from": start and start.name,
        "compiled": compiles,
        "mkl_avx512": mkl_avx512.in_force(),
        "epochs": round(passes, 4),
    }
    if training.accelerator == "gpu":
        about["device"] = torch.cuda.get_device_name()
    if run.parallel:
        about["parallel"] = run.parallel.model_dump(mode="json")
    if devices.first():
        _end(run, weights, diverged, about | {"seconds": round(time.monotonic() - started, 1)})


def _end(run: Run, weights: dict[str, Tensor], diverged: int | None, about: dict) -> None:
    """Write what only a run that came to its end has, and delete its resume checkpoints."""
    about = provenance() | about | {"params_hash": run.params_hash, "data_hash": run.data_hash}
    write_json(run.folder / "provenance.json", about)
    if diverged is not None:
        write_json(run.folder / "diverged.json", {"step": diverged})
    else:
        atomic_write(run.weights, to_bytes(weights, {"config": digest(run.config)}))
    shutil.rmtree(run.folder / "resume", ignore_errors=True)
