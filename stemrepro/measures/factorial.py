"""The factorial (up-projection kept or removed) x (table or none): what one is worth with the other and without it."""

from collections.abc import Callable

from stemrepro.common.errors import UserError
from stemrepro.measures import losses
from stemrepro.measures.losses import ArmLosses
from stemrepro.verdicts.effect import Effect

WITH_TABLE = {
    ("dense", "up-removed"): ("stem-dagger-full", "stem-full"),
    ("dense", "up-removed-third"): ("stem-dagger", "stem-third"),
}
"""The pair without a table (up-projection kept, removed), and the same pair with one."""


def interaction(high: str, low: str, arms: tuple[str, ...], losses_of: Callable[[str], ArmLosses]) -> Effect:
    """Return (high - low) less the same difference where both arms have a table, over the seeds that all four have."""
    if (low, high) in WITH_TABLE:
        other = interaction(low, high, arms, losses_of)
        return Effect(-other.differences, other.item_se)
    if (high, low) not in WITH_TABLE:
        choices = "; ".join(f"[{first}, {second}]" for first, second in WITH_TABLE)
        raise UserError(f"metric 'interaction' is of the pairs without a table, {choices}; got [{high}, {low}]")
    pair = WITH_TABLE[high, low]
    if missing := [arm for arm in pair if arm not in arms]:
        raise UserError(f"metric 'interaction' of [{high}, {low}] needs the arm '{missing[0]}', which the recipe lacks")
    first, second = ((losses_of(one), losses_of(other)) for one, other in ((high, low), pair))
    return losses.interaction(first, second, "prose")
