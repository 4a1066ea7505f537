"""Hash Layers: the paper's assignment by hand, one expert at a time, and a run that counts its own text."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from stemrepro.evaluation.weights import load_run
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.hash_layers import HashLayers, balanced
from stemrepro.training.module import LanguageModule
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.model.ffn.test_paper import silu
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"vocab": 7}, experts=3)
COUNTS = torch.tensor([4, 50, 9, 0, 30, 9, 25])


def by_hand(counts, experts):
    """Give the most frequent token that is left to the emptiest expert, until none is left."""
    left, loads, found = dict(enumerate(counts)), [0] * experts, [None] * len(counts)
    while left:
        token = max(left, key=lambda token: (left[token], -token))
        expert = loads.index(min(loads))
        found[token] = expert
        loads[expert] += max(1, left.pop(token))
    return found


def test_the_most_frequent_tokens_go_to_the_emptiest_experts():
    # 1 (50) -> 0; 4 (30) -> 1; 6 (25) -> 2; 2 (9) -> 2 of 25; 5 (9) -> 1 of 30; 0 (4) -> 2 of 34; 3 -> 2 of 38
    assert balanced(COUNTS, 3).tolist() == by_hand(COUNTS.tolist(), 3) == [2, 0, 2, 2, 1, 1, 2]
    counts = torch.randint(0, 40, (200,), generator=torch.Generator().manual_seed(0))
    assert balanced(counts, 8).tolist() == by_hand(counts.tolist(), 8)


def test_each_token_goes_through_its_expert_alone():
    torch.manual_seed(0)
    ffn = HashLayers(CONFIG)
    assert ffn.expert_of.tolist() == [0, 1, 2, 0, 1, 2, 0]
    ffn.start_run(lambda: COUNTS)
    for parameter in ffn.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    x, tokens = torch.randn(2, 5, 8), torch.tensor([[1, 3, 6, 0, 2], [2, 1, 4, 3, 5]])
    out = ffn(x, tokens)
    assigned = by_hand(COUNTS.tolist(), 3)
    gate, up, down = (getattr(ffn.experts, name).tolist() for name in ("gate", "up", "down"))
    for b in range(2):
        for t in range(5):
            expert, vector = assigned[int(tokens[b, t])], x[b, t].tolist()
            middle = []
            for channel in range(10):
                inner = sum(w * v for w, v in zip(gate[expert][channel], vector, strict=True))
                outer = sum(w * v for w, v in zip(up[expert][channel], vector, strict=True))
                middle.append(silu(inner) * outer)
            expected = [sum(w * m for w, m in zip(row, middle, strict=True)) for row in down[expert]]
            torch.testing.assert_close(out[b, t], torch.tensor(expected), atol=1e-5, rtol=1e-5)


@pytest.fixture
def run(make_run):
    run = make_run("hash-moe")
    return replace(run, model=replace(run.model, ffn="hash-layers"))


def test_a_run_balances_by_its_own_text_and_the_model_that_is_scored_has_the_same_assignment(run):
    train(run, quiet)
    counts = LanguageModule(run).text.frequencies(run.model.vocab)
    expected = by_hand(counts.tolist(), run.model.experts)
    saved = load_file(run.weights)
    names = [name for name in saved if name.endswith("expert_of")]
    assert len(names) == len(run.model.replaced_layers)
    assert all(saved[name].tolist() == expected for name in names)
    assert load_run(run).blocks[run.model.replaced_layers[0]].ffn.expert_of.tolist() == expected
