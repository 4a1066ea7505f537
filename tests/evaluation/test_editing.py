"""Reading other rows, against a model whose FFNs get other tokens, and the rule of each scheme."""

import pytest
import torch

from stemrepro.config.arm import shaped
from stemrepro.evaluation.editing import capture, mixing, patch, patched_modules, shares
from stemrepro.evaluation.prompts import Question, padded
from stemrepro.measures.catalog import load
from stemrepro.model.transformer import build
from tests.conftest import ROOT

ARMS = load(ROOT / "recipes").arms
BYTES = [1] * 300


def decoder(tiny, arm):
    return build(shaped(tiny.model, ARMS[arm]), 3).eval()


def question(*prompt, places):
    return Question(prompt, places, (9,))


def with_other_tokens(model, tokens, places, others):
    """Logits where every STEM layer gets other tokens at some positions: the paper's sentence as a plain loop."""
    edited = tokens.clone()
    edited[0, list(places)] = torch.tensor(others)
    handles = [
        block.ffn.register_forward_pre_hook(lambda _, inputs: (inputs[0], edited))
        for block in model.blocks
        if hasattr(block.ffn, "table")
    ]
    with torch.no_grad():
        logits = model(tokens)
    for handle in handles:
        handle.remove()
    return logits


def edited(model, source, target, scheme, modules=None, more=()):
    """Logits of the source's prompt with what the modules give to the target exchanged, and tokens after it."""
    modules = patched_modules(model) if modules is None else modules
    with torch.no_grad():
        with capture(modules) as kept:
            model(padded([target.prompt]))
        with patch(modules, kept, mixing([source], [target], scheme, BYTES)):
            return model(torch.tensor([[*source.prompt, *more]]))


@pytest.mark.parametrize("arm", ["stem-full", "stem-third", "token-only"])
def test_one_to_one_tells_the_layers_other_tokens(tiny, arm):
    model = decoder(tiny, arm)
    source, target = question(0, 5, 17, 18, 6, places=(2, 3)), question(0, 7, 8, 40, 41, 5, places=(3, 4))
    expected = with_other_tokens(model, torch.tensor([[*source.prompt, 33]]), source.places, [40, 41])
    logits = edited(model, source, target, "one-to-one", more=(33,))
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert not torch.allclose(logits, model(torch.tensor([[*source.prompt, 33]])), atol=1e-5)


def test_padding_reads_the_end_mark(tiny):
    model = decoder(tiny, "stem-full")
    source, target = question(0, 5, 17, 18, 19, 6, places=(2, 3, 4)), question(0, 40, 5, places=(1,))
    for scheme, rows in (("left-pad", [0, 0, 40]), ("right-pad", [40, 0, 0]), ("copy", [40, 40, 40])):
        expected = with_other_tokens(model, torch.tensor([source.prompt]), source.places, rows)
        torch.testing.assert_close(edited(model, source, target, scheme), expected, rtol=1e-5, atol=1e-5)


def test_the_average_of_the_target_rows_stands_at_every_place(tiny):
    model = decoder(tiny, "stem-full")
    source, target = question(0, 5, 17, 18, 6, places=(2, 3)), question(0, 40, 41, 42, 5, places=(1, 2, 3))
    tables = [block.ffn.table for block in model.blocks if hasattr(block.ffn, "table")]
    means = [table.weight[40:43].mean(dim=0) for table in tables]

    def mean_rows(mean):
        def hook(_, __, out):
            out = out.clone()
            out[0, 2:4] = mean
            return out

        return hook

    handles = [table.register_forward_hook(mean_rows(mean)) for table, mean in zip(tables, means, strict=True)]
    with torch.no_grad():
        expected = model(torch.tensor([source.prompt]))
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(edited(model, source, target, "average"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arm", ["stem-full", "dense", "value-embeddings", "ngram-table", "token-only"])
def test_rows_and_input_together_are_the_targets_own_prompt(tiny, arm):
    model = decoder(tiny, arm)
    source, target = question(0, 5, 17, 6, places=(2,)), question(0, 5, 40, 6, places=(2,))
    modules = [*patched_modules(model), model.embedding]
    if arm == "dense":
        modules = [model.embedding]
    with torch.no_grad():
        own = model(torch.tensor([target.prompt]))
    equal = torch.allclose(edited(model, source, target, "one-to-one", modules), own, rtol=1e-5, atol=1e-5)
    assert equal == (arm != "ngram-table")  # where the token after the name is addressed by the name too


def test_weights_prompt_and_input_embeddings_stay(tiny):
    model = decoder(tiny, "stem-full")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = []
    model.embedding.register_forward_hook(lambda _, inputs, out: seen.append((inputs[0].clone(), out.clone())))
    source, target = question(0, 5, 17, 6, places=(2,)), question(0, 5, 40, 6, places=(2,))
    edited(model, source, target, "one-to-one")
    with torch.no_grad():
        plain = model(torch.tensor([source.prompt]))
    (_, _), (tokens, embedded), (same, as_before) = seen
    assert torch.equal(tokens, same)
    assert torch.equal(embedded, as_before)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    torch.testing.assert_close(plain, decoder(tiny, "stem-full")(torch.tensor([source.prompt])))  # hooks are gone


def test_only_the_named_places_are_exchanged(tiny):
    model, source = decoder(tiny, "stem-full"), question(0, 5, 17, 6, places=(2,))
    table, kept = model.blocks[1].ffn.table, []
    with torch.no_grad():
        with capture([table]) as read:
            model(torch.tensor([[0, 5, 40, 6]]))
        with patch([table], read, mixing([source], [question(0, 5, 40, 6, places=(2,))], "one-to-one", BYTES)):
            table.register_forward_hook(lambda _, __, out: kept.append(out))
            model(torch.tensor([source.prompt]))
    assert torch.equal(kept[0][0, [0, 1, 3]], table.weight[[0, 5, 6]])
    torch.testing.assert_close(kept[0][0, 2], table.weight[40])


def test_the_rule_of_each_scheme():
    assert shares("one-to-one", 2, [1, 1]) == [[(0, 1.0)], [(1, 1.0)]]
    assert shares("left-pad", 3, [1, 1]) == [[(-1, 1.0)], [(0, 1.0)], [(1, 1.0)]]
    assert shares("right-pad", 3, [1, 1]) == [[(0, 1.0)], [(1, 1.0)], [(-1, 1.0)]]
    assert shares("copy", 5, [1, 1]) == [[(-1, 1.0)], [(0, 1.0)], [(1, 1.0)], [(0, 1.0)], [(1, 1.0)]]
    assert shares("subset", 2, [3, 9, 5]) == [[(1, 1.0)], [(2, 1.0)]]  # the longest, in their order
    assert shares("average", 2, [1, 1]) == [[(0, 0.5), (1, 0.5)]] * 2
    assert shares("auto", 2, [1, 1]) == shares("one-to-one", 2, [1, 1])
    assert shares("auto", 3, [1, 1]) == shares("average", 3, [1, 1])


def test_what_carries_a_token_into_each_kind_of_model(tiny):
    counts = {"stem-full": 3, "stem-third": 1, "token-only": 3, "dense": 3, "ngram-table": 3}
    counts |= {"value-embeddings": 2, "bigram-input": 1}
    assert {arm: len(patched_modules(decoder(tiny, arm))) for arm in counts} == counts
