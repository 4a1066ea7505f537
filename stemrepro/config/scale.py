"""How big: the fields of recipes/scales/*.yaml, and the variants of recipes/variants.yaml that lie next to a scale."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Factor, Fraction, Name, Positive, Strict, added_later, later
from stemrepro.config.address import MAIN
from stemrepro.config.parallel import Parallel
from stemrepro.config.retrofit import KINDS, Kind
from stemrepro.config.scores import Benchmarks, Evaluation, Geometry, OfSomeScales
from stemrepro.config.training import Training
from stemrepro.model.config import TableInit

Track = Literal["flops", "size"]


class Shape(Strict):
    """Shape of the decoder at a scale."""

    vocab: Positive
    width: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    ffn_width: Positive
    sequence: Positive
    rope_base: Factor = 10000.0
    norm_eps: Factor = 1e-5
    document_mask: bool = False
    embedding_std: Factor | None = Field(None, description="of input embeddings at the start; else 1 / sqrt(width)")
    head_std: Factor | None = Field(None, description="the same of the output head; 1 / sqrt(width) when left out")
    track: Track | None = later(
        None,
        description="what all arms have equal: dense's forward FLOPs, by ffn_width; or STEM full's parameters, "
        "by width and ffn_width together",
    )


@dataclass(frozen=True, kw_only=True)
class Counting:
    """What is counted in the text without any model: distinct tokens and hits of row caches."""

    vocab: Positive  # a second vocabulary, nearer the paper's than the model's is
    length: Positive  # tokens of the longest context
    cache_tokens: Positive  # tokens per source that are streamed through the caches, at most


@dataclass(frozen=True, kw_only=True)
class TunedSettings:
    """Settings at which a family of arms learns best, from the scale's study; a field left out is the scale's."""

    learning_rate: Factor
    table_rate_factor: Factor = 1.0
    table_decay_factor: Annotated[float, added_later(1.0, ge=0)] = 1.0
    table_init: Annotated[TableInit | None, added_later(None)] = None
    embedding_std: Factor | None = None
    head_std: Factor | None = None
    embedding_rate_factor: Factor | None = None
    embedding_decay_factor: Annotated[float | None, Field(ge=0)] = None
    warmup: Fraction | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Its fields that are not the scale's."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class Scale(OfSomeScales):
    """How big: data, shape, budget, seeds."""

    inherits: Name | None = Field(None, description="a scale whose values hold where the file has none")
    data: Name = Field(description="a mix of recipes/mixes.yaml")
    mid: Name | None = Field(None, description="a mix of kind 'blend', for variants that go on with it")
    scoreboard: str = Field(
        pattern=r"^results(/[a-z0-9][a-z0-9.-]*)?$", description="folder of the pages with every claim"
    )
    model: Shape
    training: Training
    evaluation: Evaluation
    benchmarks: Benchmarks
    counting: Counting
    geometry: Geometry
    published: Name | None = Field(None, description="a model of recipes/models.yaml, studied in place of training")
    named_only: bool = Field(False, description="only recipes that name the scale are run at it")
    workers: Positive = Field(description="runs at the same time, as far as there are cores for")
    parallel: Parallel | None = Field(None, description="several devices for each run, one run at a time")
    learning_rate: Factor = Field(description="peak learning rate, the same for every arm as in the paper")
    rate_width: Positive | None = Field(
        None,
        description="width that learning_rate is for: in a model twice as wide it is half as high, but for the input "
        "embeddings, whose rate stays; at every width the same when left out",
    )
    tuned: dict[Name, TunedSettings] = Field({}, description="winners of results/start/sweeps, by family of arms")
    step_times: dict[Name, Factor] = Field({}, description="time of a step / dense's, by arm (benchmarks.engine)")
    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=2**32)], ...],
        Field(min_length=1, description="a recipe takes the first so many"),
    ]

    @model_validator(mode="after")
    def _fits(self) -> "Scale":
        step = self.training.batch * self.model.sequence
        if self.training.tokens % step:
            below = self.training.tokens // step * step
            nearest = f"the nearest are {below} and {below + step}" if below else f"the least is {step}"
            raise ValueError(
                f"training.tokens {self.training.tokens} is no multiple of batch x sequence = {step}; {nearest}"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} names a seed twice")
        if list(self.seeds) != sorted(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} must stand in order: recipes take the first so many")
        return self

    def tuned_of(self, arm: str, family: str) -> TunedSettings | None:
        """Return an arm's tuned settings: its own, else its family's; None where the scale has neither."""
        return self.tuned.get(arm, self.tuned.get(family))

    def step_time(self, arm: str) -> float:
        """Return the time of a training step of an arm over dense's; UserError where the scale doesn't know it."""
        if arm not in self.step_times and arm != "dense":
            remedy = "measure it with benchmarks.engine, for the scale's step_times"
            raise UserError(f"no step time of {arm} is known: {remedy}")
        return self.step_times.get(arm, 1.0)


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A later stage of training that resumes from the finished run of the same arm and seed.

    It keeps the weights and the optimiser's state. It goes on with sequences of another length, with another text, or
    with what follows in the same text. Tables are kept; or drawn and optimised anew, as the official code does after
    init_ckpt_path, with `arm` next to its weights; or made of a dense arm's run (stemrepro.training.retrofit_rows).
    """

    after: Name = MAIN  # the variant at which that run is
    arm: Name | None = None  # the dense arm that tables are made of
    text: Literal["own", "mid"] = "own"  # mid: the blend that the scale names under `mid`
    sequence: Factor = 1.0  # over the scale's tokens per sequence; a step has as many tokens as before
    rope: Factor = 1.0  # over the scale's base of the rotary angles
    document_mask: bool = False  # attention stays inside a document, whatever it does at the scale
    tables: Literal["kept", "anew", Kind] = "kept"

    def __post_init__(self) -> None:
        if self.arm is None and self.tables in KINDS:
            raise ValueError(f"tables '{self.tables}' are made of a dense arm; name it in 'arm'")
        if self.arm is not None and self.tables == "kept":
            raise ValueError(f"arm '{self.arm}': a dense arm has no tables to keep; choose 'anew' or {KINDS}")
        if self.arm and (self.sequence != 1 or self.text != "own"):
            why = "a retrofit goes on with the text that rows are made of, in sequences as long"
            raise ValueError(f"{why}; leave 'sequence' and 'text' out")


