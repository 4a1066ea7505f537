"""What a token alone tells of W_u x in our own dense models: metrics of recipes/premise_by_size.yaml.

Shares are by seed; two sizes or budgets are two samples.
"""

from typing import Literal

import numpy as np

from stemrepro.config.address import MAIN
from stemrepro.measures import premise
from stemrepro.measures.metric import VariantName
from stemrepro.measures.premise import HALF, WHAT, Layers, layers_named
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import rows
from stemrepro.verdicts.effect import Effect, of_shares, unpaired

STUDY = "sizes"
What = Literal["up", "gate"]


def shares(scores: Scores, variant: str, what: str = "up", address: str = "token") -> np.ndarray:
    """Return the share that a row explains, in percent, by layer and seed [layers, seeds]."""
    found = rows(scores, STUDY, "shares", variant=variant, what=WHAT[what], address=address)
    share = found.assign(share=100 * (1 - found["left"] / found["total"]))
    return share.pivot(index="layer", columns="seed", values="share").to_numpy()


def published(scores: Scores) -> list[float]:
    """Return that of the published model with endless text for its rows, by layer; none without its tables."""
    catalog = scores.catalog
    name = next(name for name, scale in catalog.scales.items() if scale.published)
    model = Scores("premise", catalog, name, scores.folder.with_name(name))
    if not (model.folder / premise.STUDY / f"{premise.SHARES}.parquet").exists():
        return []
    return [premise.share(model, "up", "limit", [layer]).mean for layer in premise.every_layer(model)]


def share(scores: Scores, variant: str, what: str, layers: str) -> np.ndarray:
    """Return the mean of a share over layers, by seed."""
    return shares(scores, variant, what)[layers_named(layers, scores.scale.model.layers)].mean(axis=0)


def tokens(scores: Scores) -> int:
    """Return how many held-out tokens of each source a share of variance is of."""
    return scores.scale.evaluation.tokens


def explained(scores: Scores, high: str, low: str, what: What, layers: Layers, at: VariantName = MAIN) -> Effect:
    """Share that the token's row explains, in percent, less half."""
    found = share(scores, at, what, layers)
    return of_shares(found, np.full_like(found, HALF), tokens(scores))


def lost(scores: Scores, high: str, low: str, what: What, layers: Layers, at: VariantName, over: VariantName) -> Effect:
    """Share that the token's row explains at one place, in points over that at another."""
    return unpaired(share(scores, at, what, layers), share(scores, over, what, layers))
