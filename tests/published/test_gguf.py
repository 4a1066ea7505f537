"""A GGUF file against transformers, which reads it too."""

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.check_published import TEXTS
from stemrepro.common.errors import UserError
from stemrepro.convert.gguf import load_gguf
from tests.published.conftest import entries, write


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_logits_are_those_that_transformers_gives_for_the_same_file(llama, tmp_path, kind):
    """Dequantised by two programs; heads are in halves here and in pairs there."""
    path = write(llama, tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind])
    ours, _ = load_gguf(path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    tokens = torch.arange(40)[None] % len(entries())
    with torch.no_grad():
        assert (ours(tokens) - theirs(tokens).logits).abs().max() < 1e-4
        assert kind != "F32" or (ours(tokens) - llama(tokens).logits).abs().max() < 1e-4


def test_tokens_are_those_of_the_file(llama, tmp_path):
    path = write(llama, tmp_path / "model.gguf")
    _, tokenizer = load_gguf(path)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in TEXTS:
        if "12" not in text:  # transformers passes over the rule that digits stand apart
            assert tokenizer.encode(text).ids == theirs.encode(text), text
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert len(TEXTS) == 20
    assert tokenizer.encode("<|im_start|>").ids == [1]
    assert [tokenizer.id_to_token(token) for token in tokenizer.encode("12").ids] == ["1", "2"]  # digits stand apart


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"architecture": "qwen2"}, r"model\.gguf holds a model of architecture 'qwen2'; only 'llama'"),
        ({"cut": "deepseek"}, "cuts words as 'deepseek'; known are"),
    ],
)
def test_other_files_are_refused(llama, tmp_path, options, words):
    with pytest.raises(UserError, match=words):
        load_gguf(write(llama, tmp_path / "model.gguf", **options))


def test_a_cut_file_and_a_missing_one_are_named(llama, tmp_path):
    path = write(llama, tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"model\.gguf"):
        load_gguf(path)
    with pytest.raises(UserError, match=r"none\.gguf can't be read"):
        load_gguf(tmp_path / "none.gguf")
