"""The price of a plan on the devices that its scale is meant for: by address, and in all."""

from dataclasses import dataclass

from stemrepro.config.address import Address
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Machine
from stemrepro.measures import price
from stemrepro.model.cost import parameter_counts
from stemrepro.pipeline.planned import Params

COLUMNS = ("run", "total", "active", "EFLOP", "device-hours", "dollars", "GB a device", "of it tables", "GB a step")


@dataclass(frozen=True)
class Row:
    """The price of all runs of an address; numbers are of one run but `flops`, hours and dollars, which are of all."""

    address: Address
    total: int
    active: int
    flops: float
    hours: tuple[float, float]
    dollars: tuple[float, float]
    memory: price.Memory
    traffic: float

    @property
    def cells(self) -> tuple[str, ...]:
        """What the table says, in the order of COLUMNS."""
        return (
            str(self.address), f"{self.total / 1e9:.3f} B", f"{self.active / 1e9:.3f} B", f"{self.flops / 1e18:,.0f}",
            band(self.hours), band(self.dollars), f"{self.memory.total / 1e9:.1f}", f"{self.memory.tables / 1e9:.1f}",
            f"{self.traffic / 1e9:.1f}",
        )  # fmt: skip


@dataclass(frozen=True)
class Disk:
    """Bytes on disk: of text, of the checkpoints of one run under way and of those that others resume from, of weights.

    The text is counted as token blocks, each once.
    """

    blocks: int
    checkpoints: int
    weights: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.blocks + self.checkpoints + self.weights


def band(ends: tuple[float, float]) -> str:
    """Write the two ends of a band."""
    return f"{ends[0]:,.0f} to {ends[1]:,.0f}"


def prices(catalog: Catalog, params: Params, machine: Machine) -> list[Row]:
    """Return the price of every planned address, in the plan's order."""
    (scale,), rows = params.scales, []
    parallel = catalog.scale(scale).parallel
    for address, run in params.planned(scale).items():
        counts = parameter_counts(run.model)
        flops = len(run.trained) * price.training_flops(run.model, run.training)
        hours = price.device_hours(flops, machine)
        dollars = machine.dollars_per_hour * hours[0], machine.dollars_per_hour * hours[1]
        memory = price.memory(run.model, run.training, parallel)
        traffic = price.traffic(run.model, run.training, parallel)
        rows.append(Row(address, counts["total"], counts["active"], flops, hours, dollars, memory, traffic))
    return rows


def disk(params: Params) -> Disk:
    """Return the bytes of disk that a plan needs, where text is passed over once."""
    (scale,) = params.scales
    planned = params.planned(scale)
    texts: dict[tuple, int] = {}
    for run in planned.values():
        text = run.model.vocab, run.people, run.text
        before = run.init_from.tokens_of(run.text) if run.init_from else 0
        texts[text] = max(texts.get(text, 0), before + run.training.tokens)
    parents = {Address(run.init_from.variant, run.init_from.arm or address.arm)
               for address, run in planned.items() if run.init_from}  # fmt: skip
    under_way = price.CHECKPOINTS * max((price.checkpoint_bytes(run.model) for run in planned.values()), default=0)
    kept = sum(len(planned[at].trained) * price.checkpoint_bytes(planned[at].model) for at in parents if at in planned)
    return Disk(
        sum(price.block_bytes(tokens, vocab) for (vocab, *_), tokens in texts.items()),
        under_way + kept,
        sum(len(run.trained) * price.weight_bytes(run.model, run.training) for run in planned.values()),
    )


def total_hours(rows: list[Row]) -> tuple[float, float]:
    """Return the two ends of the device-hours of all rows."""
    return sum(row.hours[0] for row in rows), sum(row.hours[1] for row in rows)


def assumptions(catalog: Catalog, params: Params, machine: Machine) -> list[str]:
    """Return in sentences what the prices are of, and what they assume."""
    (scale,), rows, need = params.scales, prices(catalog, params, machine), disk(params)
    parallel, low, high = catalog.scale(scale).parallel, *machine.utilisation
    hours = total_hours(rows)
    dollars = machine.dollars_per_hour * hours[0], machine.dollars_per_hour * hours[1]
    devices = parallel.ranks if parallel else 1
    days = hours[0] / devices / 24, hours[1] / devices / 24
    return [
        f"In all {band(hours)} hours of one {machine.device}, {band(dollars)} dollars; {band(days)} days on {devices}.",
        f"Assumed: {machine.flops / 1e12:,.0f} TFLOP/s at the peak, of which {low:.0%} to {high:.0%} are reached "
        f"(MFU), and {machine.dollars_per_hour:g} dollars an hour and device.",
        "FLOPs are forward and backward, with every query against every key; the scoring comes on top.",
        f"Memory: weights, gradients and AdamW's moments in float32, and logits of `loss_tokens` with their gradient; "
        f"other activations come on top. A device has {machine.memory_gb:g} GB.",
        "A step's traffic: bytes that a device receives; distinct tokens are estimated by a Zipf law.",
        f"Disk: {need.blocks / 1e9:,.0f} GB of token blocks, {need.checkpoints / 1e9:,.0f} GB of checkpoints, "
        f"{need.weights / 1e9:,.0f} GB of weights.",
    ]


def markdown(catalog: Catalog, params: Params, machine: Machine) -> str:
    """Write the table and its assumptions for a page."""
    heads = [COLUMNS, ("---", *["--:"] * (len(COLUMNS) - 1))]
    lines = [*heads, *(row.cells for row in prices(catalog, params, machine))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n" + "\n".join(assumptions(catalog, params, machine))
