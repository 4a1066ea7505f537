"""What is compared: an arm's fields (recipes/arms.yaml), and the model that they make of a shape."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from pydantic import Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Factor, Name, Positive, Strict, later
from stemrepro.config.address import Address
from stemrepro.config.scale import Scale, Shape, Track, TunedSettings, Variant
from stemrepro.config.training import RunTraining, TableUpdate
from stemrepro.model.config import ModelConfig, TableInit, layers_of
from stemrepro.model.cost import flops_per_token, half_of_the_model, nearest, parameter_counts
from stemrepro.model.needs import check, declared, memory_needs

Placement = Literal["none", "third", "third-shifted", "early", "late", "half", "full", "single", "ends"]
HUES = {
    "black": "#333333",
    "blue": "#0173b2",
    "orange": "#de8f05",
    "green": "#029e73",
    "red": "#d55e00",
    "purple": "#cc78bc",
    "brown": "#ca9161",
    "pink": "#fbafe4",
    "grey": "#949494",
    "yellow": "#ded11f",
    "cyan": "#56b4e9",
}
"""Colours of seaborn that the colour-blind tell apart, with a yellow that shows on white, and black."""
MARKERS = "osD^v<>pPXhHd*8.x+"
"""Markers of matplotlib that are easily told apart at a figure's size."""


class Arm(Strict):
    """One model, as a few fields over the dense base. The defaults are those of the official code."""

    ffn: str = Field(description="a name of stemrepro/model/ffn, or a class in your file: my/file.py:Class")
    placement: Placement
    label: str = Field("", exclude=True, description="in figures; its name when left out")
    hue: str = Field("grey", exclude=True, description="in figures, one a family of arms: a name of HUES")
    marker: str = Field("o", min_length=1, max_length=1, exclude=True, description="in figures, as matplotlib's")
    source: str = Field("", exclude=True, description="publication that it follows as published; empty: nobody's")
    family: Name | Literal[""] = Field(
        "", exclude=True, description="whose tuned settings it takes for want of its own"
    )
    values: Placement = Field("none", description="layers whose attention adds a table row to its values")
    pairs: bool = Field(False, description="a hashed pair's row is added to the input; half of the model at most")
    memory: str = later("", description="a name of stemrepro/model/memory: a memory outside of the FFNs")
    memory_placement: Placement = later("none", description="layers in which the memory adds something")
    memory_rows: float = later(0.0, ge=0, description="rows of the memory's hashed tables / rows of the vocabulary")
    rank: float = Field(0.0, ge=0, description="width of a narrow table / width of the model")
    slots: int = Field(0, ge=0, description="rows per token in a table (stem-slots, joint-token-mixture, mome)")
    ffn_factor: Factor = Field(1.0, description="ffn_width / the shape's, in all layers; see recipes/arms.yaml")
    experts: int = Field(0, ge=0, description="experts of a mixture; 0 with `match`: as many as match")
    top_k: Positive = Field(1, description="experts that a token uses, or rows of its `slots`")
    match: Literal["none", "total", "flops", "shape"] = Field(
        "none",
        description="what is made equal to match_ffn's, by ffn_width in all layers or by the number of experts; "
        "shape: the total, width and ffn_width growing together",
    )
    match_ffn: Literal["stem", "dense"] = Field("stem", description="FFN of the model that is matched")
    match_placement: Placement = Field("full", description="placement of the FFN that is matched")
    table_init: TableInit = "xavier"
    table_rate_factor: Factor = Field(1.0, description="table learning rate / backbone learning rate")
    table_decay_factor: float = Field(1.0, ge=0, description="table weight decay / backbone weight decay")
    table_update: TableUpdate = "dense"
    table_trained: bool = True
    table_shared: bool = Field(False, description="one table for all replaced layers")

    @model_validator(mode="after")
    def _fits(self) -> "Arm":
        if self.hue not in HUES:
            raise ValueError(f"hue '{self.hue}' is unknown: choose one of {', '.join(HUES)}")
        if self.marker not in MARKERS:
            raise ValueError(f"marker '{self.marker}' is unknown: choose one of {MARKERS}")
        if "$" in self.label:
            raise ValueError(f"label '{self.label}' holds a $, which figures take for a formula")
        try:
            network = declared(self.ffn)
            grows_by, needs = network.grows_by, (*network.needs, *memory_needs(self.memory))
        except UserError as error:
            raise ValueError(str(error)) from error
        if self.match != "none" and not grows_by:
            raise ValueError(f"match '{self.match}' works by ffn_width or experts; '{self.ffn}' has neither to choose")
        if self.slots and "slots" not in needs:
            raise ValueError(f"slots {self.slots}: '{self.ffn}' has one row per token, stem-slots has several")
        if self.match != "none" and self.ffn_factor != 1:
            raise ValueError(f"ffn_factor {self.ffn_factor:g} and match '{self.match}' both choose a size: drop one")
        if self.match in ("flops", "shape") and grows_by != "ffn_width":
            remedy = f"'{self.ffn}' grows by {grows_by}, use match 'total'"
            raise ValueError(f"match '{self.match}' works by ffn_width; {remedy}")
        return self

    @property
    def is_control(self) -> bool:
        """Whether its label says so."""
        return self.label.endswith("(control)")


