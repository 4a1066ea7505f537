"""What an unpacked bundle knows of itself: the commit that it was made of, and the hashes of its files."""

from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256

COMMIT, MANIFEST = Path("COMMIT"), Path("MANIFEST.sha256")
"""Written into a bundle, and nowhere else: the commit's full hash, and the other files' in sha256sum's format."""
CODE = ("stemrepro/", "analysis/", "recipes/")
"""What makes results; where it was edited, they aren't the commit's any more."""


def bundled() -> dict[str, str]:
    """{"commit": ...} of an unpacked bundle, with '+changes' when its code differs from the manifest; {} in a clone.

    Raises:
        UserError: the manifest is missing or damaged.
    """
    if not COMMIT.exists():
        return {}
    try:
        listed = [line.split("  ", 1) for line in MANIFEST.read_text(encoding="utf-8").splitlines()]
        code = {path: hashed for hashed, path in listed if path.startswith(CODE)}
    except (OSError, ValueError) as error:
        raise UserError(f"{MANIFEST} is missing or damaged ({error}); take it from the bundle again") from error
    changed = any(not Path(path).is_file() or sha256(path) != hashed for path, hashed in code.items())
    return {"commit": COMMIT.read_text(encoding="utf-8").strip() + ("+changes" if changed else "")}
