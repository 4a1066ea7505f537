"""The study of serving on a tiny model: what its arms compute, the bytes that they read, and what is left in a file."""

import sys
import time
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from stemrepro.model.cache import Cache
from stemrepro.model.config import layers_of
from stemrepro.model.cost import decode_bytes
from stemrepro.published import peers, serving
from stemrepro.published.mapped import Mapped, bytes_from_disk
from stemrepro.published.serving import Arm, Stored, convert
from tests.published.conftest import FFN, HEADS, KV, LAYERS, WIDTH, entries, write

VOCAB = len(entries())
TEXT = torch.arange(400).reshape(2, 200) * 7 % VOCAB


@pytest.fixture
def tables():
    torch.manual_seed(1)
    return {layer: torch.randn(VOCAB, FFN) for layer in range(1, LAYERS)}


@pytest.fixture
def mapped(tables, tmp_path):
    with closing(Mapped(tmp_path / "tables", list(tables.values()))) as mapped:
        yield mapped


def past_of(decoder, context):
    past = Cache(LAYERS)
    decoder.hidden(TEXT[:1, :context], past)
    return past


def test_all_placements_of_a_table_give_the_same_logits(model, tables, mapped):
    arms = serving.arms(model, tables, mapped)
    assert list(arms) == ["dense", "third", "half", "full", "warm", "warm-ahead", "cold", "cold-ahead"]
    with torch.no_grad():
        want = arms["full"].decoder(TEXT)
        for name in serving.IN_A_FILE:
            arms[name].before(TEXT)
            arms[name].ahead(TEXT)
            assert torch.equal(arms[name].decoder(TEXT), want), name
        assert not torch.allclose(arms["dense"].decoder(TEXT), want, atol=1e-2)
        third = arms["third"].decoder.config
    assert third.replaced_layers == layers_of("third", LAYERS)


def test_rows_of_a_token_lie_side_by_side(tables, mapped, tmp_path):
    whole = np.fromfile(tmp_path / "tables", np.float32).reshape(VOCAB, LAYERS - 1, FFN)
    assert np.array_equal(whole[7, 1], tables[2][7].numpy())
    assert mapped.record == (LAYERS - 1) * FFN * 4


def test_a_cool_file_is_read_from_the_disk_and_a_warm_one_is_not(tmp_path):
    tables = [torch.arange(2.0**20).view(1024, 1024) + k for k in range(2)]  # a record is two pages
    with closing(Mapped(tmp_path / "tables", tables)) as mapped:
        token = torch.tensor([[3], [900]])

        def read():
            before = bytes_from_disk()
            assert torch.equal(mapped.tables[1][token], tables[1][token])
            return bytes_from_disk() - before

        mapped.warm(token)
        assert read() == 0
        for _ in range(40):  # pages that were just written can't leave at once
            mapped.cool()
            if cold := read():
                break
            time.sleep(0.05)
        else:
            pytest.skip("no disk: this folder lies in memory")
        assert cold == 2 * 4096
        assert read() == 0


@pytest.mark.parametrize("kind", serving.TYPES)
@pytest.mark.parametrize(("arm", "batch"), [("dense", 1), ("dense", 2), ("full", 1), ("full", 2)])
def test_bytes_that_a_pass_reads_are_those_of_the_closed_form(model, tables, kind, arm, batch):
    """By hand: each matrix and gain once, a row of the embedding and of each table, keys and values of 13 tokens."""
    typed = serving.retyped(model, serving.TYPES[kind])
    held = {layer: table.to(serving.TYPES[kind]) for layer, table in tables.items()}
    decoder = {"dense": typed.decoder, "full": convert(typed, Stored(held), [*held], serving.TYPES[kind])}[arm]
    attention, ffn = 2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH * KV // HEADS, WIDTH * FFN
    deleted = {"dense": 0, "full": LAYERS - 1}[arm]
    weights = LAYERS * (attention + 3 * ffn + 2 * WIDTH) + WIDTH + VOCAB * WIDTH - deleted * ffn
    rows, keys = batch * (WIDTH + deleted * FFN), batch * 13 * LAYERS * 2 * WIDTH * KV // HEADS
    hand = (weights + rows + keys) * serving.TYPES[kind].itemsize
    with torch.no_grad():
        counted = Arm(decoder).bytes_read(past_of(typed.decoder, 11), TEXT[:batch, 11:14])
    assert decode_bytes(decoder.config, 13, batch, serving.TYPES[kind].itemsize) == hand
    assert counted == hand


