"""Metrics of needles, on made-up counts."""

import pandas as pd
import pytest

from stemrepro.measures.inputs import Inputs
from stemrepro.measures.needle import Needle
from tests.made_up import write_summary

LENGTHS, DEPTHS = (64, 128, 256, 512), (0, 0.25, 0.5, 0.75, 1)


def write(folder, variant, arm, points, seeds=(0, 1, 2)):
    """An arm that finds points[k] of 100 needles at the k-th length, and half of them by generation.

    It finds the seed's number more, and 4 more or fewer by depth.
    """
    place = folder / "haystack" / variant / arm
    write_summary(place, len(seeds))
    rows = [
        {"length": length, "depth": depth, "rows": 200, "chosen": 2 * right + seed + way, "generated": right,
         "other": 3, "nats": 1.0, "seed": seed}
        for seed in seeds
        for length, right in zip(LENGTHS, points, strict=True)
        for depth, way in zip(DEPTHS, (-8, -4, 0, 4, 8), strict=True)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(place / "haystack.csv", index=False)


@pytest.fixture
def measure(catalog, tmp_path):
    write(tmp_path, "main", "dense", (90, 50, 20, 5))
    write(tmp_path, "main", "stem-third", (92, 40, 10, 5))
    write(tmp_path, "longer", "dense", (90, 88, 70, 30))
    write(tmp_path, "longer", "stem-third", (94, 90, 84, 20))
    write(tmp_path, "longer-anew", "stem-third", (94, 90, 75, 20))
    return Needle(Inputs("needle", catalog, "needle", tmp_path))


@pytest.mark.parametrize("variant", ["longer", "longer-anew"])
def test_documents_see_each_other_before_the_extension_alone(catalog, variant):
    scale = catalog.scale("needle")
    model = catalog.variant(variant).at(scale).model
    assert (scale.model.document_mask, model.document_mask) == (False, True)
    assert model.rope_base == 4 * scale.model.rope_base
    assert catalog.variant("half").at(scale).model.document_mask is False


def test_dense_must_find_where_it_was_trained_to(measure, catalog, tmp_path):
    assert measure.untestable("chosen:64", "dense-finds") is None
    write(tmp_path, "main", "dense", (70, 50, 20, 5))
    poor = Needle(Inputs("needle", catalog, "needle", tmp_path))
    assert poor.untestable("chosen:64", "dense-finds") == (
        "dense finds 69.2 to 71.7% (95%) of the needles in 64 tokens; 80 are needed"
    )
