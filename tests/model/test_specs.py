"""Entries of feed-forward networks, and networks from files outside the package."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stemrepro.cli.skeletons import NETWORK
from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.ffn.base import FFN, ffn_class, is_table
from stemrepro.model.ffn.naming import module_of
from stemrepro.model.specs import FFNS, _counted, check, spec
from stemrepro.model.transformer import Decoder

SHAPE = {"vocab": 97, "width": 24, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_width": 40}
SHAPE |= {"rank": 5, "experts": 4, "slots": 3}
OWN = """from stemrepro.model.ffn.base import matrix
from stemrepro.model.ffn.stem import Stem


class SiluRows(Stem):
    def rows(self, tokens):
        return self.table(tokens).sigmoid()
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my").mkdir()
    Path("my/silu.py").write_text(OWN)
    ffn_class.cache_clear()
    _counted.cache_clear()
    return "my/silu.py:SiluRows"


@pytest.mark.parametrize("name", FFNS)
def test_every_entry_has_a_class_in_a_file_of_its_name(name):
    assert issubclass(ffn_class(name), FFN)
    assert ffn_class(name).__module__ == module_of(name) == f"stemrepro.model.ffn.{name.replace('-', '_')}"


@pytest.mark.parametrize("name", [name for name, entry in FFNS.items() if entry.grows_by != "experts"])
def test_counting_a_module_gives_the_closed_form(name):
    config = ModelConfig(**SHAPE, ffn=name, replaced_layers=(1,))
    assert _counted.__wrapped__(name, config) == FFNS[name].cost(config)


def test_a_network_of_ones_own_is_loaded_and_counted(outside):
    config = ModelConfig(**SHAPE, ffn=outside, replaced_layers=(1, 3))
    stem = replace(config, ffn="stem")
    assert parameter_counts(config) == parameter_counts(stem)
    assert flops_per_token(config, 16) == flops_per_token(stem, 16)
    model = Decoder(config)
    assert [name for name, _ in model.named_parameters() if is_table(name)] == [
        "blocks.1.ffn.table.weight", "blocks.3.ffn.table.weight",
    ]  # fmt: skip
    assert model(torch.randint(0, 97, (2, 9))).shape == (2, 9, 97)


@pytest.mark.slow
def test_a_network_of_ones_own_can_be_compiled_with_the_globals_of_its_file(outside):
    Path("my/silu.py").write_text(NETWORK.format(name="SiluRows"))
    model, tokens = Decoder(ModelConfig(**SHAPE, ffn=outside, replaced_layers=(1,))), torch.randint(0, 97, (2, 9))
    torch.testing.assert_close(torch.compile(model, backend="eager")(tokens), model(tokens))


@pytest.mark.parametrize(
    ("name", "words"),
    [("my/none.py:SiluRows", "there is no file my/none.py below the repository's root"),
     ("../silu.py:SiluRows", "the file must lie below the repository's root"),
     ("/etc/passwd.py:X", "the file must lie below the repository's root"),
     ("sten", "ffn 'sten' is unknown; did you mean 'stem'")],
)  # fmt: skip
def test_a_network_that_is_not_there(outside, name, words):
    with pytest.raises(UserError, match=words):
        spec(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [("x = (", "can't be imported: SyntaxError"), ("SiluRows = 3", "has no class 'SiluRows' that is an FFN"),
     ("1 / 0", "can't be imported: ZeroDivisionError")],
)  # fmt: skip
def test_a_file_of_ones_own_that_is_wrong(outside, text, words):
    Path("my/silu.py").write_text(text)
    with pytest.raises(UserError, match=words):
        ffn_class(outside)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"ffn": "topk-moe", "experts": 4, "top_k": 5}, "a token uses 1 to 4 experts"),
     ({"ffn": "hash-moe", "experts": 0}, "experts 0, top_k 1"),
     ({"ffn": "stem-slots", "slots": 0}, "slots 0: 'stem-slots' needs 1 or more rows per token"),
     ({"ffn": "ple", "rank": 0}, "'ple' needs the width of its narrow table")],
)  # fmt: skip
def test_what_a_network_needs(change, words):
    with pytest.raises(UserError, match=words):
        check(ModelConfig(**SHAPE | {"replaced_layers": (1,)} | change))
