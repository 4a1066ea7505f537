"""What a command says when it is done: losses by arm and verdicts by kind, and where they lie."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap

from stemrepro.config.address import MAIN, Address
from stemrepro.config.sources import prose
from stemrepro.report.verdicts import verdict_label
from stemrepro.training.run import Run

WIDTH = 80
MOST_LISTED = 12


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def loss_at_end(run: Run) -> float | None:
    """Return a run's last validation while it was trained, mean over the sources of prose in nats a token; None where there is none."""
    try:
        last = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
        losses = json.loads(last)["validation"]
        return mean(losses[source] for source in prose(losses))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def by_arm(losses: dict[Address, list[float]]) -> str:
    """ "dense 4.342 +- 0.012 (5), ...": mean, standard deviation between seeds, seeds. Where there are many, those at variants are but counted."""
    found = {address: own for address, own in losses.items() if own}
    main = {address: own for address, own in found.items() if address.variant == MAIN}
    shown = found if len(found) <= MOST_LISTED or not main else main
    said = [
        f"{address} {mean(own):.3f}{f' +- {stdev(own):.3f}' if len(own) > 1 else ''} ({len(own)})"
        for address, own in shown.items()
    ]
    if others := len(found) - len(shown):
        said.append(f"and {others} more at variants")
    return ", ".join(said) or "none"


def losses_of_runs(runs: Iterable[Run], folder: Path) -> str:
    """Return how runs ended, by arm, in a sentence.

    Args:
        folder: where they lie.
    """
    losses: dict[Address, list[float]] = {}
    for run in runs:
        loss = None if run.diverged is not None else loss_at_end(run)
        losses.setdefault(run.address, []).extend([] if loss is None else [loss])
    return _wrapped(
        f"trained, in {folder}/; last validation of prose in nats a token, mean +- deviation between seeds (seeds): {by_arm(losses)}"
    )


def losses_of_scores(addresses: Iterable[Address], folder: Path) -> str:
    """Return what the scored losses are, by arm, in a sentence.

    Args:
        folder: scores/<scale>/losses.

    Raises:
        UserError: what lies there is damaged.
    """
    from stemrepro.measures.losses import ArmLosses  # pandas: a second that training can do without

    losses = {
        address: ArmLosses(own).loss("prose").tolist()
        if ((own := folder / address.path) / "losses.csv").exists()
        else []
        for address in addresses
    }
    return _wrapped(
        f"losses, in {folder}/; validation of prose in nats a token, mean +- deviation between seeds (seeds): {by_arm(losses)}"
    )


def verdicts(rows: list[dict], folders: list[Path]) -> str:
    """Return how many claims came out how, and where that is written."""
    counts = Counter(verdict_label(row) for row in rows)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return _wrapped(
        f"{len(rows)} claims{f': {said}' if said else ''}; in {', '.join(f'{folder}/' for folder in folders)}"
    )
