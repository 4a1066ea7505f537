"""Contrasts of context against loops over documents."""

import io

import numpy as np
import pytest

from stemrepro.measures.context import ArmContext, Context
from stemrepro.measures.inputs import Inputs
from tests.made_up import write_summary

SEEDS, DOCUMENTS = 3, 6
SOURCE = np.array(["bible"] * 2 + ["speeches"] * 4)


def arm(folder, shift: float, gain: float, **more: object) -> ArmContext:
    """Losses of 16-token blocks; `gain` nats per token come with the first half."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(20, 50, (DOCUMENTS, 5))
    targets = rng.integers(20, 50, (DOCUMENTS, 4))
    noise = rng.normal(0, 0.1, (SEEDS, 1, 1))
    by_position = tokens * (4 + shift + noise - gain * np.array([0, 0.1, 0.2, 0.5, 1]))
    by_target = np.stack([targets * (4 + shift + noise - gain * part) for part in (1, 0.4, 0)], axis=1)
    buffer = io.BytesIO()
    np.savez(buffer, seeds=np.arange(SEEDS), source=SOURCE, by_position_tokens=tokens, by_target_tokens=targets,
             by_position=by_position, by_target=by_target)  # fmt: skip
    write_summary(folder, SEEDS, seed_numbers=list(range(SEEDS)), steps=3, **more)
    (folder / "context.npz").write_bytes(buffer.getvalue())
    return ArmContext(folder)


@pytest.fixture
def arms(tmp_path):
    return {"dense": arm(tmp_path / "a", 0.2, 0.1), "stem-full": arm(tmp_path / "b", 0.0, 0.16)}


@pytest.fixture
def measure(catalog, arms, tmp_path):
    context = Context(Inputs("long_context_capacity", catalog, "laptop", tmp_path))
    context.arms = arms
    return context


def test_growth_by_position_equals_a_loop(measure, arms):
    expected = []
    for seed in range(SEEDS):
        by_source = []
        for source in ("bible", "speeches"):
            of_source, gaps = source == SOURCE, []
            for chosen in ([4], [1, 2, 3]):  # positions 8 to 15; 1 to 7
                losses = []
                for name in ("dense", "stem-full"):
                    arrays = arms[name].arrays
                    total = sum(arrays["by_position"][seed, of_source, bucket].sum() for bucket in chosen)
                    tokens = sum(arrays["by_position_tokens"][of_source, bucket].sum() for bucket in chosen)
                    losses.append(total / tokens)
                gaps.append(losses[0] - losses[1])
            by_source.append(gaps[0] - gaps[1])
        expected.append(np.mean(by_source))
    contrast = measure.contrast("dense", "stem-full", "growth:position")
    assert contrast.differences == pytest.approx(expected)
    assert contrast.item_se > 0


def test_a_dense_arm_that_uses_no_context_can_not_be_tested(measure, arms, tmp_path):
    assert measure.untestable("growth:prefix", "dense-uses-context") is None
    measure.arms = arms | {"dense": arm(tmp_path / "c", 0.2, 0.01)}
    reason = measure.untestable("growth:prefix", "dense-uses-context")
    assert reason == "half a block of context is worth 0.010 to 0.010 nats (95%) to dense; 0.02 are needed"


def test_the_error_between_documents_equals_drawing_them_again(measure, arms):
    """Documents of each source are drawn with all that is known of them, for both conditions at once."""
    rng, means = np.random.default_rng(1), []
    dense, stem = (arms[name].arrays for name in ("dense", "stem-full"))
    stem["by_target"] = stem["by_target"] * rng.normal(
        1, 0.1, (1, 3, DOCUMENTS, 1)
    )  # else documents differ in length alone
    tokens = dense["by_target_tokens"].sum(axis=1)
    lead = (dense["by_target"] - stem["by_target"]).sum(axis=3).mean(axis=0)  # [conditions, documents]
    for _ in range(4000):
        growth = []
        for source in ("bible", "speeches"):
            drawn = rng.choice(np.flatnonzero(source == SOURCE), (source == SOURCE).sum())
            growth.append((lead[0, drawn] - lead[2, drawn]).sum() / tokens[drawn].sum())
        means.append(np.mean(growth))
    contrast = measure.contrast("dense", "stem-full", "growth:prefix")
    assert contrast.item_se == pytest.approx(np.std(means), rel=0.08)
