"""Tokenizers that others published, with their end mark as entry 0, as all of this project has it.

The mark and the token that was entry 0 change places; every other token keeps its id. Text is encoded as before.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.data.hub import cause
from stemrepro.data.tokenizer import END_TEXT
from stemrepro.model.config import END_OF_DOCUMENT


def published_tokenizer(name: str, mark: str) -> tuple[str, int]:
    """Return a tokenizer as JSON, its end mark called END_TEXT and entry 0, and which entry that was.

    Args:
        name: a tokenizer.json, or a name of the hub.
        mark: the token that ends a document.

    Raises:
        UserError: it can't be read, has no such token, or ids with gaps, or is no BPE.
    """
    try:
        tokenizer = Tokenizer.from_file(name) if Path(name).is_file() else Tokenizer.from_pretrained(name)
    except Exception as error:  # the library has no error class for this
        raise UserError(
            f"tokenizer '{name}' can't be read ({cause(error)}); name a tokenizer.json or one of the hub"
        ) from error
    place = tokenizer.token_to_id(mark)
    if place is None or (mark != END_TEXT and tokenizer.token_to_id(END_TEXT) is not None):
        what = f"has no token '{mark}'" if place is None else f"has a token '{END_TEXT}' that isn't its end mark"
        raise UserError(
            f"tokenizer '{name}' {what}; end_mark in recipes/mixes.yaml names the token that ends a document"
        )
    state = json.loads(tokenizer.to_str())
    kind, vocab = state["model"]["type"], tokenizer.get_vocab(with_added_tokens=True)
    if kind != "BPE" or sorted(vocab.values()) != list(range(len(vocab))):
        raise UserError(f"tokenizer '{name}' is of kind {kind} or its ids have gaps; name a BPE without gaps")
    first = tokenizer.id_to_token(END_OF_DOCUMENT)
    ids = vocab | {first: place, mark: END_OF_DOCUMENT}
    ids[END_TEXT] = ids.pop(mark)
    # All tokens are entries of the model, as ids of added ones would follow its size.
    state["model"]["vocab"] = dict(sorted(ids.items(), key=lambda item: item[1]))
    if state["model"]["unk_token"] == mark:
        state["model"]["unk_token"] = END_TEXT
    added = {entry["content"]: entry for entry in state["added_tokens"]}
    added[END_TEXT] = added.pop(mark, {"special": True, "single_word": False, "lstrip": False, "rstrip": False,
                                       "normalized": False}) | {"content": END_TEXT}  # fmt: skip
    state["added_tokens"] = sorted(
        (entry | {"id": ids[content]} for content, entry in added.items()), key=lambda entry: entry["id"]
    )
    state["post_processor"] = None  # it would add marks of its own
    state["truncation"] = state["padding"] = None
    return json.dumps(state, ensure_ascii=False), place
