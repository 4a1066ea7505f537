"""Our own byte-level BPE, trained on the training split only; token 0 marks a document's end."""

import json
import re
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, damaged, read_json
from stemrepro.data.integrity import read_corpus
from stemrepro.model.config import END_OF_DOCUMENT

END_TEXT = "<|end|>"
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
WORDS = "words.json"  # file next to a corpus: words that are one token each, and the sources that were made of them


def _merged(texts: list[str], vocab: int) -> Tokenizer:
    """Return a byte-level BPE of so many entries, or fewer where the texts yield no more."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=True,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def entry(word: str) -> str:
    """Return how a vocabulary writes a word after a space."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(f" {word}")[0][0]


def with_words(tokenizer: Tokenizer, words: list[str]) -> Tokenizer:
    """Return the same with further entries: words that are one token after a space, whatever their letters merge to."""
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary |= {entry(word): len(vocabulary) + number for number, word in enumerate(words)}
    state["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(state))


def train_tokenizer(corpus: Path, vocab: int, out: Path) -> None:
    """Train on the train split of a corpus.parquet and write a tokenizer.json of exactly `vocab` entries.

    The same corpus, size and version of `tokenizers` give the same bytes. Where words.json lies next to the corpus, its
    words are entries. The others come from the other sources alone, or repetition would make every name one token.
    UserError: `vocab` is too small for the byte alphabet, or the corpus too small for `vocab`.
    """
    if vocab < 257:
        raise UserError(f"vocab {vocab}: a byte-level vocabulary has 257 entries or more")
    about = read_json(corpus.with_name(WORDS)) if corpus.with_name(WORDS).exists() else {"words": [], "made": []}
    words = about["words"]
    texts = [
        row["text"] for row in read_corpus(corpus) if row["split"] == "train" and row["source"] not in about["made"]
    ]
    missing, settled = words, False
    while not settled:  # a larger vocabulary has more of the words by itself
        tokenizer = _merged(texts, vocab - len(missing))
        left = [word for word in words if tokenizer.token_to_id(entry(word)) is None]
        settled, missing = left == missing, left
    if words:
        tokenizer = with_words(tokenizer, missing)
    if tokenizer.get_vocab_size() != vocab:
        raise UserError(f"{corpus} yields only {tokenizer.get_vocab_size()} tokens; lower vocab {vocab} in the scale")
    assert tokenizer.token_to_id(END_TEXT) == END_OF_DOCUMENT
    atomic_write(out, tokenizer.to_str(pretty=True) + "\n")


def read_tokenizer(path: Path | str) -> Tokenizer:
    """Return a tokenizer that `train_tokenizer` wrote; UserError where it is missing or damaged."""
    try:
        tokenizer = Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
    except Exception as error:  # the library has no error class for this
        raise damaged(Path(path), error) from error
    tokenizer.encode_special_tokens = True  # a text that holds END_TEXT doesn't end there
    return tokenizer


def token_bytes(tokenizer: Tokenizer) -> list[int]:
    """Return the bytes of text of each token, 0 for the end mark.

    In byte-level BPE one character is one byte. Others write a space as "▁", and a byte that has no token as "<0x41>".
    """
    tokens = [str(tokenizer.id_to_token(number)) for number in range(tokenizer.get_vocab_size())]
    if "ByteLevel" in f"{tokenizer.pre_tokenizer} {tokenizer.decoder}":
        sizes = [len(token) for token in tokens]
    else:
        sizes = [1 if BYTE.fullmatch(token) else len(token.replace("▁", " ").encode()) for token in tokens]
    sizes[END_OF_DOCUMENT] = 0
    return sizes
