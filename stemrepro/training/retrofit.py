"""The beginning of a run that resumes from another one: that run's last checkpoint.

In a retrofit it is turned into one of a STEM model.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from stemrepro.config.retrofit import KINDS, check
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.config import JSON
from stemrepro.model.transformer import Decoder
from stemrepro.training.checkpoint import beginning_of
from stemrepro.training.retrofit_rows import retrofitted
from stemrepro.training.run import Run

PREFIX = "model."


def row_text(run: Run, text: TokenBlocks) -> Iterator[Tensor]:
    """Yield the first `row_tokens` tokens that the run before was trained on, in its order.

    Each batch is int64 [sequences, sequence].
    """
    assert run.init_from is not None, f"{run} begins anew"
    size, sequences = run.training.micro_batch, run.init_from.row_tokens // run.training.sequence
    for k in range(-(-sequences // size)):
        yield text.batch(run.seed, k, size)[: sequences - k * size, :-1]


def beginning(run: Run, text: TokenBlocks) -> dict[str, Any]:
    """Return the checkpoint for LanguageModule.take_over; in a retrofit tables replace the up-projections in it.

    Its optimiser's state is by parameter name: nothing about such tables, and about all else what it was.

    Args:
        text: the run's training text.

    Raises:
        UserError: see `beginning_of` and stemrepro.training.retrofit_rows.
    """
    checkpoint = beginning_of(run)
    kind = next((kind for kind in KINDS if run.init_from and kind == run.init_from.tables), None)
    if kind is None:
        return checkpoint
    shape = JSON.validate_python(checkpoint["run_config"]["model"])
    check(shape, run.model)  # before a network is imported that a retrofit can't begin with
    dense = Decoder(shape).eval()
    state = {name.removeprefix(PREFIX): value for name, value in checkpoint["state_dict"].items()}
    dense.load_state_dict(state)
    weights = retrofitted(dense, run.model, row_text(run, text), kind)
    return checkpoint | {"state_dict": {PREFIX + name: value for name, value in weights.items()}}
