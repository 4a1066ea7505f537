"""Training step of every arm against dense, next to what its FLOPs would make it.

    python -m benchmarks.arms [--scale laptop] [--steps 40] [--arms dense stem-full]
                              [--shape 4096 128 4 344] [--batch 16 256] [--bf16]

Times are medians of interleaved steps in one process. A step is forward, backward, clipping and the optimiser on one
batch of random tokens. An arm more than 15% slower than its FLOP ratio is marked; `optimiser` is that part of its step.

--shape takes vocabulary, width, layers and ffn_width instead of the scale's. --batch takes sequences and their length.
--bf16 computes under bfloat16 autocast, as the precision bf16-mixed does. --threads sets threads.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.runs import as_a_worker, run_at
from stemrepro.common.progress import track
from stemrepro.measures.catalog import load
from stemrepro.model.cost import flops_per_token
from stemrepro.training.module import LanguageModule

SLOW = 1.15


def step(
    module: LanguageModule, optimizer: torch.optim.Optimizer, batch: torch.Tensor, bf16: bool
) -> tuple[float, float]:
    """Return the seconds of one training step, and of its optimiser alone."""
    start = time.perf_counter()
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=bf16):
        result = module.training_step(batch, 0)
    (result["loss"] if isinstance(result, dict) else result).backward()
    module.configure_gradient_clipping(optimizer)
    before = time.perf_counter()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - start, time.perf_counter() - before


def main() -> None:
    """Print a row per arm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--arms", nargs="+")
    parser.add_argument("--shape", type=int, nargs=4, metavar=("VOCAB", "WIDTH", "LAYERS", "FFN_WIDTH"))
    parser.add_argument("--batch", type=int, nargs=2, metavar=("SEQUENCES", "LENGTH"))
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    as_a_worker()
    catalog, blocks = load(), Path("data") / options.scale / "blocks"
    scale = catalog.scale(options.scale)
    if options.shape:
        names = ("vocab", "width", "layers", "ffn_width")
        scale = scale.model_copy(
            update={"model": scale.model.model_copy(update=dict(zip(names, options.shape, strict=True)))}
        )
    torch.set_num_threads(options.threads or scale.training.threads)
    size, length = options.batch or (scale.training.micro_batch, scale.model.sequence)
    modules = {}
    for name in options.arms or catalog.arms:
        module = LanguageModule(run_at(catalog, scale, name, blocks, Path("none")))
        modules[name] = module, module.configure_optimizers()["optimizer"]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in modules}
    for number in track(range(options.steps + 3), "steps"):
        batch = torch.randint(0, scale.model.vocab, (size, length + 1), generator=torch.Generator().manual_seed(number))
        for name, (module, optimizer) in modules.items():
            step_seconds = step(module, optimizer, batch, options.bf16)
            if number >= 3:
                taken[name].append(step_seconds)
    seconds = {name: (median(s for s, _ in times), median(o for _, o in times)) for name, times in taken.items()}
    flops = {name: flops_per_token(module.run.model, length) for name, (module, _) in modules.items()}
    base = next(iter(modules))
    table = Table("arm", "tokens/s", f"step / {base}", f"FLOPs / {base}", "optimiser", "")
    for name, (whole, update) in seconds.items():
        ratio, cost = whole / seconds[base][0], flops[name] / flops[base]
        mark = f"{100 * (ratio / cost - 1):+.0f}%" if ratio > SLOW * cost else ""
        table.add_row(
            name, f"{size * length / whole:,.0f}", f"{ratio:.2f}", f"{cost:.2f}", f"{100 * update / whole:.0f}%", mark
        )
    Console().print(table)


if __name__ == "__main__":
    main()
