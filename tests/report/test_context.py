"""Contrasts of context against loops over documents."""

import io
import json

import numpy as np
import pytest
from stemrepro.report.context import ArmContext, contrast, failed_precondition, half, worth

from stemrepro.errors import UserError
from stemrepro.recipe import Claim

SEEDS, DOCUMENTS = 3, 6
SOURCE = np.array(["bible"] * 2 + ["speeches"] * 4)


def arm(folder, shift: float, gain: float) -> ArmContext:
    """Losses of 16-token blocks; `gain` nats a token come with the first half."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(20, 50, (DOCUMENTS, 5))
    targets = rng.integers(20, 50, (DOCUMENTS, 4))
    noise = rng.normal(0, 0.1, (SEEDS, 1, 1))
    by_position = tokens * (4 + shift + noise - gain * np.array([0, 0.1, 0.2, 0.5, 1]))
    by_target = np.stack([targets * (4 + shift + noise - gain * part) for part in (1, 0.4, 0)], axis=1)
    buffer = io.BytesIO()
    np.savez(buffer, seeds=np.arange(SEEDS), source=SOURCE, by_position_tokens=tokens, by_target_tokens=targets,
             by_position=by_position, by_target=by_target)  # fmt: skip
    folder.mkdir()
    (folder / "context.npz").write_bytes(buffer.getvalue())
    (folder / "summary.json").write_text(json.dumps({"params_hash": "p", "data_hash": "d", "seeds": SEEDS}))
    return ArmContext(folder)


@pytest.fixture
def arms(tmp_path):
    return {"dense": arm(tmp_path / "a", 0.2, 0.1), "stem-full": arm(tmp_path / "b", 0.0, 0.16)}


def test_growth_on_the_same_targets(arms):
    """The lead grows by the difference of what the first half is worth: 0.16 - 0.1 nats, and 0.6 of it by order."""
    assert contrast(arms, "dense", "stem-full", "growth:prefix").differences == pytest.approx([0.06] * SEEDS)
    assert contrast(arms, "dense", "stem-full", "growth:order").differences == pytest.approx([0.036] * SEEDS)
    assert worth(arms["dense"]).mean == pytest.approx(0.1)
    assert half(arms["dense"]) == 8


def test_growth_by_position_equals_a_loop(arms):
    expected = []
    for seed in range(SEEDS):
        by_source = []
        for source in ("bible", "speeches"):
            own, gaps = source == SOURCE, []
            for chosen in ([4], [1, 2, 3]):  # positions 8 to 15; 1 to 7
                losses = []
                for name in ("dense", "stem-full"):
                    arrays = arms[name].arrays
                    total = sum(arrays["by_position"][seed, own, bucket].sum() for bucket in chosen)
                    losses.append(total / sum(arrays["by_position_tokens"][own, bucket].sum() for bucket in chosen))
                gaps.append(losses[0] - losses[1])
            by_source.append(gaps[0] - gaps[1])
        expected.append(np.mean(by_source))
    found = contrast(arms, "dense", "stem-full", "growth:position")
    assert found.differences == pytest.approx(expected)
    assert found.item_se > 0


def test_a_dense_arm_that_uses_no_context_can_not_be_tested(arms, tmp_path):
    claim = Claim(sentence="s", kind="greater", metric="growth:prefix", arms=("dense", "stem-full"), smallest_effect=0.01,
                  precondition="dense-uses-context")  # fmt: skip
    assert failed_precondition(claim, arms) is None
    blind = arms | {"dense": arm(tmp_path / "c", 0.2, 0.01)}
    assert failed_precondition(claim, blind) == "half a block of context is worth 0.010 nats to dense; 0.02 are needed"


def test_bad_metrics_and_other_documents_are_named(arms):
    for metric in ("prose", "growth:chess"):
        with pytest.raises(UserError, match="growth"):
            contrast(arms, "dense", "stem-full", metric)
    arms["dense"].arrays["by_target_tokens"] = arms["dense"].arrays["by_target_tokens"] + 1
    with pytest.raises(UserError, match="were scored on different seeds or documents"):
        contrast(arms, "dense", "stem-full", "growth:prefix")
