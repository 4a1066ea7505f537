"""Contrasts from score files whose right answer is known."""

import json

import numpy as np
import pandas as pd
import pytest
from stemrepro.report.scores import ArmScores, contrast, failed_precondition

from stemrepro.errors import UserError
from stemrepro.recipe import Claim


def write_arm(folder, prose, seeds=(0, 1, 2), marks=(0.4, 0.2), documents=40, unigram=5.0):
    """An arm whose loss is `prose[seed]` on both prose sources and 1.0 on glosses."""
    folder.mkdir(parents=True)
    rows, curve, nats = [], [], []
    tokens = np.full(3 * documents, 10)
    source = np.repeat(["speeches", "bible", "glosses"], documents)
    noise = np.random.default_rng(0).normal(0, 1, documents)
    for seed in seeds:
        for name, loss in (("speeches", prose[seed]), ("bible", prose[seed]), ("glosses", 1.0)):
            for bucket, shift in (("0", 1.0), ("4-31", -1.0)):
                rows.append(
                    {
                        "seed": seed,
                        "by": "pair",
                        "source": name,
                        "bucket": bucket,
                        "tokens": 100,
                        "nats": 100 * (loss + shift),
                        "bytes": 250,
                    }
                )
        for number, extra in enumerate(marks):
            curve.append(
                {
                    "seed": seed,
                    "tokens": 100 * (number + 1),
                    "flops": 1e6,
                    "train": 1.0,
                    "speeches": prose[seed] + extra,
                    "bible": prose[seed] + extra,
                    "glosses": 1.0,
                }
            )
        wave = np.tile(noise - noise.mean(), 3)
        nats.append(tokens * np.where(source == "glosses", 1.0, prose[seed]) + wave * prose[seed])
    pd.DataFrame(rows).to_csv(folder / "losses.csv", index=False)
    pd.DataFrame(curve).to_csv(folder / "curve.csv", index=False)
    np.savez(folder / "documents.npz", seeds=np.array(seeds), source=source, tokens=tokens, nats=np.stack(nats))
    (folder / "summary.json").write_text(json.dumps({"unigram_nats_per_token": unigram, "seeds": len(seeds)}))
    return ArmScores(folder)


@pytest.fixture
def arms(tmp_path):
    return {
        "dense": write_arm(tmp_path / "dense", [4.0, 4.1, 4.2], marks=(0.5, 0.0)),
        "token-only": write_arm(tmp_path / "token-only", [3.9, 4.0, 4.1]),
        "stem-full": write_arm(tmp_path / "stem-full", [3.7, 3.7, 3.9], marks=(0.3, 0.0)),
    }


def test_differences_are_paired_by_seed(arms):
    found = contrast(arms, "dense", "stem-full", "prose")
    assert found.differences == pytest.approx([0.3, 0.4, 0.3])
    assert contrast(arms, "dense", "stem-full", "glosses").differences == pytest.approx([0, 0, 0])
    assert contrast(arms, "dense", "stem-full", "all").differences == pytest.approx([0.2, 0.8 / 3, 0.2])


def test_one_bucket(arms):
    assert arms["dense"].loss("prose:pair=0").tolist() == pytest.approx([5.0, 5.1, 5.2])
    with pytest.raises(UserError, match="nothing for metric 'prose:pair=7'"):
        arms["dense"].loss("prose:pair=7")


def test_the_error_between_documents_equals_the_closed_form(arms):
    """Documents of equal size: the bootstrap's error of a mean is the plain standard error, here over two sources."""
    first, second = arms["dense"].documents, arms["stem-full"].documents
    difference = (first["nats"] - second["nats"]).mean(axis=0)[first["source"] == "speeches"] / 10
    plain = difference.std(ddof=0) / np.sqrt(len(difference))
    found = contrast(arms, "dense", "stem-full", "prose")
    assert found.item_se == pytest.approx(plain / np.sqrt(2), rel=0.08)
    assert found.item_df == pytest.approx(2 * 39, rel=0.1)


def test_drift_is_the_change_of_the_gap(arms):
    assert contrast(arms, "dense", "stem-full", "drift").differences == pytest.approx([-0.2, -0.2, -0.2])


def test_different_seeds_are_refused(arms, tmp_path):
    arms["dense"] = write_arm(tmp_path / "other", [4.0, 4.1, 4.2], seeds=(1, 2))
    with pytest.raises(UserError, match="different seeds"):
        contrast(arms, "dense", "stem-full", "prose")


def test_an_arm_with_more_seeds_is_compared_on_the_first(arms, tmp_path):
    arms["dense"] = write_arm(tmp_path / "other", [4.0, 4.1, 4.2], seeds=(0, 1))
    found = contrast(arms, "dense", "stem-full", "prose")
    assert found.differences == pytest.approx([0.3, 0.4])
    first = ArmScores(tmp_path / "stem-full", 2)
    assert first.loss("prose").tolist() == pytest.approx([3.7, 3.7])
    assert len(first.documents["nats"]) == first.summary["seeds"] == first.curve["seed"].nunique() == 2


def test_missing_and_damaged_files_are_named(arms, tmp_path):
    with pytest.raises(UserError, match=r"none/summary\.json is missing or damaged"):
        _ = ArmScores(tmp_path / "none").summary
    for name, read in (
        ("losses.csv", "losses"),
        ("curve.csv", "curve"),
        ("documents.npz", "documents"),
        ("summary.json", "summary"),
    ):
        path = tmp_path / "dense" / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if name.endswith(("npz", "json")) else b"")
        with pytest.raises(UserError, match=f"{name} is missing or damaged"):
            getattr(ArmScores(tmp_path / "dense"), read)


def failed(precondition, arms):
    claim = Claim(
        sentence="s",
        kind="greater",
        metric="prose",
        arms=("dense", "stem-full"),
        smallest_effect=0.02,
        precondition=precondition,
    )
    return failed_precondition(claim, arms)


def test_preconditions(arms, tmp_path):
    assert failed("none", arms) is None
    assert failed("token-only-below-three-quarters", arms) is None  # 0.1 of 0.33
    strong = arms | {"token-only": write_arm(tmp_path / "strong", [3.7, 3.8, 3.9])}
    assert "90% of the gap" in failed("token-only-below-three-quarters", strong)
    gone = arms | {"stem-full": arms["dense"]}
    assert "no gap" in failed("token-only-below-three-quarters", gone)
    assert failed("dense-beats-unigram", arms) is None
    early = arms | {"dense": write_arm(tmp_path / "early", [4.9, 4.9, 4.9])}
    assert "no better than token frequencies" in failed("dense-beats-unigram", early)


def test_bits_per_byte_are_of_prose(arms):
    """Two tokens of loss x stand for five bytes."""
    expected = [loss * 2 / 5 / np.log(2) for loss in (4.0, 4.1, 4.2)]
    assert arms["dense"].bits_per_byte().tolist() == pytest.approx(expected)
