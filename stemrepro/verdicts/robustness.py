"""The same contrasts in settings beside the common one: does their sign turn there?

A sign is one when the 95% interval lies beyond +-`nothing` (0, of an equivalence m); two means on either side of 0, within their noise,
turn nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from stemrepro.verdicts.contrast import Contrast

OWN_RATES, OFFICIAL_INIT = "own rates", "official start"
ROBUSTNESS = {
    OWN_RATES: ("at own best rates", "at the common rate"),
    OFFICIAL_INIT: ("at the official start of the embeddings", "at the common start"),
}
"""Settings in which a contrast may be measured too: what each is called, and the common one beside it."""
VARIANTS = {OWN_RATES: "own-rate", OFFICIAL_INIT: "official-start"}
"""The point at which arms are trained in a setting; at another base than the scale itself with the base's name before it."""
LONG_END = Path("ladder/token_ladder/data.csv")
"""Below results/: gaps where training is longest, which the pages of other scales show beside theirs."""


def sign(contrast: Contrast, null_band: float) -> int:
    """-1 or 1 where the 95% interval lies below or above +-`nothing`, else 0."""
    low, high = contrast.interval(0.05)
    return int(low > null_band) - int(high < -null_band)


def same_sign(common: tuple[Contrast, ...], there: tuple[Contrast, ...], null_band: float) -> bool:
    """Does every contrast stand out of its noise on the same side in both settings? Of an equivalence: on the same side, or in neither."""
    signs = [(sign(one, null_band), sign(other, null_band)) for one, other in zip(common, there, strict=True)]
    return all(one == other and (one != 0 or null_band > 0) for one, other in signs)


def sign_flips(
    common: tuple[Contrast, ...], robustness: Mapping[str, tuple[Contrast, ...]], null_band: float
) -> str | None:
    """Return why a contrast says nothing when a setting turns its sign around, or None."""
    for setting, others in robustness.items():
        there, here = ROBUSTNESS[setting]
        for one, other in zip(common, others, strict=True):
            if sign(one, null_band) * sign(other, null_band) < 0:
                return f"the sign turns {there}: {one.mean:+.3f} {here}, {other.mean:+.3f} there"
    return None
