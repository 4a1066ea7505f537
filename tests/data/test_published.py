"""Published tokenizers encode as before, but for the end mark's and entry 0's ids."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from stemrepro.common.errors import UserError
from stemrepro.data.published import published_tokenizer
from stemrepro.data.tokenizer import END_TEXT, token_bytes

TEXTS = ["The cat sat on the mat. " * 3, "Every dog has its day; ä <s> </s>", "2 + 2 = 4", "日本 cat <|end|> !"]
SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level(marks_in_vocabulary):
    """As GPT-2's and Llama 3's are: marks among the entries, or added behind all of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = SPECIAL if marks_in_vocabulary else []
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def metaspace():
    """As Llama 2's is: spaces as ▁, characters without a token as bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(TEXTS[:2], trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL + fallback))
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [entry for entry in state["added_tokens"] if entry["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(state))


def prepended():
    """As Llama 2's file has it: a normalizer makes ▁ of spaces, and nothing cuts a text into words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(TEXTS[:2], trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL + fallback))
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [entry for entry in state["added_tokens"] if entry["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(state))


@pytest.mark.parametrize(
    "tokenizer",
    [byte_level(True), byte_level(False), metaspace(), prepended()],
    ids=["entries", "added", "metaspace", "prepended"],
)
def test_only_two_ids_change(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    text, place = published_tokenizer(str(path), "</s>")
    assert place == tokenizer.token_to_id("</s>") > 0
    ours = Tokenizer.from_str(text)
    ours.encode_special_tokens = tokenizer.encode_special_tokens = True
    assert ours.get_vocab_size() == tokenizer.get_vocab_size()
    assert ours.id_to_token(0) == END_TEXT
    swapped = {0: place, place: 0}
    for sample in TEXTS:
        before = tokenizer.encode(sample, add_special_tokens=False).ids
        assert ours.encode(sample).ids == [swapped.get(number, number) for number in before]
        assert 0 not in ours.encode(sample).ids
    every = range(1, tokenizer.get_vocab_size())
    assert all(ours.id_to_token(number) == tokenizer.id_to_token(swapped.get(number, number)) for number in every)


@pytest.mark.parametrize("tokenizer", [byte_level(False), metaspace()], ids=["byte-level", "metaspace"])
def test_bytes_of_tokens_come_to_those_of_a_text(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "t.json"))
    ours = Tokenizer.from_str(published_tokenizer(str(tmp_path / "t.json"), "</s>")[0])
    sizes, text = token_bytes(ours), "The cat sat on 日本."
    assert sizes[0] == 0
    spaces = 0 if "ByteLevel" in str(ours.pre_tokenizer) else 1  # metaspace puts one before a text
    assert sum(sizes[number] for number in ours.encode(text).ids) == len(text.encode()) + spaces


def test_a_mark_that_is_not_there(tmp_path):
    metaspace().save(str(tmp_path / "t.json"))
    with pytest.raises(UserError, match=r"has no token '<eos>'; end_mark in recipes/mixes.yaml names"):
        published_tokenizer(str(tmp_path / "t.json"), "<eos>")


def test_a_tokenizer_of_another_kind(tmp_path):
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.save(str(tmp_path / "t.json"))
    with pytest.raises(UserError, match="of kind WordLevel"):
        published_tokenizer(str(tmp_path / "t.json"), "b")


def test_a_file_that_is_no_tokenizer(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(UserError, match=r"t\.json' can't be read"):
        published_tokenizer(str(tmp_path / "t.json"), "</s>")
