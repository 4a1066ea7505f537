"""The row of a claim in words: its numbers, where they come from, and how many seeds they have."""

import math
from typing import Any

from stemrepro.report.evidence import METHOD

SURE = {"read": "", "inferred": "computed: ", "secondary": "second-hand: ", "figure": "read off an image: "}


def number(value: float, sign: bool = True) -> str:
    """Write a number with three decimals below 10, else with fewer; effects get a sign."""
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:{'+' if sign else ''}.{digits}f}"


def printed(row: dict[str, Any], value: float, more: int = 0) -> str:
    """Write a number of an exact claim with the digits that its rounding or the paper's number has, and `more`.

    Counts are whole.
    """
    given = f"{row['paper']['value'] if row['paper'] else row['expected']:g}".partition(".")[2]
    digits = max(len(given), round(-math.log10(2 * row["smallest_effect"]))) + more
    return f"{value:.0f}" if value == int(value) and not given else f"{value:.{digits}f}"


def counted(value: str, unit: str) -> str:
    """Write a value with its unit; of one thing the unit loses its plural."""
    return f"{value} {unit.removesuffix('s') if value == '1' else unit}"


def ours(row: dict[str, Any]) -> str:
    """Write our number with its 95% interval."""
    if row["ours"] is None:
        return "-"
    value = printed(row, row["ours"], 2) if row["kind"] == "exact" else number(row["ours"])
    interval = "" if row["ci_low"] is None else f" ({number(row['ci_low'])} to {number(row['ci_high'])})"
    return f"{value}{interval} {row['unit']}" if interval else counted(value, row["unit"])


def paper(row: dict[str, Any]) -> str:
    """Write the paper's number."""
    if not row["paper"]:
        return "not in this measure" if row["origin"] == "paper" else "not in the paper"
    value, unit = row["paper"]["value"], row["paper"]["unit"]
    return counted(printed(row, value) if row["kind"] == "exact" else number(value), unit)


def source(row: dict[str, Any]) -> str:
    """Say where the paper's number is from and how sure that is."""
    return f"{SURE[row['paper']['confidence']]}{row['paper']['source']}" if row["paper"] else ""


def contrast(row: dict[str, Any]) -> str:
    """Name arms and metric in short."""
    arms = " against ".join(dict.fromkeys(row["arms"]))
    return f"{arms}, {row['metric']}" if arms else row["metric"]


def evidence(row: dict[str, Any]) -> str:
    """Name the seeds, how the interval was formed where it isn't a plain t interval, and the error between items."""
    if row["kind"] == "exact":
        return "computed, no chance involved"
    if row["ours"] is None:
        return "not measured"
    over = (row["method"] or METHOD).removeprefix("t over ").partition(",")[0]  # of a published model no seeds
    words = [f"{row['seeds']} {over.removesuffix('s') if row['seeds'] == 1 else over}"]
    if row["method"] and row["method"] != METHOD:
        words.append(row["method"])
    if row["item_se"]:
        words.append(f"error between items {row['item_se']:.2g}, apart from the interval")
    return ", ".join(words)
