"""A ladder's next rung, foretold from those below it, before it is run.

Every seed's own power law is drawn on to the next rung: the spread between these is the error over seeds. How far the laws miss the rungs
that they were fitted to is the other error, by bootstrap of the residuals of the seed-averaged ladder. Both enter one t interval as the
errors over seeds and over items do in any contrast.
"""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.measures.fits import fit

FITTED = 3
"""Parameters of a law over tokens."""
DRAWS = 200


def forecast(tokens: np.ndarray, ladders: tuple[np.ndarray, ...], signs: tuple[int, ...], at: float) -> Contrast:
    """The signed sum of arms' losses (1 and -1: their gap) at a rung that isn't in the fit, by seed; its `interval` is the prediction's.

    With three rungs nothing is left over to say how well such a law fits, and the interval holds the seeds alone.

    Args:
        tokens: of the rungs below [rungs].
        ladders: an array of losses [rungs, seeds] an arm, of the same seeds.
        at: tokens of the rung to foretell.

    Raises:
        UserError: fewer than three rungs, or the rung isn't above them.
    """
    if len(tokens) < FITTED:
        raise UserError(f"a prediction needs {FITTED} rungs below the next one; there are {len(tokens)}")
    if at <= max(tokens):
        raise UserError(f"a prediction is of a rung above those fitted, up to {max(tokens):g} tokens; got {at:g}")

    def drawn_on(losses: np.ndarray) -> float:
        return float(fit(losses, tokens).loss(at))

    values = [[drawn_on(own) for own in ladder.T] for ladder in ladders]
    by_seed = sum(sign * np.array(own) for sign, own in zip(signs, values, strict=True))
    if (left := len(tokens) - FITTED) == 0:
        return Contrast(by_seed)
    fitted, residuals = [], []
    for ladder in ladders:
        mean = ladder.mean(axis=1)
        fitted.append(fit(mean, tokens).loss(tokens))
        residuals.append((mean - fitted[-1]) * np.sqrt(len(tokens) / left))
    rng, found = np.random.default_rng(0), []
    for _ in range(DRAWS):
        # One drawing for all arms: what moves a rung of one moves the others' with it.
        rungs = rng.integers(len(tokens), size=len(tokens) + 1)
        flips = rng.choice([-1, 1], len(tokens) + 1)
        moved = [flips * miss[rungs] for miss in residuals]
        ends = [drawn_on(own + miss[:-1]) + miss[-1] for own, miss in zip(fitted, moved, strict=True)]
        found.append(sum(sign * end for sign, end in zip(signs, ends, strict=True)))
    return Contrast(by_seed, float(np.std(found)), float(left))
