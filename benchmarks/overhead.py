"""Where a training step's time goes at a scale: loader, model and optimiser, Lightning and recording around them.

    python -m benchmarks.overhead [--scale laptop] [--arm stem-full] [--steps 60]

Medians over steps of one process with the scale's threads. Run it with and without the allocator thresholds that
stemrepro/common/workers.py sets (here: --plain-malloc) to see what they are worth.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.runs import run_at
from stemrepro.common.workers import ENVIRONMENT
from stemrepro.measures.catalog import load
from stemrepro.model.loss import token_losses
from stemrepro.training.module import LanguageModule
from stemrepro.training.train import train


def main() -> None:
    """Print milliseconds per step and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--arm", default="stem-full")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--plain-malloc", action="store_true")
    options = parser.parse_args()
    if not options.plain_malloc and "MALLOC_TRIM_THRESHOLD_" not in os.environ:  # glibc reads it at process start
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    catalog, blocks = load(), Path("data") / options.scale / "blocks"
    scale = catalog.scale(options.scale)
    torch.set_num_threads(scale.training.threads)
    per_step = scale.training.batch * scale.model.sequence
    training = scale.training.model_copy(update={"tokens": options.steps * per_step, "snapshots": ()})
    scale = scale.model_copy(update={"training": training})
    with tempfile.TemporaryDirectory() as folder:
        run = run_at(catalog, scale, options.arm, blocks, Path(folder) / "run")
        module = LanguageModule(run)
        optimizer = module.configure_optimizers()["optimizer"]
        batches, loading, computing = iter(module.train_dataloader()), [], []
        for _ in range(options.steps):
            start = time.perf_counter()
            rows = [next(batches) for _ in range(training.batch // training.micro_batch)]
            loaded = time.perf_counter()
            for batch in rows:
                token_losses(module.model(batch[:, :-1]), batch[:, 1:]).mean().backward()
            module.configure_gradient_clipping(optimizer)
            optimizer.step()
            optimizer.zero_grad()
            loading.append(loaded - start)
            computing.append(time.perf_counter() - loaded)
        start = time.perf_counter()
        train(run, lambda *_: None)
        whole = time.perf_counter() - start
    step = median(loading) + median(computing)
    print(
        f"{options.arm} at {options.scale}, {options.steps} steps of {per_step} tokens, "
        f"{scale.training.threads} thread(s)"
    )
    print(f"model and optimiser {1000 * median(computing):.1f} ms per step, {per_step / step:,.0f} tokens/s")
    print(f"loader {1000 * median(loading):.3f} ms, {100 * median(loading) / step:.2f}% of a step")
    print(
        f"whole run {whole:.1f} s; without Lightning, validations, checkpoints and files {options.steps * step:.1f} s"
    )


if __name__ == "__main__":
    main()
