"""A claim's row in words: its numbers, where they come from, and the evidence."""

import math
import re

from stemrepro.report.ladder import Ladder, agreement, beside

SURE = {"read": "", "inferred": "computed: ", "secondary": "second-hand: ", "figure": "read off an image: "}


def number(value: float, sign: bool = True) -> str:
    """Three decimals below 10, else fewer; with a sign for effects."""
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:{'+' if sign else ''}.{digits}f}"


def printed(row: dict, value: float, more: int = 0) -> str:
    """Return a number of an exact claim, with the digits that its rounding or the paper's own number has, and `more`; counts are whole."""
    given = f"{row['paper']['value'] if row['paper'] else row['expected']:g}".partition(".")[2]
    digits = max(len(given), round(-math.log10(2 * row["smallest_effect"]))) + more
    return f"{value:.0f}" if value == int(value) and not given else f"{value:.{digits}f}"


def ours(row: dict) -> str:
    """Our number with its interval."""
    if row["ours"] is None:
        return "-"
    value = printed(row, row["ours"], 2) if row["kind"] == "exact" else number(row["ours"])
    level = "" if row["level"] is None else f" at {100 * row['level']:.3g}%"
    interval = "" if row["ci_low"] is None else f" ({number(row['ci_low'])} to {number(row['ci_high'])}{level})"
    return f"{value}{interval} {row['unit']}"


def paper(row: dict) -> str:
    """Return the paper's number."""
    if not row["paper"]:
        return "no number" if row["origin"] == "paper" else "not in the paper"
    value, unit = row["paper"]["value"], row["paper"]["unit"]
    return f"{printed(row, value) if row['kind'] == 'exact' else number(value)} {unit}"


def source(row: dict) -> str:
    """Return where the paper's number is from and how sure that is."""
    return f"{SURE[row['paper']['confidence']]}{row['paper']['source']}" if row["paper"] else ""


def contrast(row: dict) -> str:
    """Return arms and metric in short."""
    arms = " against ".join(dict.fromkeys(row["arms"]))
    return f"{arms}, {row['metric']}" if arms else row["metric"]


def evidence(row: dict) -> str:
    """Seeds, and both errors where there are two."""
    if row["kind"] == "exact":
        return "computed, no chance involved"
    if row["ours"] is None:
        return "not measured"
    words = [f"{row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"]
    if row["unit"] == "variants" and row["ci_low"] is not None and max(-row["ci_low"], row["ci_high"]) > 100:
        words.append("a t interval, which doesn't know that 100 points are the most there is")
    if row["seed_se"]:
        words.append(f"error between seeds {row['seed_se']:.2g}")
    if row["item_se"]:
        words.append(f"between items {row['item_se']:.2g}")
    if row.get("tuned") is not None:
        words.append(f"at own best learning rates {number(row['own_rate'])}")
    if row.get("official_init") is not None:
        same = "the same sign" if row["official_init_agrees"] else "the same sign is not shown"
        words.append(f"at the official start {number(row['official_start'])} ({same})")
    return ", ".join(words)


def at_long_end(row: dict, ladder: Ladder) -> str:
    """Return the same comparison at the ladder's last rung, in words; empty where it has none."""
    if not (rungs := beside(row, ladder)):
        return ""
    end = rungs[-1]
    effect = f"{number(end.mean)} ({number(end.low)} to {number(end.high)} at 95%)"
    return f"after {end.tokens_a_parameter:.0f} tokens a parameter (ladder) {effect}: {agreement(row, end)}"


def paper_items(text: str) -> list[str]:
    """Return the tables and figures of the paper that a text names, one by one: "Tables 4 to 6" are "table 4", "table 5" and "table 6"."""
    text = re.sub(r"(\d+) to (\d+)", lambda ends: ", ".join(map(str, range(int(ends[1]), int(ends[2]) + 1))), text)
    found = re.finditer(r"\b(Tab|Fig)[a-z]*\.?\s+(\d+\w?(?:(?:,\s*|\s+and\s+)\d+\w?)*)", text)
    kinds = {"Tab": "table", "Fig": "fig"}
    return list(
        dict.fromkeys(
            f"{kinds[kind]} {n}" for kind, many in (m.groups() for m in found) for n in re.findall(r"\d+\w?", many)
        )
    )
