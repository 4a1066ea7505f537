"""An arm at a point: arm@point; at the scale itself, the point "main", the arm's name alone."""

from dataclasses import dataclass
from pathlib import Path

MAIN = "main"
"""The point that is the scale itself."""


@dataclass(frozen=True, order=True)
class Address:
    """An arm at a point."""

    point: str
    arm: str

    @classmethod
    def parse(cls, text: str) -> "Address":
        """ "dense@half", or "dense" at the scale itself."""
        arm, _, point = text.partition("@")
        return cls(point or MAIN, arm)

    def __str__(self) -> str:
        return self.arm if self.point == MAIN else f"{self.arm}@{self.point}"

    @property
    def path(self) -> Path:
        """Where its runs and scores lie below a scale's folder."""
        return Path(self.point) / self.arm
