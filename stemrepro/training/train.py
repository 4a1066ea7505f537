"""Training of one run in its folder: finished runs return at once, interrupted ones resume, others are refused."""

import logging
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import lightning as L
import torch
from safetensors.torch import save as to_bytes

from stemrepro.common import mkl_avx512
from stemrepro.common.files import atomic_write, digest, write_json
from stemrepro.common.provenance import provenance
from stemrepro.training import devices
from stemrepro.training.callbacks import Diverged, Recorder, Report
from stemrepro.training.checkpoint import AtomicCheckpointIO, newest, stable_phase_of
from stemrepro.training.compiling import compiles
from stemrepro.training.folder import claimed
from stemrepro.training.module import LanguageModule, epochs
from stemrepro.training.retrofit_rows import beginning
from stemrepro.training.run import Run


def train(
    run: Run, report: Report, replace: bool = False, on_eval: Callable[[int, dict[str, float]], None] | None = None
) -> None:
    """Train one run to its end.

    It leaves these files, which DVC hashes: config.yaml, metrics.jsonl, weights.safetensors and table snapshots; under
    WSD the checkpoint that longer runs resume from; the last step's checkpoint where other runs resume from it;
    provenance.json, which differs from training to training. Weights are written last, with the hash of the settings in
    them: a folder that has them is finished. A run whose loss becomes NaN or infinite ends there and leaves
    diverged.json, {"step": k}, in their place. Resume checkpoints are deleted in either case.

    Args:
        replace: remove what was made with other settings.
        on_eval: called with (step, losses by source) after each validation; what it raises ends the run, as sweeps do.

    Raises:
        UserError: another process trains in the folder, or it holds something else; or the run would pass over its text
            more than 4 times; or it asks for several devices, and torchrun or srun hasn't started as many processes.
    """
    devices.join(run)
    with claimed(run, replace) as finished:
        if finished:
            report(run.training.steps, float("nan"), 0.0)
            return
        started, compiled = time.monotonic(), compiles(run)
        torch.manual_seed(run.seed)  # weights are drawn by name (`initialise`), not from it; checkpoints keep its state
        module, recorder = LanguageModule(run, compiled), Recorder(run, report, on_eval)
        passes = epochs(run, module.text)
        trainer = make_trainer(run, recorder, compiled)
        start = devices.from_rank_zero(lambda: newest(run.folder / "resume") or stable_phase_of(run))
        if run.init_from and not start:
            module.take_over(beginning(run, module.text))
        diverged = fit(trainer, module, start)
        recorder.write_rows()
        about = {"resumed_from": start and start.name, "compiled": compiled, "mkl_avx512": mkl_avx512.in_force()}
        finish(run, module, diverged, about | {"epochs": round(passes, 4)}, started)


def make_trainer(run: Run, recorder: Recorder, compiled: bool) -> L.Trainer:
    """Return Lightning's trainer, which writes nothing but what the recorder and its checkpoints are."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # it lists devices and gives tips
    warnings.filterwarnings("ignore", module="lightning")
    training, where = run.training, devices.devices_of(run)
    return L.Trainer(
        accelerator=training.accelerator,
        **where | {"plugins": [AtomicCheckpointIO(), *where["plugins"]]},
        precision=training.precision,
        max_steps=training.steps,
        accumulate_grad_batches=training.batch // (training.micro_batch * run.devices),
        callbacks=[recorder],
        # Or threads race for an embedding's gradient in compiled code, and sums round by who came first.
        deterministic=compiled and training.threads > 1 and training.accelerator == "cpu",
        default_root_dir=run.folder,  # inside Slurm any hpc_ckpt_* there would be loaded
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def fit(trainer: L.Trainer, module: LanguageModule, start: Path | None) -> int | None:
    """Train from a checkpoint, or from the beginning, to the end; return the step at which the run diverged."""
    try:
        trainer.fit(module, ckpt_path=start)
    except Diverged as end:
        return end.step
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # Lightning makes this of it
            raise end.__context__ from None
        raise
    return None


def finish(run: Run, module: LanguageModule, diverged: int | None, about: dict[str, object], started: float) -> None:
    """Write what only a run that came to its end has, and delete its resume checkpoints."""
    weights = devices.gathered(module.model.state_dict()) if diverged is None else {}
    if not devices.is_rank_zero():
        return
    if run.training.accelerator == "gpu":
        about["device"] = torch.cuda.get_device_name()
    if run.parallel:
        about["parallel"] = run.parallel.model_dump(mode="json")
    seconds = round(time.monotonic() - started, 1)
    about |= {"seconds": seconds, "params_hash": run.params_hash, "data_hash": run.data_hash}
    write_json(run.folder / "provenance.json", provenance() | about)
    if diverged is None:
        atomic_write(run.weights, to_bytes(weights, {"config": digest(run.config)}))
    else:
        write_json(run.folder / "diverged.json", {"step": diverged})
    shutil.rmtree(run.folder / "resume", ignore_errors=True)