def test_a_turn_chooses_what_a_whole_pass_chooses(model):
    turn, text = Arm(model.decoder), TEXT[:1, :16]
    with torch.no_grad():
        want = model.decoder(text).argmax(dim=-1)
        assert turn.prefill(text)().tolist() == want[:, -1].tolist()
        got = turn.decode(past_of(model.decoder, 10), text[:, 10:])()
    assert torch.cat(got).tolist() == want[0, 11:].tolist()


def test_hugging_face_goes_on_from_the_same_past(model, llama, tmp_path):
    """Its own tokens, one by one, are those of the whole pass that it makes over prompt and tokens."""
    write(llama, tmp_path / "model.gguf")
    [(name, peer)] = peers.peers(tmp_path, torch.float32).items()
    assert name == "hugging-face"
    with torch.inference_mode():
        out = peer.decode(past_of(model.decoder, 10), TEXT[:, 10:15])()
        assert out.shape == (2, 15)
        prompt = torch.cat([TEXT[:1, :10].repeat(2, 1), TEXT[:, 10:11]], dim=1)
        assert torch.equal(out[:, :11], prompt)
        assert torch.equal(model.decoder(out)[:, 10:-1].argmax(dim=-1), out[:, 11:])
        assert peer.prefill(TEXT)()[:, -1].tolist() == model.decoder(TEXT)[:, -1].argmax(dim=-1).tolist()


def test_llama_cpp_takes_part_where_it_is_installed(tmp_path, monkeypatch):
    seen = []
    fake = SimpleNamespace(reset=lambda: seen.append("reset"), eval=seen.append)
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=lambda *_, **__: fake))
    monkeypatch.setattr(peers, "find_spec", lambda name: name == "llama_cpp")
    (tmp_path / "model.gguf").touch()
    [peer] = peers.peers(tmp_path, torch.float32).values()
    past = SimpleNamespace(tokens=torch.tensor([[5, 6]]))
    work = peer.decode(past, torch.tensor([[7, 8, 9]]))
    assert seen == ["reset", [5, 6, 7]]
    work()
    assert seen[2:] == [[8], [9]]
    assert peer.prefill(TEXT) is None


def test_the_study_resumes_and_leaves_no_file_behind(model, llama, tmp_path, monkeypatch):
    models, rows, out = tmp_path / "model", tmp_path / "data" / "rows", tmp_path / "out"
    for folder in (models, rows, out):
        folder.mkdir(parents=True)
    write(llama, models / "model.gguf")
    torch.manual_seed(1)
    made = []
    given = SimpleNamespace(at=lambda layer, tokens: made.append(layer) or torch.randn(len(tokens), FFN))
    small = {"CONTEXTS": (8, 16), "STEPS": {8: 2, 16: 1}, "BATCHES": (1, 2), "LONGEST": 16, "MATRIX": 4096, "ROUNDS": 4}
    small |= {"load": lambda _: model, "fetch": lambda _: models, "rows_of": lambda *_: given}
    small["sequences"] = lambda *_: pd.DataFrame({"tokens": list(TEXT.numpy())})
    for name, value in small.items():
        monkeypatch.setattr(serving, name, value)
    serving.make("tiny", tmp_path / "corpus.parquet", rows, out)
    files = sorted(path.stem for path in out.iterdir())
    lengths = [(b, c) for b in (1, 2) for c in (8, 16)]
    kept = [f"times.decode-{kind}-{b}-{c}" for kind in serving.TYPES for b, c in lengths]
    kept += [f"times.prefill-{kind}-{b}-{c}" for kind in serving.TYPES for b, c in lengths if b * c <= 16]
    assert files == sorted(kept)
    assert [path.name for path in rows.parent.iterdir()] == ["rows"]
    table = pd.read_parquet(out / "times.decode-bfloat16-2-8.parquet")
    assert (table.groupby("arm").size() == 3).all()
    ours = {"dense", "third", "half", "full", *serving.IN_A_FILE}
    assert set(table.arm) == ours | {"hugging-face", "product", "bandwidth"}
    assert (pd.read_parquet(out / "times.decode-bfloat16-1-8.parquet").groupby("arm").size() == 4).all()
    assert (table.seconds > 0).all()
    assert (table.bytes == table.counted).all()
    assert set(pd.read_parquet(out / "times.decode-float32-1-16.parquet").arm) & set(serving.IN_A_FILE) == set()
    made.clear()
    (out / "times.prefill-bfloat16-1-8.parquet").unlink()
    serving.make("tiny", tmp_path / "corpus.parquet", rows, out)
    assert (sorted(path.stem for path in out.iterdir()), made) == (files, list(range(1, LAYERS)))
    serving.make("tiny", tmp_path / "corpus.parquet", rows, out)
    assert made == list(range(1, LAYERS))  # nothing is left to do
