"""An edit of a published model: the two kinds of layers apart, and what may be asked."""

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.cli.edit_table import show
from stemrepro.published.session import PublishedSession

PROMPT = "the a is"


@pytest.fixture(scope="module")
def result(model):
    return PublishedSession(model).edit(PROMPT, "a", "b", top=3, count=4)


def by_hand(llama, model, layers):
    """The source's next tokens where transformers' layers have the target's W_u x at the name's place."""
    rows = [torch.tensor([model.tokens(text)]) for text in (PROMPT, PROMPT.replace("a", "b"))]
    (place,) = (rows[0] != rows[1]).nonzero()[:, 1].tolist()
    kept, hooks = {}, []
    for layer in layers:

        def hook(_, __, out, layer=layer):
            if layer in kept:
                out[:, place] = kept[layer][:, place]
                return out
            kept[layer] = out.clone()
            return None

        hooks.append(llama.model.layers[layer].mlp.up_proj.register_forward_hook(hook))
    with torch.no_grad():
        llama(rows[1])
        after = llama(rows[0]).logits[0, -1].softmax(dim=-1)
    for hook in hooks:
        hook.remove()
    return after.topk(3)


@pytest.mark.parametrize(("side", "layers"), [("first", [0]), ("edited", [1, 2])])
def test_the_first_layer_and_all_others_are_edited_apart(llama, model, result, side, layers):
    wanted = by_hand(llama, model, layers)
    assert [share for _, share in getattr(result, side).top] == pytest.approx(wanted.values.tolist(), abs=1e-5)
    words = [model.tokenizer.decode([token]) or "(end)" for token in wanted.indices.tolist()]
    assert [word for word, _ in getattr(result, side).top] == words
    assert len(result.by_layer) == 4
    assert result.by_layer[0][0] == pytest.approx(result.before.top[0][1])


def test_the_page_says_which_layers(result):
    console = Console(record=True, width=160)
    show(result, PROMPT, "a", "b", console)
    page = console.export_text()
    for words in ("a, b's W_u x in the first layer", "a, b's W_u x in all other", "lowest 3", "No model here was"):
        assert words in page


@pytest.mark.parametrize("given", [[], ["--run", "runs/x", "--model", "smollm2"]])
def test_an_edit_is_of_a_run_or_of_a_model(given):
    done = CliRunner().invoke(app, ["edit", "--from", "Spain", "--to", "Germany", *given])
    assert done.exit_code != 0
    assert "one of the two" in f"{done.output}{done.exception}"
