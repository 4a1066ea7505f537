"""A scale's own text with texts of other kinds, in shares of the training tokens."""

import json

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import BlendMix
from stemrepro.data.blend import PIECE, pieces, so_many, write_blend
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.integrity import read_corpus
from stemrepro.data.tokenizer import read_tokenizer

TOKENS = 20_000


def mix(**parts):
    share = round(0.35 / len(parts), 6)
    rest = 1 - share * len(parts)
    return BlendMix(kind="blend", own=rest, parts={name: {"share": share, "mix": part} for name, part in parts.items()})


@pytest.fixture(scope="module")
def blended(sample, catalog, tmp_path_factory):
    out = tmp_path_factory.mktemp("mid")
    place = (sample / "corpus", sample / "tokenizer.json", out, out / "card.md")
    write_blend("mid-sample", catalog.mixes["mid-sample"], TOKENS, *place)
    return out


def test_shares_are_of_the_tokens(blended, sample):
    """Counted in the flat file of tokens by its end marks and by encoding each text again."""
    tokenizer = read_tokenizer(sample / "tokenizer.json")
    rows = [row for row in read_corpus(blended / "corpus" / "corpus.parquet") if row["split"] == "train"]
    kind = {tuple(tokenizer.encode(row["text"]).ids): row["source"] for row in rows}
    tokens = np.array(TokenBlocks(blended / "blocks", "train", 32, 300).tokens)
    counts = dict.fromkeys(("own", "mathematics", "code"), 0)
    for document in np.split(tokens, np.flatnonzero(tokens == 0) + 1)[:-1]:
        source = kind[tuple(document[:-1].tolist())]
        counts[source if source in counts else "own"] += len(document)
    for name, share in (("own", 0.65), ("mathematics", 0.05), ("code", 0.3)):
        assert counts[name] == pytest.approx(share * TOKENS, abs=5)  # a text that is cut may have other tokens


def test_what_was_held_out_stays_held_out(blended, sample):
    before = read_corpus(sample / "corpus" / "corpus.parquet")
    after = read_corpus(blended / "corpus" / "corpus.parquet")
    for split in ("tune", "validation"):
        held_out = {row["text"] for row in before if row["split"] == split}
        assert held_out == {
            row["text"] for row in after if row["split"] == split and row["source"] not in ("mathematics", "code")
        }
        assert not any(row["text"] in text for row in after if row["split"] == "train" for text in held_out)


def test_each_kind_is_scored_by_itself(blended):
    documents = TokenBlocks(blended / "blocks", "validation", 32, 300).about["documents"]
    assert {"mathematics", "code", "speeches"} <= {document[1] for document in documents}


def test_the_card_tells_of_all_texts(blended):
    card = (blended / "card.md").read_text()
    assert "# Data card: mix `mid-sample`" in card
    assert "| code | Python modules of NetworkX, without its tests | BSD-3-Clause | NetworkX developers |" in card
    assert "| speeches | train |" in card


def test_pieces_end_at_line_ends():
    text = "\n".join(f"{'word ' * (k % 40)}{k}" for k in range(400)) + "\n" + "x" * 9000 + "\nend"
    cut = [piece["text"] for piece in pieces({"id": "a", "text": text})]
    assert "".join(cut) == text
    assert len(cut) > 5
    assert all(len(piece) <= PIECE for piece in cut)
    assert all(piece.endswith("\n") or set(piece) == {"x"} for piece in cut[:-1])


def test_held_out_documents_of_other_kinds_are_not_trained_on(blended):
    rows = [
        row for row in read_corpus(blended / "corpus" / "corpus.parquet") if row["source"] in ("mathematics", "code")
    ]
    trained = {row["id"].rpartition("#")[0] for row in rows if row["split"] == "train"}
    assert trained
    assert not trained & {row["id"] for row in rows if row["split"] != "train"}


def test_a_text_that_is_too_short_is_named(sample):
    tokenizer = read_tokenizer(sample / "tokenizer.json")
    rows = [{"source": "code", "id": "a", "split": "train", "text": "def f():\n    return 1\n"}]
    count = len(tokenizer.encode(rows[0]["text"]).ids) + 1
    assert len(so_many("code", rows, count, tokenizer)) == 1
    with pytest.raises(UserError, match=rf"'code' has {count} training tokens, and 4,000 are its share"):
        so_many("code", rows, 4000, tokenizer)
    (cut,) = so_many("code", rows, count - 3, tokenizer)
    assert rows[0]["text"].startswith(cut["text"])
    assert len(tokenizer.encode(cut["text"]).ids) + 1 == count - 3


def test_rows_of_other_splits_are_not_trained_on(sample):
    tokenizer = read_tokenizer(sample / "tokenizer.json")
    rows = [
        {"source": "code", "id": split, "split": split, "text": "one two"} for split in ("train", "tune", "validation")
    ]
    count = len(tokenizer.encode("one two").ids) + 1
    assert [row["split"] for row in so_many("code", rows, count, tokenizer)] == ["train"]
    with pytest.raises(UserError, match=f"has {count} training tokens"):
        so_many("code", rows, 3 * count, tokenizer)


def test_a_dataset_of_the_hub_can_be_a_part(sample, tmp_path):
    folder = tmp_path / "dataset"
    folder.mkdir()
    lines = [json.dumps({"text": f"def f{k}():\n    x = {k}\n\n    return x * {k}\n" * 20}) for k in range(60)]
    (folder / "train.jsonl").write_text("\n".join(lines))
    about = {"licence": "MIT", "attribution": "nobody"}
    part = {"kind": "hub", "dataset": str(folder), "megabytes": 1, **about}
    place = (sample / "corpus", sample / "tokenizer.json", tmp_path / "mid", tmp_path / "card.md")
    write_blend("own", mix(programs=part), 4000, *place)
    rows = read_corpus(tmp_path / "mid" / "corpus" / "corpus.parquet")
    assert any(row["source"] == "programs" and "\n    return x" in row["text"] for row in rows)
    assert "| programs |" in (tmp_path / "card.md").read_text()


def test_a_part_has_a_name_of_its_own(sample, tmp_path):
    place = (sample / "corpus", sample / "tokenizer.json", tmp_path / "mid", tmp_path / "card.md")
    with pytest.raises(UserError, match="the scale's own text has a source 'bible'"):
        write_blend("own", mix(bible={"kind": "sample"}), 4000, *place)
