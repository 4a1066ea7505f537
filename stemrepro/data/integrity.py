"""Are the token blocks those that were written? Without torch, so that commands which only start workers stay quick."""

import json
from pathlib import Path

from stemrepro.errors import UserError
from stemrepro.files import sha256


def verified_hash(folder: Path) -> str:
    """The sha256 of the training blocks, after all splits have been compared with the hashes in index.json.

    Raises:
        UserError: a file is missing, or not the one that was written.
    """
    index = folder / "index.json"
    if not index.exists():
        raise UserError(f"{index} is missing; run 'dvc repro blocks' first")
    try:
        splits = json.loads(index.read_text())["splits"]
        splits["train"]["sha256"], splits["validation"]["documents"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{index} is garbled ({type(error).__name__}: {error}); delete {folder} and run again"
        ) from error
    for split, about in splits.items():
        path = folder / f"{split}.bin"
        if not path.exists() or sha256(path) != about["sha256"]:
            raise UserError(
                f"{path} is missing or garbled (its sha256 is not the recorded one); delete {folder} and run again"
            )
    return splits["train"]["sha256"]
