"""Contrasts of context against loops over documents."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.context import dense_uses_context, growth
from stemrepro.measures.scores import Scores
from tests.made_up import grid, write_scores

SEEDS, DOCUMENTS = 3, 6
SOURCE = np.array(["bible"] * 2 + ["speeches"] * 4)
RNG = np.random.default_rng(0)
TOKENS, TARGETS = RNG.integers(20, 50, (DOCUMENTS, 5)), RNG.integers(20, 50, (DOCUMENTS, 4))
NOISE = RNG.normal(0, 0.1, (SEEDS, 1, 1))
CONTEXTS = {"alone": 0, "shuffled": 0.6, "intact": 1}
"""Share of the gain that each gives to the second half's targets."""


def nats(shift: float, gain: float) -> dict[str, np.ndarray]:
    """Sums of losses of 16-token blocks [seeds, documents, buckets]; `gain` nats a token come with the first half."""
    level = 4 + shift + NOISE
    by_target = {what: TARGETS * (level - gain * share) for what, share in CONTEXTS.items()}
    return {"position": TOKENS * (level - gain * np.array([0, 0.1, 0.2, 0.5, 1])), **by_target}


def write(folder, arm: str, sums: dict[str, np.ndarray], tokens=TARGETS) -> None:
    """An arm with these sums, and so many tokens in the second half."""
    parts = []
    for what, values in sums.items():
        at, count = ((0, 1, 2, 4, 8), TOKENS) if what == "position" else ((0, 1, 2, 4), tokens)
        lines = grid(seed=range(SEEDS), document=range(DOCUMENTS), what=[what], at=at)
        source = SOURCE[lines["document"]]
        parts.append(lines.assign(source=source, tokens=np.tile(count.ravel(), SEEDS), nats=values.ravel()))
    about = {"seed_numbers": list(range(SEEDS)), "steps": 3}
    write_scores(folder, "losses", arm, SEEDS, {"context": pd.concat(parts)}, **about)


DENSE, FULL = nats(0.2, 0.1), nats(0.0, 0.16)


@pytest.fixture
def scores(catalog, tmp_path):
    write(tmp_path, "dense", DENSE)
    write(tmp_path, "stem-full", FULL)
    return Scores("long_context_capacity", catalog, "laptop", tmp_path)


def test_growth_by_position_equals_a_loop(scores):
    expected = []
    for seed in range(SEEDS):
        by_source = []
        for source in ("bible", "speeches"):
            of_source, gaps = source == SOURCE, []
            for chosen in ([4], [1, 2, 3]):  # positions 8 to 15; 1 to 7
                losses = []
                for sums in (DENSE, FULL):
                    total = sum(sums["position"][seed, of_source, bucket].sum() for bucket in chosen)
                    losses.append(total / sum(TOKENS[of_source, bucket].sum() for bucket in chosen))
                gaps.append(losses[0] - losses[1])
            by_source.append(gaps[0] - gaps[1])
        expected.append(np.mean(by_source))
    contrast = growth(scores, "dense", "stem-full", "position")
    assert contrast.differences == pytest.approx(expected)
    assert contrast.item_se > 0


def test_growth_on_the_same_targets(scores):
    """STEM full gains 0.06 nats a token more from the whole first half, of which 40% need its order."""
    assert growth(scores, "dense", "stem-full", "prefix").differences == pytest.approx(0.06)
    assert growth(scores, "dense", "stem-full", "order").differences == pytest.approx(0.4 * 0.06)


def test_arms_of_other_targets_are_refused(scores, catalog, tmp_path):
    write(tmp_path, "stem-third", FULL, tokens=TARGETS + 1)
    with pytest.raises(UserError, match="dense and stem-third were scored on different seeds or targets"):
        growth(scores, "dense", "stem-third", "prefix")


def test_a_dense_arm_that_uses_no_context_can_not_be_tested(scores, catalog, tmp_path):
    assert dense_uses_context(scores) is None
    write(tmp_path, "dense", nats(0.2, 0.01))
    reason = dense_uses_context(Scores("long_context_capacity", catalog, "laptop", tmp_path))
    assert reason == "half a block of context is worth 0.010 to 0.010 nats (95%) to dense; 0.02 are needed"


def test_the_error_between_documents_equals_drawing_them_again(scores, tmp_path):
    """Documents of each source are drawn with all that is known of them, for both conditions at once."""
    rng, means = np.random.default_rng(1), []
    uneven = rng.normal(1, 0.1, (1, DOCUMENTS, 1))  # else documents differ in length alone
    full = FULL | {"intact": FULL["intact"] * uneven, "alone": FULL["alone"] * rng.normal(1, 0.1, (1, DOCUMENTS, 1))}
    write(tmp_path, "stem-full", full)
    tokens = TARGETS.sum(axis=1)
    lead = {what: (DENSE[what] - full[what]).sum(axis=2).mean(axis=0) for what in CONTEXTS}  # [documents]
    for _ in range(4000):
        growths = []
        for source in ("bible", "speeches"):
            drawn = rng.choice(np.flatnonzero(source == SOURCE), (source == SOURCE).sum())
            growths.append((lead["intact"][drawn] - lead["alone"][drawn]).sum() / tokens[drawn].sum())
        means.append(np.mean(growths))
    contrast = growth(scores, "dense", "stem-full", "prefix")
    assert contrast.item_se == pytest.approx(np.std(means), rel=0.08)
