"""The same contrasts in other settings than the common one: does their sign turn there?

A contrast has a sign when its 95% interval lies beyond +-`null_band` (0; of an equivalence m).
Two means on either side of 0, within their noise, turn nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from stemrepro.verdicts.contrast import Contrast

OWN_RATES, OFFICIAL_INIT = "own rates", "official start"
ROBUSTNESS = {
    OWN_RATES: ("at own best rates", "at the common rate"),
    OFFICIAL_INIT: ("at the official start of the embeddings", "at the common start"),
}
"""Further settings in which a contrast may be measured, in words, each with the common one."""
VARIANTS = {OWN_RATES: "own-rate", OFFICIAL_INIT: "official-start"}
"""The variant at which arms are trained in a setting; where a recipe has a base, the base's name comes before it."""
LONG_END = Path("ladder/token_ladder/data.csv")
"""Below results/: gaps where training is longest, which the pages of other scales show next to theirs."""


def sign(contrast: Contrast, null_band: float) -> int:
    """Return -1 or 1 where the 95% interval lies below or above +-`null_band`, else 0."""
    low, high = contrast.interval(0.05)
    return int(low > null_band) - int(high < -null_band)


def same_sign(common: tuple[Contrast, ...], others: tuple[Contrast, ...], null_band: float) -> bool:
    """Tell whether every contrast stands out of its noise on the same side in both settings.

    Of an equivalence: on the same side, or in neither setting.
    """
    signs = [(sign(one, null_band), sign(other, null_band)) for one, other in zip(common, others, strict=True)]
    return all(one == other and (one != 0 or null_band > 0) for one, other in signs)


def sign_flips(
    common: tuple[Contrast, ...], robustness: Mapping[str, tuple[Contrast, ...]], null_band: float
) -> str | None:
    """Return the reason why a contrast is undecided when a setting turns its sign, or None."""
    for setting, others in robustness.items():
        setting_words, common_words = ROBUSTNESS[setting]
        for one, other in zip(common, others, strict=True):
            if sign(one, null_band) * sign(other, null_band) < 0:
                return f"the sign turns {setting_words}: {one.mean:+.3f} {common_words}, {other.mean:+.3f} there"
    return None
