import pytest

from stemrepro.errors import UserError
from stemrepro.measures.comparison import ArmScores
from stemrepro.measures.ladder import Ladder
from tests.made_up import made, write_arm


def test_places_are_in_order_with_the_scale_among_them(book):
    ladder = made(Ladder, book, "scaling_ladder", {})
    tokens = book.scales["laptop"].training.tokens
    assert ladder.places("tokens") == {tokens // 4: "quarter", tokens // 2: "half", tokens: None}
    assert ladder.places("width") == {32: "width-half", 48: "width-three-quarters", 64: "half"}


def test_widths_at_the_scales_own_budget_end_at_the_scale_and_never_mix_budgets(book):
    ladder = made(Ladder, book, "scaling_ladder", {})
    half = ladder.points["width-half"]
    ladder.points = {"narrow": half.model_copy(update={"tokens": 1.0})}
    assert ladder.places("width") == {32: "narrow", 64: None}
    ladder.points |= {"other": book.points["width-three-quarters"]}
    with pytest.raises(UserError, match=r"one budget; they have tokens \[0\.5, 1\.0\]"):
        ladder.places("width")


def test_another_start_is_no_rung(book):
    """It has a rung's tokens, whose place it would take."""
    ladder = made(Ladder, book, "token_ladder", {})
    assert "rung-1-official-start" in ladder.inputs.recipe.points
    assert list(ladder.places("tokens").values()) == ["rung-1", "rung-2", "rung-3", "rung-4", None]


@pytest.fixture
def ladder(book, tmp_path):
    """Dense falls by 0.5 a doubling of tokens and STEM by 0.3, so their gap shrinks by 0.2; over width it grows by 0.1."""

    def arm(name, losses):
        points = {p: write_arm(tmp_path / p / name, [loss] * 3) for p, loss in losses.items()}
        return ArmScores(points.pop("main"), points=points)

    tokens = {"quarter": 5.0, "half": 4.5, "main": 4.0}
    arms = {
        "dense": arm("dense", tokens | {"width-half": 4.9, "width-three-quarters": 4.9}),
        "stem-full": arm(
            "stem", {"quarter": 4.3, "half": 4.0, "main": 3.7, "width-half": 4.5, "width-three-quarters": 4.5}
        ),
    }
    return made(Ladder, book, "scaling_ladder", arms)


def test_gaps_and_slopes(ladder):
    gaps = [gap.mean for gap in ladder.gaps("dense", "stem-full", "tokens").values()]
    assert gaps == pytest.approx([0.7, 0.5, 0.3])
    assert ladder.contrast("dense", "stem-full", "tokens").differences == pytest.approx([-0.2] * 3)
    assert ladder.contrast("stem-full", "dense", "tokens").mean == pytest.approx(0.2)
    wider = ladder.contrast("dense", "stem-full", "width").differences
    assert wider.min() > 0.05  # 0.4, 0.4, 0.5 at 32, 48 and 64


def test_slopes_are_over_the_first_seeds_that_all_places_share(book, tmp_path):
    """The scale has five seeds, the points three."""

    def arm(name, loss):
        points = {p: write_arm(tmp_path / p / name, [loss] * 3) for p in ("quarter", "half")}
        return ArmScores(
            write_arm(tmp_path / "main" / name, [loss, loss, loss, 2 * loss - 4, 5.0], range(5)), points=points
        )

    ladder = made(Ladder, book, "scaling_ladder", {"dense": arm("dense", 4.0), "stem-full": arm("stem", 3.5)})
    assert ladder.contrast("dense", "stem-full", "tokens").differences == pytest.approx([0.0] * 3)


def test_an_arm_at_a_point_where_the_recipe_lacks_it_is_named(ladder):
    with pytest.raises(UserError, match="no arm 'dense' at 'rung-9'"):
        ladder.losses("dense", "rung-9")