DENSE = Arm.model_construct(ffn="dense", placement="none")  # unchecked, or this module would import torch
STEM_FULL = Arm.model_construct(ffn="stem", placement="full")
"""The arms that set the FLOPs and the parameters of a track."""
LARGE = 10**7
"""Parameters from which on a model is one for GPUs, whose matrix units want multiples of 8."""


@cache
def shaped(shape: Shape, arm: Arm) -> ModelConfig:
    """Return the model of an arm in a shape; recipes ask for most of them several times.

    On a track its size is what the track asks for, unless the arm has a `match` or an `ffn_factor` of its own.

    Raises:
        UserError: the shape fits no model, the placement replaces no layer, or no size fits the track.
    """
    plain = shape.model_copy(update={"track": None})
    if arm.match == "shape":
        return _of_equal_size(plain, arm, Arm(ffn=arm.match_ffn, placement=arm.match_placement))
    if shape.track is None or arm.match != "none" or arm.ffn_factor != 1:
        return _shaped(plain, arm)
    if shape.track == "size":
        return _of_equal_size(plain, arm, STEM_FULL)
    return _of_equal(plain, arm, lambda config: flops_per_token(config, shape.sequence), _shaped(plain, DENSE))


def changes_width(track: Track | None, arm: Arm) -> bool:
    """Return whether an arm may have another width than its shape."""
    return arm.match == "shape" or track == "size"


def _parameters(config: ModelConfig) -> int:
    return parameter_counts(config)["total"]


def _of_equal(
    shape: Shape, arm: Arm, size: Callable[[ModelConfig], int], target: ModelConfig, multiple: int = 1
) -> ModelConfig:
    """Return the model of an arm whose size is nearest to the target's, by ffn_width, a multiple, in all layers."""
    aim = size(target)

    def of(number: int) -> ModelConfig:
        return _shaped(shape.model_copy(update={"ffn_width": number * multiple}), arm)

    if size(of(1)) > aim:
        lack = f"ffn '{arm.ffn}' can't have {aim:,} FLOPs or parameters"
        raise UserError(f"{lack}: an ffn_width of {multiple} is too many")
    return nearest(of, size, aim)


