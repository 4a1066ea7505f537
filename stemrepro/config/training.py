"""What decides a training run, its model apart: budget, optimiser, how tables are trained."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stemrepro.common.yaml_records import Factor, Fraction, Positive, Strict, later

Beta = Annotated[float, Field(ge=0, lt=1)]
TableUpdate = Annotated[
    Literal["dense", "touched", "rowwise"],
    Field(
        description="dense: AdamW, as the official code; touched: only rows of a batch's tokens move; "
        "rowwise: one second moment per row"
    ),
]


class Training(Strict):
    """Training budget and optimiser of a scale; the same for every arm."""

    tokens: Positive = Field(description="tokens that a run is trained on")
    batch: Positive = Field(description="sequences per optimiser step")
    micro_batch: Positive = Field(description="sequences at once; the rest is accumulated")
    schedule: Literal["cosine", "wsd"] = Field("cosine", description="wsd: warm-up, a phase that runs share, decay")
    warmup: Fraction | None = Field(None, description="share of the steps that warm up (cosine)")
    warmup_tokens: Positive | None = Field(None, description="tokens that warm up (wsd)")
    decay: Fraction = Field(0.2, description="share of the steps that decay (wsd)")
    final_rate: Fraction = Field(description="final learning rate / peak learning rate")
    betas: tuple[Beta, Beta]
    eps: Factor = 1e-8
    weight_decay: float = Field(ge=0)
    embedding_rate_factor: Factor = Field(1.0, description="learning rate of the input embeddings / backbone's")
    embedding_decay_factor: float = Field(1.0, ge=0, description="their weight decay / backbone's")
    clip: Factor = Field(description="norm limit; of backbone and tables apart, as the official code does")
    precision: Literal["32-true", "bf16-mixed", "bf16-true", "16-mixed"]
    accelerator: Literal["cpu", "gpu"]
    threads: Positive = Field(description="threads per worker")
    compile: bool = Field(False, description="torch.compile: faster, other roundings; eager without compiler")
    mkl_avx512: bool = later(
        False,
        description="MKL's AVX-512 kernels on processors of other makers than Intel too: faster, other roundings; "
        "where they can't be had a run is trained without and records it",
    )
    loss_tokens: Positive | None = later(
        None,
        description="tokens whose logits are in memory at a time, where those of a batch are too many: the backward "
        "pass makes them anew, other roundings; all when left out",
    )
    evals: Positive = Field(description="evaluations during a run, evenly spaced; under wsd, per doubling of the steps")
    eval_tokens: Positive = Field(description="validation tokens per source at each evaluation")
    eval_batch: Positive = Field(description="sequences at once at an evaluation")
    save_every: Positive = Field(description="optimiser steps between checkpoints")
    snapshots: tuple[Fraction, ...] = Field(description="shares of the run after which tables are kept (bfloat16)")

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        if self.batch % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}")
        if self.schedule == "cosine" and (self.warmup is None or self.warmup_tokens is not None):
            raise ValueError("schedule 'cosine' needs warmup, and no warmup_tokens")
        if self.schedule == "wsd" and (self.warmup_tokens is None or self.warmup is not None):
            raise ValueError("schedule 'wsd' needs warmup_tokens, and no warmup")
        return self


class RunTraining(Training):
    """The same of one run, with what its arm and variant add."""

    sequence: Positive = Field(description="tokens per sequence")
    learning_rate: Factor = Field(description="peak learning rate")
    table_rate_factor: Factor = Field(1.0, description="table learning rate / backbone learning rate")
    table_decay_factor: float = Field(1.0, ge=0, description="table weight decay / backbone weight decay")
    table_update: TableUpdate = "dense"
    table_trained: bool = True

    @model_validator(mode="after")
    def _whole(self) -> "RunTraining":
        step = self.batch * self.sequence
        if self.tokens % step:
            raise ValueError(f"tokens {self.tokens} is no multiple of batch x sequence = {step}")
        return self

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        return self.tokens // (self.batch * self.sequence)

    @property
    def warmup_steps(self) -> int:
        """Steps of the warm-up."""
        if self.warmup_tokens is not None:
            return max(1, round(self.warmup_tokens / (self.batch * self.sequence)))
        assert self.warmup is not None  # see Training._fits
        return max(1, round(self.warmup * self.steps))

    def same_text(self, ratio: float) -> "RunTraining":
        """Return the same with the tokens of as much text in another vocabulary: `ratio` times as many, whole steps."""
        step = self.batch * self.sequence
        tokens = max(1, round(ratio * self.tokens / step)) * step
        return self.model_copy(update={"tokens": tokens, "eval_tokens": round(ratio * self.eval_tokens)})
