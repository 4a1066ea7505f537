"""Costs of feed-forward networks against closed forms, and networks from files outside the package."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stemrepro.cli.skeletons import NETWORK
from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.counting import Cost, ffn_cost
from stemrepro.model.ffn.base import ffn_class, ffns, is_table
from stemrepro.model.names import module_of
from stemrepro.model.needs import check, declared
from stemrepro.model.transformer import Decoder

SHAPE = {"vocab": 97, "width": 24, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_width": 40}
SHAPE |= {"rank": 5, "experts": 4, "slots": 3}
OWN = """from stemrepro.model.ffn.base import matrix
from stemrepro.model.ffn.stem import Stem


class SiluRows(Stem):
    def rows(self, x, tokens):
        return self.table(tokens).sigmoid()
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my").mkdir()
    Path("my/silu.py").write_text(OWN)
    ffn_class.cache_clear()
    ffn_cost.cache_clear()
    return "my/silu.py:SiluRows"


W, F, V = 24, 40, 97
CLOSED = {
    # stored, used, idle, elements of the table, elements that a token reads
    "dense": (3 * W * F, 3 * W * F, 0, 0, 0),
    "stem": (2 * W * F, 2 * W * F, 0, V * F, F),
    "stem-shuffled": (2 * W * F, 2 * W * F, 0, V * F, F),
    "ngram-table": (2 * W * F, 2 * W * F, 0, V * F, F),
    "token-only": (W * F, W * F, 0, V * F, F),
    "up-removed": (2 * W * F, 2 * W * F, 0, 0, 0),
    "token-ffn": (3 * W * F, 3 * W * F, 0, 0, 0),
    "gate-replaced": (2 * W * F, 2 * W * F, 0, V * F, F),
    "down-replaced": (0, 0, 0, V * W, W),
    "stem-normed": (2 * W * F + F, 2 * W * F, 0, V * F, F),
    "stem-slots": (2 * W * F + 3 * W, 2 * W * F + 3 * W, 0, 3 * V * F, F),
    "jtok": (3 * W * F + W, 3 * W * F, 0, V * W, W),
    "joint-token-mixture": (3 * W * F + 3 * W + W, 3 * W * F + 3 * W, 0, 3 * V * W, 2 * W),
    "stem-dagger": (3 * W * F, 3 * W * F, 0, V * F, F),
    "blend": (3 * W * F + 1, 3 * W * F, 0, V * F, F),
    "stem-interpolated": (3 * W * F, 3 * W * F, 0, V * F, F),
    "stem-lowrank": (2 * W * F + 5 * F, 2 * W * F + 5 * F, 0, V * 5, 5),
    "input-add": (3 * W * F, 3 * W * F, 0, V * W, W),
    "hash-moe": (4 * 3 * W * F, 2 * 3 * W * F, 2 * 3 * W * F, 0, 0),
    "topk-moe": (4 * 3 * W * F + 4 * W, 2 * 3 * W * F + 4 * W, 2 * 3 * W * F, 0, 0),
    "hash-layers": (4 * 3 * W * F, 2 * 3 * W * F, 2 * 3 * W * F, 0, 0),
    # a shared expert and four others, 40 / (2 + 1) wide, rounded up
    "sparse-experts": (5 * 3 * W * 14 + 4 * W, 3 * 3 * W * 14 + 4 * W, 2 * 3 * W * 14, 0, 0),
}
"""Elements at 4 experts of which 2 are used, 3 rows per token and rank 5."""


@pytest.mark.parametrize("name", ffns())
def test_what_is_counted_is_the_closed_form(name):
    config = ModelConfig(**SHAPE, ffn=name, replaced_layers=(1,), top_k=2)
    assert ffn_cost(name, config) == Cost(*CLOSED[name])
    assert ffn_class(name).__module__ == module_of(name)


def test_a_network_of_ones_own_is_loaded_and_counted(outside):
    config = ModelConfig(**SHAPE, ffn=outside, replaced_layers=(1, 3))
    stem = replace(config, ffn="stem")
    assert parameter_counts(config) == parameter_counts(stem)
    assert flops_per_token(config, 16) == flops_per_token(stem, 16)
    model = Decoder(config)
    tables = [name for name, _ in model.named_parameters() if is_table(name)]
    assert tables == ["blocks.1.ffn.table.weight", "blocks.3.ffn.table.weight"]
    assert model(torch.randint(0, 97, (2, 9))).shape == (2, 9, 97)


@pytest.mark.slow
def test_a_network_of_ones_own_can_be_compiled_with_the_globals_of_its_file(outside):
    Path("my/silu.py").write_text(NETWORK.format(name="SiluRows"))
    model, tokens = Decoder(ModelConfig(**SHAPE, ffn=outside, replaced_layers=(1,))), torch.randint(0, 97, (2, 9))
    torch.testing.assert_close(torch.compile(model, backend="eager")(tokens), model(tokens))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my/none.py:SiluRows", "there is no file my/none.py below the repository's root"),
        ("../silu.py:SiluRows", "the file must lie below the repository's root"),
        ("/etc/passwd.py:X", "the file must lie below the repository's root"),
        ("sten", "ffn 'sten' is unknown; did you mean 'stem'"),
    ],
)
def test_a_network_that_is_not_there(outside, name, words):
    with pytest.raises(UserError, match=words):
        declared(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "can't be imported: SyntaxError"),
        ("SiluRows = 3", "has no class 'SiluRows' that is an FFN"),
        ("1 / 0", "can't be imported: ZeroDivisionError"),
    ],
)
def test_a_file_of_ones_own_that_is_wrong(outside, text, words):
    Path("my/silu.py").write_text(text)
    with pytest.raises(UserError, match=words):
        ffn_class(outside)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ffn": "topk-moe", "experts": 4, "top_k": 5}, "a token uses 1 to 4 experts"),
        ({"ffn": "hash-moe", "experts": 0}, "experts 0, top_k 1"),
        ({"ffn": "stem-slots", "slots": 0}, "slots 0: 'stem-slots' needs 1 or more rows per token"),
        ({"ffn": "stem-lowrank", "rank": 0}, "'stem-lowrank' needs the width of its narrow table"),
    ],
)
def test_what_a_network_needs(change, words):
    with pytest.raises(UserError, match=words):
        check(ModelConfig(**SHAPE | {"replaced_layers": (1,)} | change))
