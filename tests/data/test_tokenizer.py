import pytest
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.data.tokenizer import read_tokenizer, token_bytes, train_tokenizer


def test_the_same_corpus_gives_the_same_bytes(sample, tmp_path):
    train_tokenizer(sample / "corpus" / "corpus.parquet", 300, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (sample / "tokenizer.json").read_bytes()


def test_text_survives_and_bytes_are_counted(sample):
    tokenizer = Tokenizer.from_file(str(sample / "tokenizer.json"))
    text = "In the beginning, 1790: café \n naïve — 漢字 🙂"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    sizes = token_bytes(tokenizer)
    assert sum(sizes[i] for i in ids) == len(text.encode())
    assert sizes[0] == 0
    assert tokenizer.get_vocab_size() == 300


def test_a_corpus_too_small_for_the_vocabulary(sample, tmp_path):
    with pytest.raises(UserError, match="lower vocab 60000"):
        train_tokenizer(sample / "corpus" / "corpus.parquet", 60000, tmp_path / "t.json")


def test_a_damaged_file_is_named(sample, tmp_path):
    assert read_tokenizer(sample / "tokenizer.json").get_vocab_size() == 300
    (tmp_path / "t.json").write_bytes((sample / "tokenizer.json").read_bytes()[:500])
    for path in (tmp_path / "t.json", tmp_path / "none.json"):
        with pytest.raises(UserError, match=rf"{path.name} is missing or damaged"):
            read_tokenizer(path)
