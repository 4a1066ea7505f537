"""The estimated cost of a plan, and its arms as a table."""

import math
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from stemrepro.cli.cost_table import short
from stemrepro.common.progress import duration
from stemrepro.common.workers import cores
from stemrepro.config.arm import shaped
from stemrepro.config.catalog import Catalog
from stemrepro.model.cost import flops_per_token, parameter_counts, table_bytes_per_token
from stemrepro.pipeline.plan import PASSES, TOKEN_BYTES, Plan, most_tokens

CORE_FLOPS = 4e10  # of training, each second of one core at the laptop scale
GPU_FLOPS = 4e14  # 40% of an H100's peak (989e12 in bf16)
MANY = 7 * 86_400  # seconds; a longer plan isn't meant for a CPU


def estimate(plan: Plan) -> dict[str, float]:
    """Estimate runs, tokens, FLOPs, seconds on this machine's CPU and bytes of disk of a plan's training."""
    total: dict[str, float] = {"runs": 0, "tokens": 0, "flops": 0.0, "disk": 0}
    threads = 1
    for planned in plan.runs.values():
        counts, seeds, training = parameter_counts(planned.model), len(planned.trained), planned.training
        tokens, threads = training.tokens, training.threads
        total["runs"] += seeds
        total["tokens"] += seeds * tokens
        total["flops"] += planned.flops
        total["disk"] += seeds * (4 * counts["total"] + len(training.snapshots) * 2 * counts["tables"])
    parallel = min(cores(), plan.scale.workers * threads)
    return total | {"seconds": total["flops"] / CORE_FLOPS / parallel}


def show_arms(catalog: Catalog, scale_name: str, names: list[str], console: Console) -> None:
    """Print arms as one table: layers, parameters, forward FLOPs and bytes of table rows per token (4 per number)."""
    scale = catalog.scale(scale_name)
    columns = ("arm", "layers", "d_ff", "exp.", "total", "active", "tables", "FLOP", "bytes")
    table = Table(*columns, title=f"{scale_name}: arms", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns:  # a line may break only in lists of layers
        column.no_wrap, column.overflow = column.header != "layers", "fold"
    for column in table.columns[2:]:
        column.justify = "right"
    table.columns[1].min_width = len("layers")
    for name in names:
        config = shaped(scale.model, catalog.arms[name])
        counts = parameter_counts(config)
        sizes = (counts[key] for key in ("total", "active", "tables"))
        flops = flops_per_token(config, scale.model.sequence)
        layers = ranges(config.replaced_layers or config.value_layers or config.memory_layers)
        numbers = (short(number).replace(" ", "") for number in (*sizes, flops, table_bytes_per_token(config, 4)))
        table.add_row(name, layers, f"{config.ffn_width:,}", str(config.experts or ""), *numbers)
    console.print(table)
    console.print(
        "layers: those replaced, or with a memory; exp.: experts; total, active, tables: parameters, "
        "active ones less tables and unused experts; FLOP: forward, per token; bytes: of table rows, per token"
    )


def track_lines(catalog: Catalog, plan: Plan) -> list[str]:
    """Return a line for each variant on a track of its own: d_ff over width of its arms' models."""
    shapes: dict[str, list[str]] = {}
    for address, run in plan.runs.items():
        if catalog.variant(address.variant).track:
            share = run.model.ffn_width / run.model.width
            shapes.setdefault(address.variant, []).append(f"{address.arm} {share:.1f}")
    return [f"d_ff / width at {variant}: {', '.join(arms)}" for variant, arms in shapes.items()]


def ranges(layers: tuple[int, ...]) -> str:
    """Abbreviate layers: "1-5, 7"; "none" for none."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"


def line(plan: Plan) -> str:
    """Return the estimate of a plan in one line."""
    cost, variants = estimate(plan), len({address.variant for address in plan.runs})
    arms = {address.arm for address in plan.runs}
    time = f"about {duration(cost['seconds'])} of training on this machine's CPU"
    if cost["seconds"] > MANY:
        time += f", or {cost['flops'] / GPU_FLOPS / 86_400:,.1f} days of one H100 at 40% of its peak"
    return (
        f"{plan.name}: {cost['runs']} runs ({len(arms)} arms at {variants} variants), {cost['tokens']:,} tokens, "
        f"{cost['flops']:.2g} FLOPs: {time}, {cost['disk'] / 1e6:,.0f} MB of weights in runs/"
    )


def text_line(plan: Plan) -> str:
    """Return in one line what is known of a plan's text before it is read, and what counts its tokens."""
    mix, longest = plan.mix, max(run.read for run in plan.runs.values())
    most, has = most_tokens(mix), f"how many tokens mix '{plan.scale.data}' has is not known yet"
    if most and mix.kind != "hub":
        has = f"mix '{plan.scale.data}' has at most {most:,} tokens, and the longest run reads {longest:,}"
    if mix.kind == "hub":
        size = float(mix.megabytes)
        if mix.local:
            files = (path for path in Path(mix.dataset).rglob("*") if path.is_file())
            size = min(size, sum(path.stat().st_size for path in files) / 1e6)
        passes = longest * TOKEN_BYTES / 1e6 / size if size else math.inf
        shown = f"{size:,.0f}" if size >= 10 else f"{size:.3g}"
        has = f"mix '{plan.scale.data}' has at most {shown} MB, which the longest run would pass over about "
        has += f"{passes:,.2g} times (at {TOKEN_BYTES} bytes a token, packed files not unpacked); '{mix.dataset}' is "
        has += "a folder here" if mix.local else "no folder here, and so a dataset of the hub"
    counted = f"'stemrepro data --scale {plan.name}' counts its tokens"
    return f"text: {has}; {counted}, and 'stemrepro train' refuses more than {PASSES} passes"
