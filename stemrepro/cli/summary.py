"""The last words of a command: losses by arm, verdicts by kind, and their folders."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap
from typing import Any

from stemrepro.config.address import MAIN, Address
from stemrepro.config.sources import prose
from stemrepro.report.verdicts import TALLIED, by_origin, counted
from stemrepro.training.run import Run

WIDTH = 80
MOST_LISTED = 12
MEANING = "validation of prose in nats per token, mean +- deviation between seeds (seeds)"


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def loss_at_end(run: Run) -> float | None:
    """Return a run's last validation loss on prose in nats per token, or None: the mean over sources, as trained."""
    try:
        last = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
        losses = json.loads(last)["validation"]
        return float(mean(losses[source] for source in prose(losses)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def by_arm(losses: dict[Address, list[float]]) -> str:
    """List mean, standard deviation between seeds, and seeds: "dense 4.342 +- 0.012 (5), ...".

    Where there are many, those at variants are only counted.
    """
    scored = {address: values for address, values in losses.items() if values}
    main = {address: values for address, values in scored.items() if address.variant == MAIN}
    shown = scored if len(scored) <= MOST_LISTED or not main else main
    parts = []
    for address, values in shown.items():
        deviation = f" +- {stdev(values):.3f}" if len(values) > 1 else ""
        parts.append(f"{address} {mean(values):.3f}{deviation} ({len(values)})")
    if others := len(scored) - len(shown):
        parts.append(f"and {others} more at variants")
    return ", ".join(parts) or "none"


def losses_of_runs(runs: Iterable[Run], folder: Path) -> str:
    """Return the losses at the end of runs, by arm, in a sentence."""
    losses: dict[Address, list[float]] = {}
    for run in runs:
        loss = None if run.diverged is not None else loss_at_end(run)
        losses.setdefault(run.address, []).extend([] if loss is None else [loss])
    return _wrapped(f"trained, in {folder}/; last {MEANING}: {by_arm(losses)}")


def losses_of_scores(addresses: Iterable[Address], folder: Path) -> str:
    """Return the scored losses, by arm, in a sentence. UserError: a file of them is damaged."""
    from stemrepro.measures import store
    from stemrepro.measures.losses import ArmLosses  # pandas: a second that training can do without

    arms = {address: ArmLosses(folder, address) for address in addresses if address in store.with_losses(folder)}
    losses = {address: arm.loss("prose").tolist() for address, arm in arms.items()}
    return _wrapped(f"losses, in {folder}/; {MEANING}: {by_arm(losses)}")


def verdicts(rows: list[dict[str, Any]], folders: list[Path]) -> str:
    """Return the number of claims by whose they are and by verdict, and the folders that have them."""
    groups = [f"{TALLIED[origin]}: {counted(members)}; " for origin, members in by_origin(rows).items() if members]
    where = ", ".join(f"{folder}/" for folder in folders)
    return _wrapped(f"{len(rows)} claims; {''.join(groups)}in {where}")