def _of_equal_size(shape: Shape, arm: Arm, other: Arm) -> ModelConfig:
    """Return the model of an arm with another's parameters, in a shape that one would train at that size.

    Heads as wide as the shape's, and d_ff / width as it was, come nearest to the target; ffn_width then meets it. Where
    every head has keys and values of its own, so it is in the larger model too. From LARGE on d_ff is a multiple of 8.

    Raises:
        UserError: as in `_of_equal`.
    """
    arm, target, head = arm.model_copy(update={"match": "none"}), _shaped(shape, other), shape.width // shape.heads
    own = shape.kv_heads == shape.heads > 1
    step, aim = 1 if own else shape.kv_heads, _parameters(target)

    def of(groups: int) -> Shape:
        heads = groups * step
        width = heads * head
        ffn_width = round(width * shape.ffn_width / shape.width)
        grown = {"width": width, "heads": heads, "ffn_width": ffn_width}
        return shape.model_copy(update=grown | ({"kv_heads": heads} if own else {}))

    def model(groups: int) -> ModelConfig:
        return _shaped(of(groups), arm)

    grown = nearest(model, _parameters, aim)
    return _of_equal(of(grown.heads // step), arm, _parameters, target, 8 if aim >= LARGE else 1)


@cache
def _shaped(shape: Shape, arm: Arm) -> ModelConfig:
    base = shape.model_dump(exclude={"sequence", "track"})
    base["ffn_width"] = max(1, round(arm.ffn_factor * shape.ffn_width))
    config = ModelConfig(
        **base,
        ffn=arm.ffn,
        replaced_layers=layers_of(arm.placement, shape.layers),
        value_layers=layers_of(arm.values, shape.layers),
        rank=round(arm.rank * shape.width),
        slots=arm.slots,
        experts=arm.experts or (arm.top_k if "experts" in declared(arm.ffn).needs else 0),
        top_k=arm.top_k,
        table_init=arm.table_init,
        table_shared=arm.table_shared,
    )
    if arm.memory:
        places = layers_of(arm.memory_placement, shape.layers)
        rows = round(arm.memory_rows * shape.vocab)
        config = replace(config, memory=arm.memory, memory_layers=places, memory_rows=rows)
    if arm.match in ("total", "flops"):
        target = _shaped(shape, Arm(ffn=arm.match_ffn, placement=arm.match_placement))
        by_experts = declared(arm.ffn).grows_by == "experts"

        def of(value: int) -> ModelConfig:
            return replace(config, experts=value) if by_experts else replace(config, ffn_width=value)

        def size(grown: ModelConfig) -> int:
            return _parameters(grown) if arm.match == "total" else flops_per_token(grown, shape.sequence)

        config = nearest(of, size, size(target), max(1, arm.top_k))
    if arm.pairs:
        config = replace(config, pair_rows=half_of_the_model(config))
    check(config)
    return config


def rates(
    arm: Arm, variant: Variant, scale: Scale, tuned: TunedSettings | None, wider_by: float
) -> dict[str, dict[str, float]]:
    """Return the learning rates of a run after each of the three steps that decide them; the last one's hold.

    `learning_rate` is the peak of all but input embeddings and tables, whose own are factors of it.

    Args:
        tuned: of the arm or its family, where the variant takes it.
        wider_by: width of the model / the width that the learning rate was found at.
    """
    embeddings = 1.0 if variant.official_init else scale.training.embedding_rate_factor
    of_scale = {
        "learning_rate": variant.learning_rate * scale.learning_rate,
        "embedding_rate_factor": embeddings,
        "table_rate_factor": variant.table_rate * arm.table_rate_factor,
    }
    own = of_scale
    if tuned:
        own = {
            "learning_rate": variant.learning_rate * tuned.learning_rate,
            "embedding_rate_factor": tuned.embedding_rate_factor or embeddings,
            "table_rate_factor": variant.table_rate * tuned.table_rate_factor,
        }
    # In a model twice as wide the rate is half as high, and that of the input embeddings stays.
    at_width = own | {
        "learning_rate": own["learning_rate"] / wider_by,
        "embedding_rate_factor": own["embedding_rate_factor"] * wider_by,
    }
    return {"scale": of_scale, "tuned": own, "width rule": at_width}


@dataclass(frozen=True)
class Settings:
    """Model and training of a run, and what they were made of."""

    model: ModelConfig
    training: RunTraining
    changed: Scale  # at the variant
    tuned: dict[str, Any]  # fields that the study of the arm's family has set
    rates: dict[str, dict[str, float]]  # step by step


def run_settings(address: Address, arm: Arm, variant: Variant, scale: Scale) -> tuple[ModelConfig, RunTraining]:
    """Return model and training of an arm at a variant of a scale.

    Raises:
        UserError: as `shaped` does, or its step was not timed, which equal time needs.
        ValueError: as Variant.at does.
    """
    settings = merged_settings(address, arm, variant, scale)
    return settings.model, settings.training


def merged_settings(address: Address, arm: Arm, variant: Variant, scale: Scale) -> Settings:
    """Return the same with what it was made of."""
    changed = variant.at(scale)
    best = scale.tuned_of(address.arm, arm.family) if variant.tuned else None
    tuned = best.given if best else {}
    if "table_init" in tuned:
        arm = arm.model_copy(update={"table_init": tuned["table_init"]})
    shape = changed.model.model_copy(update={key: tuned[key] for key in ("embedding_std", "head_std") if key in tuned})
    model = shaped(shape, arm)
    # A study finds an arm's own rate at the width that the arm has at the scale.
    studied = shaped(scale.model, arm).width if best else scale.rate_width
    steps = rates(arm, variant, scale, best, model.width / studied if studied and scale.rate_width else 1.0)
    fields = changed.training.model_dump()
    fields |= {key: tuned[key] for key in ("embedding_decay_factor", "warmup") if key in tuned}
    if variant.equal_time:
        step = changed.training.batch * changed.model.sequence
        fields["tokens"] = max(1, round(fields["tokens"] / step / scale.step_time(address.arm))) * step
    fields |= {
        "sequence": changed.model.sequence,
        "table_decay_factor": arm.table_decay_factor * (best.table_decay_factor if best else 1),
        "table_update": arm.table_update,
        "table_trained": arm.table_trained,
    }
    return Settings(model, RunTraining(**fields | steps["width rule"]), changed, tuned, steps)
