"""lm-eval's generated needles (RULER), given to runs: answers of models that never saw its wording or its digits.

    python -m benchmarks.ruler runs/needle/longer/*/seed0 --tokenizer data/needle/tokenizer.json --length 768 --items 20

Needs the extra 'hub' (`pip install -e '.[hub]'`). Tasks whose haystack is an essay read the hub. niah_single_1 and
niah_multikey_2 make their haystack and need no network.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from lm_eval import simple_evaluate

from stemrepro.evaluation.lm import StemLM
from stemrepro.evaluation.reasoning import task_manager

TASKS = ("niah_single_1", "niah_multikey_2")


def ruler(lm: StemLM, tokenizer: Path, tasks: tuple[str, ...], length: int, items: int) -> dict[str, float]:
    """Return points of each task, in prompts and answers of at most `length` tokens of the model's tokenizer.

    Args:
        lm: its `context` should be `length`, or prompts lose their beginning.
        items: per task, at most.
    """
    with TemporaryDirectory() as folder:
        manager = task_manager(tokenizer, [length], Path(folder))
        results = simple_evaluate(lm, tasks=list(tasks), task_manager=manager, limit=items, bootstrap_iters=0)[
            "results"
        ]
    return {task: 100 * results[task][f"{length},none"] for task in tasks}


def main() -> None:
    """Print a line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--length", type=int, default=768)
    parser.add_argument("--items", type=int, default=20)
    options = parser.parse_args()
    for folder in options.runs:
        lm = StemLM.from_folder(folder, options.tokenizer)
        lm.context = options.length
        points = ruler(lm, options.tokenizer, TASKS, options.length, options.items)
        print(folder, ", ".join(f"{task} {value:.0f}%" for task, value in points.items()))


if __name__ == "__main__":
    main()
