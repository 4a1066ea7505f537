"""How big: the fields of recipes/scales/*.yaml, and the points that a recipe sets beside a scale."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stemrepro.records import Strict

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(gt=0)]


class Shape(Strict):
    """Shape of the decoder at a scale."""

    vocab: Positive
    width: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    ffn_width: Positive
    sequence: Positive
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    document_mask: bool = False


class Training(Strict):
    """Training budget and optimiser of a scale; the same for every arm."""

    tokens: Positive = Field(description="tokens a run is trained on")
    batch: Positive = Field(description="sequences an optimiser step")
    micro_batch: Positive = Field(description="sequences at once; the rest is accumulated")
    warmup: Fraction = Field(description="share of the steps with a rising rate")
    final_rate: Fraction = Field(description="rate at the end / peak rate (cosine)")
    betas: tuple[float, float]
    eps: float = 1e-8
    weight_decay: float
    clip: float = Field(
        gt=0, description="norm limit; backbone and tables are clipped separately, as the official code does"
    )
    precision: Literal["32-true", "bf16-mixed", "bf16-true", "16-mixed"]
    accelerator: Literal["cpu", "gpu"]
    threads: Positive = Field(description="threads a worker")
    compile: bool = Field(False, description="torch.compile: faster on a GPU, other roundings")
    marks: Positive = Field(description="validations during a run, evenly spaced")
    mark_tokens: Positive = Field(description="tokens a source at each mark")
    save_every: Positive = Field(description="optimiser steps between checkpoints")
    snapshots: tuple[Fraction, ...] = Field(description="shares of the run after which tables are kept (bfloat16)")

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        if self.batch % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}")
        return self


class Evaluation(Strict):
    """How runs of a scale are scored."""

    tokens: Positive = Field(description="validation tokens a source")
    batch: Positive = Field(description="sequences at once")


class Benchmarks(Strict):
    """Which benchmarks runs of a scale are scored on."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1, description="names of lm-eval tasks")]
    items: Positive = Field(description="items a task, at most")
    batch: Positive = Field(description="sequences at once")
    hub: bool = Field(False, description="lm-eval's own tasks from the Hugging Face hub, not the archive's")


class Counting(Strict):
    """What is counted in the text without any model: distinct tokens and hits of row caches."""

    vocab: Positive = Field(description="a second vocabulary, nearer the paper's than the model's is")
    length: Positive = Field(description="tokens of the longest context")
    cache_tokens: Positive = Field(description="tokens a source that are streamed through the caches, at most")


class Geometry(Strict):
    """How the vectors of a model are compared."""

    tokens: Positive = Field(description="distinct tokens, one occurrence each, whose FFN vectors are compared")
    bins: Positive = Field(description="bins of a density between cosines -1 and 1")


class BestRate(Strict):
    """What a family of arms learns best at, from the scale's learning-rate study."""

    learning_rate: Factor
    table_rate_factor: Factor = 1.0


class Scale(Strict):
    """How big: data, shape, budget, seeds."""

    data: str = Field(description="a mix of recipes/mixes.yaml")
    scoreboard: str = Field(description="folder of the pages with every claim")
    model: Shape
    training: Training
    evaluation: Evaluation
    benchmarks: Benchmarks
    counting: Counting
    geometry: Geometry
    workers: Positive = Field(description="runs at the same time; the operating system shares the cores")
    learning_rate: float = Field(gt=0, description="peak rate, the same for every arm as in the paper")
    best_rates: dict[str, BestRate] = Field(
        default_factory=dict, description="winners of results/<scale>/sweeps/learning_rate, by family of arms"
    )
    seeds: Annotated[tuple[int, ...], Field(min_length=1, description="a recipe takes the first so many")]

    @model_validator(mode="after")
    def _fits(self) -> "Scale":
        step = self.training.batch * self.model.sequence
        if self.training.tokens % step:
            raise ValueError(f"training.tokens {self.training.tokens} is no multiple of batch x sequence = {step}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} names a seed twice")
        return self

    @property
    def steps(self) -> int:
        """Optimiser steps of a run."""
        return self.training.tokens // (self.training.batch * self.model.sequence)


class Point(Strict):
    """A place beside a scale at which a recipe trains its arms too: factors of the scale's own values."""

    tokens: Factor = 1.0
    vocab: Factor = Field(1.0, description="a vocabulary of its own; tokens are then those of as much text, in bytes")
    width: Factor = Field(1.0, description="of width and ffn_width; the number of heads stays")
    rate: Factor = 1.0
    clip: Factor = 1.0
    own_rate: bool = Field(False, description="`rate` is of each arm's best, where the scale knows its family's")
    arms: tuple[str, ...] = Field((), description="only these of the recipe's point_arms")

    def at(self, scale: Scale) -> Scale:
        """The scale at this point; with a vocabulary of its own still with the scale's tokens (see `same_text`).

        Raises:
            ValueError: a width that is no even number a head, or a vocabulary that is no whole number.
        """
        model, training = scale.model, scale.training
        width, ffn_width, vocab = self.width * model.width, self.width * model.ffn_width, self.vocab * model.vocab
        if width % (2 * model.heads) or ffn_width % 1:
            raise ValueError(
                f"width {width:g} with {model.heads} heads, ffn_width {ffn_width:g}: a head needs an even whole width"
            )
        if vocab % 1:
            raise ValueError(f"vocab {vocab:g} is no whole number")
        return scale.model_copy(update={
            "model": model.model_copy(update={"width": int(width), "ffn_width": int(ffn_width), "vocab": int(vocab)}),
            "training": training.model_copy(update={
                "tokens": whole_steps(self.tokens * training.tokens, scale), "clip": self.clip * training.clip,
                "marks": max(1, round(self.tokens * training.marks)),  # as many tokens apart as at the scale
            }),
            "learning_rate": self.rate * scale.learning_rate,
        })  # fmt: skip


def whole_steps(tokens: float, scale: Scale) -> int:
    """`tokens`, rounded to optimiser steps of a scale; one at least."""
    step = scale.training.batch * scale.model.sequence
    return max(1, round(tokens / step)) * step


def same_text(scale: Scale, ratio: float) -> Scale:
    """The scale with the tokens, in training and scoring, that the same text has in another vocabulary.

    Args:
        ratio: tokens of a text in that vocabulary / in the scale's.
    """
    training, evaluation = scale.training, scale.evaluation
    return scale.model_copy(update={
        "training": training.model_copy(update={
            "tokens": whole_steps(ratio * training.tokens, scale), "mark_tokens": round(ratio * training.mark_tokens),
        }),
        "evaluation": evaluation.model_copy(update={"tokens": round(ratio * evaluation.tokens)}),
    })  # fmt: skip
