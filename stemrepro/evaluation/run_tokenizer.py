"""The tokenizer of a run's text. It lies outside the run's folder, where another text's may have taken its place."""

from pathlib import Path

from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.data.integrity import read_index
from stemrepro.data.tokenizer import read_tokenizer, token_bytes
from stemrepro.training.run_folder import read_config


def tokenizer_from(file: Path, run: Path) -> Tokenizer:
    """Return a tokenizer after a comparison with a run's text, by the index of the token blocks below its folder.

    UserError: the blocks are of other texts than the run's, or have other tokens than the tokenizer.
    """
    tokenizer, wanted = read_tokenizer(file), read_config(run).data.train_sha256
    indices = [read_index(path.parent) for path in sorted(file.parent.rglob("blocks/index.json"))]
    by_hash = {index["splits"]["train"]["sha256"]: index for index in indices}
    if wanted not in by_hash:
        there = ", ".join(hashed[:12] for hashed in by_hash) or "no index"
        raise UserError(
            f"{file} is not the tokenizer of {run}, whose training blocks have the sha256 {wanted[:12]}: the blocks in "
            f"{file.parent} have {there}; put that text back, or train the run again ('make reproduce' with its SCALE)"
        )
    if by_hash[wanted]["token_bytes"] != token_bytes(tokenizer):
        raise damaged(file, f"its tokens are not those of the text that {run} has read")
    return tokenizer


def run_tokenizer(run: Path, data: Path) -> Tokenizer:
    """Return the tokenizer of a run folder, runs/<scale>/<variant>/<arm>/seed<k>, from `data`/<scale>.

    UserError: there is none, or it isn't that of the run's text.
    """
    parts, vocab = run.resolve().parts, read_config(run).model.vocab
    if len(parts) < 5:
        raise UserError(f"{run} is no folder of a run: runs/<scale>/<variant>/<arm>/seed<k>")
    home = data / parts[-4]
    if read_index(home / "blocks")["vocab"] != vocab:
        home = home / "vocabularies" / str(vocab)
    return tokenizer_from(home / "tokenizer.json", run)
