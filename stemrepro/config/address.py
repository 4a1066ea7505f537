"""An arm at a variant: arm@variant; at the scale itself, the variant "main", the arm's name alone."""

from dataclasses import dataclass
from pathlib import Path

MAIN = "main"
"""The variant that is the scale itself."""


@dataclass(frozen=True, order=True)
class Address:
    """An arm at a variant."""

    variant: str
    arm: str

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read "dense@half", or "dense" at the scale itself."""
        arm, _, variant = text.partition("@")
        return cls(variant or MAIN, arm)

    def __str__(self) -> str:
        return self.arm if self.variant == MAIN else f"{self.arm}@{self.variant}"

    @property
    def path(self) -> Path:
        """Folder of its runs and scores, below a scale's folder."""
        return Path(self.variant) / self.arm
