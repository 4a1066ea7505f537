"""Rows, shares and edits of a tiny model, against plain loops."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from stemrepro.common.errors import UserError
from stemrepro.evaluation.prompts import ask
from stemrepro.published import edits, premise
from stemrepro.published.converted import convert
from stemrepro.published.models import sequences
from stemrepro.published.rows import added, known_pairs, means, paired
from tests.published.conftest import TEXT, VOCAB


@pytest.fixture(scope="module")
def read(model):
    """What each layer's FFN reads and gives [layers, 3, 6, D], kept by hand."""
    kept = {}
    hooks = [
        block.ffn.register_forward_hook(lambda _, x, out, layer=layer: kept.__setitem__(layer, (x[0], out)))
        for layer, block in enumerate(model.decoder.blocks)
    ]
    with torch.no_grad():
        model.decoder.hidden(torch.from_numpy(TEXT.astype(np.int64)))
    for hook in hooks:
        hook.remove()
    return torch.stack([kept[layer][0] for layer in sorted(kept)]), torch.stack([kept[k][1] for k in sorted(kept)])


def test_rows_are_means_by_token_and_by_pair_whatever_the_parts(model, read, tmp_path, monkeypatch):
    monkeypatch.setattr("stemrepro.published.rows.FEWEST", 4)
    known = known_pairs(TEXT, VOCAB)
    pairs = paired(TEXT, known, VOCAB)
    assert known.tolist() == [5 * VOCAB + 6]  # it stands six times
    assert (pairs >= 0).sum() == 6
    files = [tmp_path / f"{part}.safetensors" for part in range(2)]
    for part, file in enumerate(files):
        means(model.decoder, TEXT[part::2], pairs[part::2], VOCAB + len(known)).save(file)
    rows = added(files)
    for token in (0, 5, 6, 7, 9):
        where = torch.from_numpy(token == TEXT)
        place = int(rows.index[token])
        assert rows.counts[place] == where.sum()
        for mine, kept in ((rows.read, read[0]), (rows.gave, read[1])):
            assert torch.allclose(mine[:, place], kept[:, where].mean(dim=1), rtol=0.02, atol=0.02)  # half precision
    where = torch.from_numpy(pairs >= 0)
    assert torch.allclose(rows.read[:, rows.index[VOCAB]], read[0][:, where].mean(dim=1), rtol=0.02, atol=0.02)
    assert int(rows.index[8]) == -1
    assert torch.allclose(rows.grand(rows.read), read[0].flatten(1, 2).mean(dim=1), atol=0.02)


def test_shares_are_residuals_around_rows(model, averaged, read):
    text = pd.DataFrame({"source": ["a", "b", "c"], "tokens": list(TEXT)})
    table = premise.shares(model, averaged, text, 18, np.full_like(TEXT, -1))
    layer, sequence = 1, 2
    up = model.decoder.blocks[layer].ffn.up.weight.detach()
    y, total, left = read[0][layer] @ up.T, 0.0, 0.0
    for place in range(1, TEXT.shape[1]):  # the start token is no part
        same = torch.from_numpy(TEXT[sequence, place] == TEXT)
        left += float((y[sequence, place] - y[same].mean(dim=0)).square().sum())
        total += float((y[sequence, place] - y.flatten(0, 1).mean(dim=0)).square().sum())
    row = table[(table.layer == layer) & (table.sequence == sequence) & (table.what == premise.UP)]
    token = row[row.address == "token"].iloc[0]
    assert (token.total, token.left) == (pytest.approx(total, rel=1e-4), pytest.approx(left, rel=1e-4))
    assert row[row.address == "pair"].iloc[0].left == pytest.approx(left, rel=1e-4)  # no pair is known
    assert set(table.address) == {"token", "pair", "another token", "limit"}
    assert len(table) == 3 * 3 * (2 * 4 + 1)


def test_the_limit_is_what_endless_text_would_explain():
    """Drawn by chance, with known variances: rows of few places explain less, and the limit is the true share."""
    generator, places, tokens, width = torch.Generator().manual_seed(0), 3, 400, 20
    centres = torch.randn(tokens, width, generator=generator)
    around = lambda n: centres[:, None] + 2 * torch.randn(tokens, n, width, generator=generator)  # noqa: E731
    row, asked = around(places).mean(dim=1), around(50)
    left = premise._left(asked, row[:, None], places / (places + 1)).sum() / premise._left(asked, torch.zeros(1)).sum()
    assert 1 - left == pytest.approx(1 / 5, abs=0.02)  # variances 1 of 1 + 4
    assert 1 - premise._left(asked, row[:, None]).sum() / premise._left(asked, torch.zeros(1)).sum() < 0


def test_one_layers_rows_cost_nothing_where_a_row_is_what_the_layer_reads(model):
    """A text of one token at each place: the mean over its places is what stands there."""
    text = np.array([[0, 5, 6, 7, 8, 9]], np.int32)
    rows = means(model.decoder, text, np.full_like(text, -1), VOCAB)
    table = premise.costs(model, rows, pd.DataFrame({"source": ["a"], "tokens": list(text)}))
    assert np.allclose(table.nats, table.dense, atol=1e-4)
    assert np.allclose(table.kl, 0, atol=1e-4)
    other = means(model.decoder, text[:, ::-1].copy(), np.full_like(text, -1), VOCAB)
    assert (premise.costs(model, other, pd.DataFrame({"source": ["a"], "tokens": list(text)})).kl > 1e-3).any()


