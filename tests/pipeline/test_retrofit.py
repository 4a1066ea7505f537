"""`stemrepro retrofit` on a small dense run: what it reports, against losses computed here, and what it leaves."""

import shutil

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from stemrepro.api import load
from stemrepro.cli import app
from stemrepro.common.files import digest
from stemrepro.config.sources import prose
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.weights import load_folder
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder
from stemrepro.training.explained import explained
from stemrepro.training.retrofit_rows import retrofitted
from stemrepro.training.train import train
from tests.conftest import quiet

pytestmark = pytest.mark.slow

STEPS = 4
WORDS = ("runs/tiny/main/dense/seed0", "out", "--placement", "half", "--tokens", "480", "--steps", str(STEPS))


def call(*words):
    return CliRunner().invoke(app, ["retrofit", *words])


def plain(text):
    return " ".join(text.split())


@pytest.fixture
def home(make_run, sample, tmp_path, monkeypatch):
    """A project with a trained dense run of scale tiny, and one of STEM."""
    monkeypatch.chdir(tmp_path)
    for arm in ("dense", "stem-full"):
        run = make_run(arm)
        train(run, quiet)
        shutil.copytree(run.folder, tmp_path / f"runs/tiny/main/{arm}/seed0")
    (tmp_path / "data/tiny").mkdir(parents=True)
    for name in ("blocks", "tokenizer.json"):
        (tmp_path / "data/tiny" / name).symlink_to(sample / name)
    return tmp_path


@torch.no_grad()
def prose_loss(model, blocks):
    """Mean over prose sources of the mean loss of their held-out text, row after row."""
    numbers, owners = blocks.spread(16384)
    losses = {}
    for number, owner in zip(numbers, owners[:, 0], strict=True):
        row = blocks.at([number])
        loss = torch.nn.functional.cross_entropy(model(row[:, :-1])[0], row[0, 1:])
        losses.setdefault(blocks.about["documents"][owner][1], []).append(float(loss))
    sources = prose(losses)
    return sum(sum(losses[source]) / len(losses[source]) for source in sources) / len(sources)


def test_losses_are_those_of_the_models_before_and_after(home):
    done = call(*WORDS)
    assert done.exit_code == 0, done.output
    losses = pd.read_csv("out/losses.csv").set_index(["model", "steps"])["prose"]
    dense, _ = load_folder(home / WORDS[0])
    train_text, held_out = (TokenBlocks(home / "data/tiny/blocks", split, 32, 300) for split in ("train", "validation"))
    text = [train_text.batch(0, 0, 15)[:, :-1]]
    stem = ModelConfig(**vars(dense.config) | {"ffn": "stem", "replaced_layers": (1, 3)})
    expected = {("dense", 0): dense}
    for name, kind in (("token means", "token-means"), ("mean row", "mean-row")):
        expected[name, 0] = Decoder(stem).eval()
        expected[name, 0].load_state_dict(retrofitted(dense, stem, text, kind))
    places = {"dense": "retrofit/dense", "token means": "retrofit/stem-half", "mean row": "retrofit-mean-row/stem-half"}
    expected |= {(name, STEPS): load_folder(home / "out/tiny" / place / "seed0")[0] for name, place in places.items()}
    assert set(losses.index) == set(expected)
    for key, model in expected.items():
        assert losses[key] == pytest.approx(prose_loss(model, held_out), abs=1e-5)
    assert losses.nunique() == 6
    for value in losses:
        assert f"{value:.4f}" in done.output
    numbers, _ = held_out.spread(16384)
    rows = {layer: expected["token means", 0].blocks[layer].ffn.table.weight.detach() for layer in (1, 3)}
    shares = explained(dense, rows, [held_out.at(numbers)[:, :-1]])
    again = pd.read_csv("out/explained.csv").set_index("layer")["share"]
    assert again.to_dict() == pytest.approx(shares, abs=1e-6)
    assert all(f"{share:.0%} (layer {layer})" in plain(done.output) for layer, share in shares.items())


def test_what_is_done_stays_and_other_wishes_are_refused(home):
    assert call(*WORDS).exit_code == 0
    weights = home / "out/tiny/retrofit/stem-half/seed0/weights.safetensors"
    before = weights.stat().st_mtime_ns
    assert call(*WORDS).exit_code == 0
    assert weights.stat().st_mtime_ns == before
    assert load(weights.parent).logits("the people").shape[-1] == 300
    other = call(*WORDS[:-1], "5")
    assert other.exit_code == 2
    assert "holds a run with other settings (training.tokens: 512 there, 640 requested); name another folder" in plain(
        other.output
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("runs/tiny/main/stem-full/seed0", "out"), "a retrofit needs a dense model of the same shape"),
        (("runs/tiny/main/dens/seed0", "out"), "run 'runs/tiny/main/dens/seed0' is unknown"),
        ((*WORDS[:2], "--placement", "some"), "placement 'some' is unknown"),
        ((*WORDS[:2], "--placement", "none"), "no layer is to have a table"),
        ((*WORDS[:2], "--tokens", "1537"), "1,537 tokens for rows: runs/tiny/main/dense/seed0 was trained on 1,536"),
        ((*WORDS[:2], "--tokens", "31"), "one sequence at least"),
    ],
)
def test_bad_wishes_are_one_sentence(home, words, sentence):
    done = call(*words)
    assert done.exit_code == 2
    assert sentence in plain(done.output)
    assert not (home / "out").exists()


def changed(folder, change):
    """A run whose settings are others, as if it had been trained with them."""
    config = change(yaml.safe_load((folder / "config.yaml").read_text()))
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    weights = load_file(folder / "weights.safetensors")
    save_file(weights, folder / "weights.safetensors", {"config": digest(config)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c | {"init_from": {"parent": "abc", "tables": "kept"}}, "dense/seed0 resumes from another run"),
        (lambda c: c | {"data": c["data"] | {"train_sha256": "0" * 64}},
         "isn't the text that runs/tiny/main/dense/seed0 was trained on"),
    ],
)  # fmt: skip
def test_runs_of_another_text_and_later_stages_are_refused(home, change, words):
    changed(home / WORDS[0], change)
    done = call(*WORDS)
    assert done.exit_code == 2
    assert words in plain(done.output)
