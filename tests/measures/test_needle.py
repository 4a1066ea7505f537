"""Metrics of needles, on made-up counts."""

import numpy as np
import pytest

from stemrepro.measures.needle import anew, chosen, dense_finds, generated, growth
from stemrepro.measures.scores import Scores
from tests.made_up import grid, write_scores

LENGTHS, DEPTHS = (64, 128, 256, 512), (0, 0.25, 0.5, 0.75, 1)


def write(folder, address, points, seeds=(0, 1, 2)):
    """An arm that finds points[k] of 100 needles at the k-th length, and half of them by generation.

    It finds the seed's number more, and 4 more or fewer by depth.
    """
    rows = grid(seed=seeds, length=LENGTHS, depth=DEPTHS).assign(rows=200, other=3, nats=1.0)
    right, way = rows["length"].map(dict(zip(LENGTHS, points, strict=True))), 16 * rows["depth"] - 8
    rows = rows.assign(chosen=(2 * right + rows["seed"] + way).astype(int), generated=right)
    write_scores(folder, "haystack", address, len(seeds), {"haystack": rows})


@pytest.fixture
def scores(catalog, tmp_path):
    write(tmp_path, "dense", (90, 50, 20, 5))
    write(tmp_path, "stem-third", (92, 40, 10, 5))
    write(tmp_path, "dense@longer", (90, 88, 70, 30))
    write(tmp_path, "stem-third@longer", (94, 90, 84, 20))
    write(tmp_path, "stem-third@longer-anew", (94, 90, 75, 20))
    return Scores("needle", catalog, "needle", tmp_path)


@pytest.mark.parametrize("variant", ["longer", "longer-anew"])
def test_documents_see_each_other_before_the_extension_alone(catalog, variant):
    scale = catalog.scale("needle")
    model = catalog.variant(variant).at(scale).model
    assert (scale.model.document_mask, model.document_mask) == (False, True)
    assert model.rope_base == 4 * scale.model.rope_base
    assert catalog.variant("half").at(scale).model.document_mask is False


def test_leads_are_points_of_the_needles_of_a_length(scores):
    pair = ("stem-third", "dense")
    np.testing.assert_allclose(chosen(scores, *pair, 256).differences, -10)
    np.testing.assert_allclose(chosen(scores, *pair, 256, at="longer").differences, 14)
    np.testing.assert_allclose(generated(scores, *pair, 256, at="longer").differences, 7)
    np.testing.assert_allclose(growth(scores, *pair).differences, 14 - 4)
    np.testing.assert_allclose(anew(scores, *pair, 256).differences, 84 - 75)


def test_dense_must_find_where_it_was_trained_to(scores, catalog, tmp_path):
    assert dense_finds(scores) is None
    write(tmp_path, "dense", (70, 50, 20, 5))
    poor = Scores("needle", catalog, "needle", tmp_path)
    assert dense_finds(poor) == "dense finds 69.2 to 71.7% (95%) of the needles in 64 tokens; 80 are needed"