def test_what_is_patched_is_what_the_targets_prompt_has(model, rows):
    """In the target's own prompt the patch changes nothing, in the source's it changes the name's place alone."""
    prompts = {name: ask(model.tokenizer, f"the {name} is", name, name) for name in ("a", "b")}
    trial = edits.Trial(model, rows, prompts, [("a", "b")], "one-to-one")
    aims, ends = edits.prompts([prompts["b"]])
    aim = edits.following(model, aims, ends)
    patched = trial.patched(aims)
    assert torch.allclose(edits.following(model, aims, ends, patched), aim, atol=1e-6)
    assert not torch.allclose(edits.following(model, trial.tokens, ends, patched), aim, atol=1e-4)
    added_, at = trial.added[1][0], prompts["a"].places[0]
    assert torch.equal(added_[[k for k in range(len(added_)) if k != at]], torch.zeros(len(added_) - 1, 64))


def test_each_part_of_a_study_has_all_pairs(model, rows, monkeypatch):
    names = {"a": "the", "b": "is", "c": "t", "ab": "x", "abc": "x"}
    monkeypatch.setattr(edits, "knows", lambda _, questions: set(questions))
    questions = {
        relation: {name: ask(model.tokenizer, f"{start} {name} is", name, answer) for name, answer in names.items()}
        for relation, start in (("capital", "the"), ("currency", "a"))
    }
    study = edits.Study(model, rows, questions)
    done = pd.concat(part() for part in study.parts().values())
    count = done.groupby(["relation", "model", "method", "layers"]).size()
    assert set(count["capital"]["published"]["rows"]) == {6}  # ordered pairs of three names of one token
    assert set(count["currency"]["published"]["rows"]) == {6}
    assert set(count["capital"]["published"]["shorter: subset"]) == {6}  # of two longer names
    unedited = done[(done.relation == "capital") & (done.model == "converted") & (done.method == "none")]
    unedited = unedited[unedited.layers == "full"]
    asked = [questions["capital"][name] for name in unedited.source]
    tokens, ends = edits.prompts(asked)
    said = convert(model, rows, (1, 2))(tokens)[torch.arange(6), ends].softmax(dim=-1)
    old = said[torch.arange(6), torch.tensor([question.answer[0] for question in asked])]
    assert unedited.old.tolist() == pytest.approx(old.tolist(), rel=1e-4)


def test_damage_is_what_text_loses_from_the_name_on(model, rows):
    """By hand, of one layer; the row of another token is read at the name's two places alone."""
    text = pd.DataFrame({"source": "a", "tokens": [np.array([0, 7, 5, 6, 5, 9], np.int32), TEXT[0][:1].repeat(6)]})
    done = edits.damage(model, rows, [(5, 6)], text, {"one": (1,)})
    assert done[["sequence", "tokens"]].to_numpy().tolist() == [[0, 3]]  # the other sequence lacks the name
    tokens, (old, new) = torch.tensor([[0, 7, 5, 6, 5, 9]]), (rows.at(1, torch.tensor(token)) for token in (5, 6))

    def swap(_, __, out):
        out = out.clone()
        out[:, [2, 4]] += new - old
        return out

    with torch.no_grad():
        plain = F.cross_entropy(model.decoder(tokens)[0, 2:-1], tokens[0, 3:], reduction="sum").item()
        hook = model.decoder.blocks[1].ffn.up.register_forward_hook(swap)
        swapped = F.cross_entropy(model.decoder(tokens)[0, 2:-1], tokens[0, 3:], reduction="sum").item()
        hook.remove()
    assert done[["nats", "dense"]].iloc[0].tolist() == pytest.approx([swapped, plain], abs=1e-4)
    assert abs(swapped - plain) > 1e-3


def test_rows_are_dealt_out_to_names_of_other_lengths(model):
    """By hand: two places read the one row twice, or once and the end mark's; one place reads the mean of two."""
    long, short = (ask(model.tokenizer, f"the {name} is", name, "x") for name in ("ab", "c"))
    lengths = [1] * VOCAB
    assert edits.dealt("copy", long, short, lengths).tolist() == [[1, 0], [1, 0]]
    assert edits.dealt("left-pad", long, short, lengths).tolist() == [[0, 1], [1, 0]]
    assert edits.dealt("average", short, long, lengths).tolist() == [[0.5, 0.5, 0]]


def test_sequences_begin_with_the_start_token_and_are_whole(model, tmp_path, monkeypatch):
    monkeypatch.setattr("stemrepro.published.models.LENGTH", 8)
    texts = ["the is " * 20, "a", "b", "the " * 30]
    rows = [{"source": "plays", "id": str(k), "split": "train", "text": text} for k, text in enumerate(texts)]
    pd.DataFrame(rows).to_parquet(tmp_path / "corpus.parquet")
    table = sequences(model, tmp_path / "corpus.parquet", "train", {"plays": 2})
    assert [len(tokens) for tokens in table.tokens] == [8] * 2
    assert [int(tokens[0]) for tokens in table.tokens] == [0] * 2
    assert table.tokens[0].tolist() == model.tokens("the is " * 20)[:8]
    assert table.tokens[1].tolist() == model.tokens("a\nb\nthe the the")[:8]
    with pytest.raises(UserError, match=r"'plays' has .* sequences of 8 tokens, not 99"):
        sequences(model, tmp_path / "corpus.parquet", "train", {"plays": 99})
