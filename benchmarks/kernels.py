"""Which kernels make a compiled step of dense fast on this processor, by width?

    python -m benchmarks.kernels          some 5 minutes; writes docs/kernels.csv

Ways: torch as it is, MKL asked for AVX-512 (stemrepro/common/mkl_avx512.py), and bfloat16 by autocast with either. A
process has one way, so that processes take turns, in another order each round. Times are CPU seconds at one thread,
which other work on the machine changes little.
"""

import argparse
import csv
import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tqdm import tqdm

from stemrepro.common import mkl_avx512
from stemrepro.common.files import atomic_write
from stemrepro.common.provenance import provenance

OUT = Path("docs/kernels.csv")
WIDTHS = (32, 64, 128, 256)
AS_IS = "as it is"
WAYS = {AS_IS: (), "AVX-512": ("avx512",), "bfloat16": ("bf16",), "AVX-512 and bfloat16": ("avx512", "bf16")}
TOKENS, BATCH, VOCAB = 128, 8, 4096


def step_seconds(width: int, options: tuple[str, ...], steps: int) -> float:
    """Return the CPU seconds of a training step at one thread, the median of `steps` after three others."""
    if "avx512" in options:
        mkl_avx512.load()
    import torch

    from stemrepro.model.config import ModelConfig
    from stemrepro.model.transformer import build
    from stemrepro.training.compiling import compiled, compiler_works
    from stemrepro.training.module import mean_loss

    torch.set_num_threads(1)
    if not compiler_works("cpu") or ("avx512" in options) != mkl_avx512.in_force():
        raise SystemExit("this machine has no compiler")
    shape = ModelConfig(
        vocab=VOCAB, width=width, layers=6, heads=width // 16, kv_heads=width // 32, ffn_width=width * 11 // 4
    )
    model = build(shape, seed=0)
    optimizer, loss = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), compiled(mean_loss)
    batch = torch.randint(1, VOCAB, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(0))
    seconds = []
    for _ in range(3 + steps):
        start = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in options):
            value = loss(model, batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.process_time() - start)
    return median(seconds[3:])


def child(width: int, way: str, steps: int) -> float:
    """Return what `step_seconds` does in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.kernels", "--child", json.dumps([width, WAYS[way], steps])]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    return float(done.stdout.split()[-1])


def table(rounds: int, steps: int) -> list[dict]:
    """Return a row a width and way: milliseconds, and the speed over torch as it is, with a round's least and most."""
    rows = []
    with tqdm(total=rounds * len(WIDTHS) * len(WAYS), desc="kernels", unit="process") as bar:
        for width in WIDTHS:
            seconds: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(rounds):
                for way in random.Random(number).sample(list(WAYS), len(WAYS)):
                    seconds[way].append(child(width, way, steps))
                    bar.update()
            for way, each in seconds.items():
                ratios = [before / now for before, now in zip(seconds[AS_IS], each, strict=True)]
                rows.append({
                    "width": width, "kernels": way, "ms": round(1e3 * median(each), 2),
                    "speed": round(median(ratios), 3), "least": round(min(ratios), 3), "most": round(max(ratios), 3),
                })  # fmt: skip
    return rows


def main() -> None:
    """Measure, and write docs/kernels.csv; with --child print one process's seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=9)
    given = parser.parse_args()
    if given.child:
        width, options, steps = json.loads(given.child)
        print(step_seconds(width, tuple(options), steps))
        return
    rows = table(given.rounds, given.steps)
    about = provenance()
    more = {"machine": about["machine"], "torch": about["versions"]["torch"], "commit": about["commit"][:8],
            "date": about["date"][:10]}  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0], *more], lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | more for row in rows)
    atomic_write(OUT, text.getvalue())
    print(text.getvalue())


if __name__ == "__main__":
    main()