NUMBERS = (
    "tokens",
    "warmup_tokens",
    "vocab",
    "width",
    "heads",
    "layers",
    "learning_rate",
    "people",
    "sequence",
    "rope",
)
"""Keys of a variant and its `extends` whose values hold at one scale."""


def own_numbers(scale: Scale, people: int | None) -> dict[str, float | None]:
    """Return a scale's own values of NUMBERS; `people` of its text, where it is about invented people."""
    of_model = {key: getattr(scale.model, key) for key in ("vocab", "width", "heads", "layers", "sequence")}
    of_training = {key: getattr(scale.training, key) for key in ("tokens", "warmup_tokens")}
    others = {"learning_rate": scale.learning_rate, "people": people, "rope": scale.model.rope_base}
    return of_model | of_training | others


def as_ratios(value: dict[str, Any], own: dict[str, float | None]) -> dict[str, Any]:
    """Return a variant of recipes/variants.yaml with its numbers over those of the scale at which they hold."""
    ratios: dict[str, Any] = {}
    for key, number in value.items():
        whole, ratios[key] = own.get(key), number  # `parse` refuses what can't be
        if key == "extends" and isinstance(number, dict):
            ratios[key] = as_ratios(number, own)
        elif whole and isinstance(number, int | float) and not isinstance(number, bool) and number > 0:
            ratios[key] = number / whole
    return ratios


