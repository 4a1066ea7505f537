"""What a run reads of its text: its micro-batches, and how often it passes over all of it."""

from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import IterableDataset

from stemrepro.common.errors import UserError
from stemrepro.data.blocks import TokenBlocks
from stemrepro.training.run import Run

MOST_EPOCHS = 4
"""Up to so many, repeated text teaches nearly as much as new text (Muennighoff et al. 2023).

Beyond them arms differ in what they memorise.
"""


class Batches(IterableDataset[Tensor]):
    """The micro-batches `start`, start + every, start + 2 every, ... of a seed.

    It has no length: with one, Lightning would count from zero after a resume.
    """

    def __init__(self, text: TokenBlocks, seed: int, size: int, start: int, every: int = 1) -> None:
        self.text, self.seed, self.size, self.start, self.every = text, seed, size, start, every

    def __iter__(self) -> Iterator[Tensor]:
        """Yield int64 [size, sequence + 1]."""
        k = self.start
        while True:
            yield self.text.batch(self.seed, k, self.size)
            k += self.every


def epochs(run: Run, text: TokenBlocks) -> float:
    """Return how many times a run passes over its training text, with the run that it resumes from.

    Raises:
        UserError: more than 4 times.
    """
    planned = run.training.tokens + (run.init_from.tokens if run.init_from else 0)
    available = text.count * text.length
    if planned > MOST_EPOCHS * available:
        raise UserError(
            f"{run}: {planned:,} training tokens are {planned / available:.1f} passes over the {available:,} tokens of "
            f"{text.path}, and more than {MOST_EPOCHS} are refused; plan {MOST_EPOCHS * available:,} tokens or fewer "
            "for it (training.tokens of its scale, times tokens of its variant), or take a larger mix of "
            "recipes/mixes.yaml"
        )
    return planned / available
