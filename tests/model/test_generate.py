"""Generation from a cache against whole passes."""

import pytest
import torch

from stemrepro.config.arm import shaped
from stemrepro.measures.catalog import load
from stemrepro.model.cache import Cache
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.generate import continuations, greedy, sampled
from stemrepro.model.transformer import build
from tests.conftest import ROOT

ARMS = load(ROOT / "recipes").arms


def decoder(tiny, arm, **fields):
    model = build(shaped(tiny.model.model_copy(update=fields), ARMS[arm]), 0).eval()
    with torch.no_grad():  # as after training: norms that differ, and logits whose order noise doesn't decide
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def whole_passes(model, prompts, count):
    """Greedy tokens by a whole pass a token: the plain loop."""
    rows = prompts
    with torch.no_grad():
        for _ in range(count):
            rows = torch.cat([rows, model(rows)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return rows[:, prompts.shape[1] :]


def up_to_the_end(row):
    """A row's tokens before its end mark."""
    row = row.tolist()
    return row[: row.index(END_OF_DOCUMENT)] if END_OF_DOCUMENT in row else row


@pytest.mark.parametrize("arm", ARMS)
def test_greedy_tokens_are_those_of_whole_passes(tiny, arm):
    model = decoder(tiny, arm)
    prompts = torch.randint(1, 300, (3, 7), generator=torch.Generator().manual_seed(1))
    made = torch.stack(list(continuations(model, prompts, 9)), dim=1)
    expected = whole_passes(model, prompts, 9)
    assert [up_to_the_end(row) for row in made] == [up_to_the_end(row) for row in expected]


@pytest.mark.parametrize("fields", [{}, {"document_mask": True}])
@pytest.mark.parametrize("parts", [(1,) * 11, (4, 1, 6), (11,)])
def test_logits_from_a_cache_are_those_of_a_whole_pass(tiny, fields, parts):
    model = decoder(tiny, "stem-full", **fields)
    tokens = torch.randint(0, 300, (2, 11), generator=torch.Generator().manual_seed(2))
    tokens[0, 5] = END_OF_DOCUMENT
    cache = Cache(len(model.blocks))
    with torch.no_grad():
        pieces = [model(part, cache) for part in tokens.split(parts, dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-3, atol=2e-3)  # of logits up to 50


def test_a_new_token_reads_its_own_rows_alone(tiny):
    model, read = decoder(tiny, "stem-full"), []
    model.blocks[1].ffn.table.register_forward_hook(lambda _, inputs, __: read.append(inputs[0].shape[1]))
    list(continuations(model, torch.tensor([[1, 2, 3, 4]]), 4))
    assert read == [4, 1, 1, 1]


def test_memories_of_pairs_have_no_cache_and_no_mask(tiny):
    for arm in ("ngram-table", "bigram-input"):
        with pytest.raises(ValueError, match="can't use a cache"):
            decoder(tiny, arm)(torch.tensor([[1, 2]]), Cache(4))
        with pytest.raises(ValueError, match="can't use a cache or a mask"):
            decoder(tiny, arm).hidden(torch.tensor([[1, 2]]), mask=torch.ones(1, 1, 2, 2, dtype=torch.bool).tril())


@torch.no_grad()
def test_a_mask_also_covers_what_is_cached(tiny):
    """Two branches behind a cached beginning, in one pass, against each in a whole pass."""
    model, cache = decoder(tiny, "stem-full"), Cache(4)
    model(torch.tensor([[1, 2, 3]]), cache)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 1]], dtype=torch.bool)[None, None]
    logits = model.head(model.hidden(torch.tensor([[7, 8, 9]]), cache, mask))
    branches = [model(torch.tensor([[1, 2, 3, *branch]]))[:, 3:] for branch in ([7, 8], [9])]
    torch.testing.assert_close(logits, torch.cat(branches, dim=1), rtol=1e-3, atol=2e-3)  # of logits up to 50


def test_a_network_of_ones_own_goes_without_a_cache(tiny, tmp_path, monkeypatch):
    """It gets all tokens and may look at earlier ones: here it reads the row of the token before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "before.py").write_text(
        "import torch.nn.functional as F\nfrom stemrepro.model.ffn.stem import Stem\n\n\nclass Before(Stem):\n"
        "    def rows(self, x, tokens):\n        return self.table(F.pad(tokens, (1, 0))[:, :-1])\n"
    )
    arm = ARMS["stem-full"].model_copy(update={"ffn": "before.py:Before"})
    model, prompts = build(shaped(tiny.model, arm), 0).eval(), torch.tensor([[1, 2, 3, 4]])
    made = torch.stack(list(continuations(model, prompts, 6)), dim=1)
    assert up_to_the_end(made[0]) == up_to_the_end(whole_passes(model, prompts, 6)[0])
    with pytest.raises(ValueError, match="can't use a cache"):
        model(prompts, Cache(4))


def test_beyond_the_context_the_newest_tokens_count(tiny):
    model, prompts = decoder(tiny, "stem-third"), torch.tensor([[1, 2, 3, 4, 5]])
    made = torch.stack(list(continuations(model, prompts, 6, context=5)), dim=1)
    rows = prompts
    with torch.no_grad():
        for _ in range(6):
            rows = torch.cat([rows, model(rows[:, -5:])[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert up_to_the_end(made[0]) == up_to_the_end(rows[0, 5:])


def test_an_ended_prompt_stays_ended_and_all_ended_is_the_end(tiny):
    model, script = decoder(tiny, "dense"), iter([[5, END_OF_DOCUMENT], [6, 7], [END_OF_DOCUMENT, 8], [1, 1]])
    made = list(continuations(model, torch.tensor([[1, 2], [3, 4]]), 9, lambda _: torch.tensor(next(script))))
    assert torch.stack(made, dim=1).tolist() == [[5, 6, END_OF_DOCUMENT], [END_OF_DOCUMENT] * 3]


def test_sampling_draws_from_the_top_by_seed_and_temperature():
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).repeat(20_000, 1)
    drawn = sampled(2.0, 2, 7)(logits)
    assert set(drawn.tolist()) == {2, 3}
    share = 1 / (1 + torch.exp(torch.tensor(-0.5)))  # of the first, exp((3 - 2) / 2) times as likely
    assert (drawn == 3).float().mean() == pytest.approx(float(share), abs=0.015)
    assert torch.equal(drawn, sampled(2.0, 2, 7)(logits))
    assert not torch.equal(drawn, sampled(2.0, 2, 8)(logits))
    assert set(sampled(1.0, 0, 1)(logits).tolist()) == {0, 1, 2, 3}
    assert greedy(logits[:1]).tolist() == [3]
