import numpy as np
import pytest
from stemrepro.report.ladder import places, slope

from stemrepro.errors import UserError


def test_places_are_in_order_with_the_scale_among_them(book):
    scale, recipe = book.scales["laptop"], book.recipes["scaling_ladder"]
    tokens = scale.training.tokens
    assert places(recipe, scale, "tokens") == {tokens // 4: "tokens-quarter", tokens // 2: "tokens-half", tokens: None}
    assert places(recipe, scale, "width") == {32: "width-half", 48: "width-three-quarters", 64: "tokens-half"}


def test_widths_at_the_scales_own_budget_end_at_the_scale_and_never_mix_budgets(book):
    scale, recipe = book.scales["laptop"], book.recipes["scaling_ladder"]
    half = recipe.points["width-half"]
    whole = recipe.model_copy(update={"points": {"narrow": half.model_copy(update={"tokens": 1.0})}})
    assert places(whole, scale, "width") == {32: "narrow", 64: None}
    mixed = recipe.model_copy(update={"points": whole.points | {"other": recipe.points["width-three-quarters"]}})
    with pytest.raises(UserError, match=r"one budget; they have tokens \[0\.5, 1\.0\]"):
        places(mixed, scale, "width")


def test_slopes_are_per_doubling():
    x = np.array([1.0, 2.0, 4.0])
    assert slope(x, np.array([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0]])) == pytest.approx([0.1, 0.0])


def test_slopes_are_least_squares():
    x, y = np.array([3.0, 5.0, 11.0, 17.0]), np.array([0.2, 0.9, 0.4, 1.4])
    assert slope(x, y[:, None])[0] == pytest.approx(np.polyfit(np.log2(x), y, 1)[0])
