"""How far golden losses are off under other instruction sets of this processor, and compiled.

    python -m benchmarks.golden

Deviations are shares of the losses' tolerances. A row per way to compute has the arm and step nearest to their
tolerance, and how many arms have equal bits. The rows say whether FACTOR of tests/training/write_golden.py is large
enough, and whether torch.compile takes every arm as it is (a minute per arm when nothing is cached).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SETS = {
    "as it is": {},
    "compiled": {"GOLDEN_COMPILED": "1"},
    "ATen without vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "ATen with AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN with AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL with AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "MKL with SSE4.2": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "all with AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
ROOT = Path(__file__).parent.parent
CHILD = """
import json
import os
import numpy as np
from stemrepro.training.train import train
from tests.conftest import *
from tests.training.test_train import GOLDEN, rows

def test_print(make_run, tiny, capsys):
    deviations, training = {}, tiny.training.model_copy(update={"compile": "GOLDEN_COMPILED" in os.environ})
    for arm, golden in GOLDEN.items():
        run = make_run(arm, scale=tiny.model_copy(update={"training": training}))
        train(run, quiet)
        off = np.abs(np.array([row["loss"] for row in rows(run)]) - golden["loss"])
        deviations[arm] = [off.max(), (off / golden["tolerance"]).max()]
    with capsys.disabled():
        print("FOUND " + json.dumps(deviations))
"""


def main() -> None:
    """Print a row per instruction set."""
    child = ROOT / "tests" / "training" / "print_golden.py"
    child.write_text(CHILD, encoding="utf-8")
    try:
        for name, variables in SETS.items():
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(child)]
            shown = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True).stdout
            line = next(line for line in shown.splitlines() if "FOUND " in line)
            deviations = json.loads(line.partition("FOUND ")[2])
            worst = max(deviations, key=lambda arm: deviations[arm][1])
            equal = sum(off < 6e-7 for off, _ in deviations.values())
            print(
                f"{name:22} {equal:2} of {len(deviations)} arms as written; "
                f"worst {worst}: {deviations[worst][1]:.2f} of its tolerance"
            )
    finally:
        child.unlink()


if __name__ == "__main__":
    main()