class Variant(Strict):
    """A variant of a scale at which arms are trained too.

    Its numbers are over the scale's own, so that one variant serves all scales. recipes/variants.yaml has them as they
    are at one scale, and `as_ratios` divides.
    """

    tokens: Factor = 1.0
    warmup_tokens: Factor = later(1.0, description="of those that warm up, at a scale whose schedule is wsd")
    vocab: Factor = Field(1.0, description="another vocabulary; tokens are then those of as much text, in bytes")
    width: Factor = Field(1.0, description="of width and ffn_width; the number of heads stays")
    heads: Factor = Field(1.0, description="of the number of query heads; that of key and value heads stays")
    layers: Factor = later(1.0)
    learning_rate: Factor = 1.0
    table_rate: Factor = Field(1.0, description="of every arm's table_rate_factor")
    tuned: bool = Field(
        False,
        description="each arm at the tuned settings of its family, where the scale has them; "
        "`learning_rate` is a factor of theirs",
    )
    people: Factor = Field(1.0, description="of a mix of invented people: another text, each person in it as often")
    extends: Extension | None = Field(None, description="resume from the finished run; `tokens` are of this stage")
    track: Track | None = later(None, description="of the shape; the scale's when left out")
    equal_time: bool = later(False, description="as many steps as fit into the time of dense's, by step_times")
    official_init: bool = Field(False, description="embeddings and head begin and learn as in the official code")

    @property
    def changed(self) -> set[str]:
        """Its fields that make another model, text or optimiser; no run resumes from such a variant."""
        fields = {"vocab", "width", "heads", "layers", "people", "tuned", "official_init", "track", "equal_time"}
        return fields & self.model_fields_set

    @model_validator(mode="after")
    def _fits(self) -> "Variant":
        if self.extends and self.changed:
            strange = min(self.changed)
            raise ValueError(
                f"extends goes on with the scale's own model, text and optimiser; {strange} can't stand with it"
            )
        if self.tuned and self.official_init:
            raise ValueError("tuned brings each family's own initialisation; official_init can't stand next to it")
        return self

    def at(self, scale: Scale) -> Scale:
        """Return the scale at this variant, but for learning rates, which `stemrepro.config.arm.rates` gives.

        With another vocabulary its tokens are still the scale's; RunTraining.same_text gives those of as much text.

        Raises:
            ValueError: heads, layers, a width per head or a vocabulary that are no whole number; or tokens that warm
                up, where the scale's schedule has a share of the steps.
        """
        model, training = scale.model, scale.training
        if self.official_init:
            model = model.model_copy(update={"embedding_std": None, "head_std": None})
            training = training.model_copy(update={"embedding_decay_factor": 1.0})
        width, ffn_width, vocab = self.width * model.width, self.width * model.ffn_width, self.vocab * model.vocab
        heads, layers = self.heads * model.heads, self.layers * model.layers
        if heads % 1 or width % (2 * heads) or ffn_width % 1:
            sizes = f"width {width:g} with {heads:g} heads, ffn_width {ffn_width:g}"
            raise ValueError(f"{sizes}: a head needs an even whole width")
        for name, number in (("vocab", vocab), ("layers", layers)):
            if number % 1:
                raise ValueError(f"{name} {number:g} is no whole number")
        warmup_tokens = training.warmup_tokens
        if warmup_tokens is None and self.warmup_tokens != 1:
            raise ValueError("warmup_tokens are of the schedule wsd; the scale's warms up for a share of the steps")
        step, longer = training.batch * model.sequence, self.extends or Extension()
        sequence, batch = longer.sequence * model.sequence, training.batch / longer.sequence
        if sequence % 1 or batch % 1 or batch < 1:
            sizes = f"{sequence:g} tokens per sequence, {batch:g} of them per step"
            raise ValueError(f"extends.sequence {longer.sequence:g}: {sizes}")
        shape: dict[str, Any] = {
            "width": int(width),
            "heads": int(heads),
            "layers": int(layers),
            "ffn_width": int(ffn_width),
            "vocab": int(vocab),
        }
        shape |= {"sequence": int(sequence), "rope_base": longer.rope * model.rope_base}
        shape |= {"document_mask": model.document_mask or longer.document_mask, "track": self.track or model.track}
        budget = {
            "batch": int(batch),
            "micro_batch": min(training.micro_batch, int(batch)),
            "eval_batch": max(1, int(training.eval_batch / longer.sequence)),
            "tokens": max(1, round(self.tokens * training.tokens / step)) * step,
            "evals": max(1, round(self.tokens * training.evals)),  # as many tokens apart as at the scale
            "warmup_tokens": warmup_tokens and max(1, round(self.warmup_tokens * warmup_tokens)),
        }
        changed = {"model": model.model_copy(update=shape), "training": training.model_copy(update=budget)}
        return scale.model_copy(update=changed)
