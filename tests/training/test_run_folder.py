"""Run folders of somebody else: nothing in them is executed, and invalid settings are one sentence."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from stemrepro.api import load
from stemrepro.cli import app
from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, sha256
from stemrepro.config.address import Address
from stemrepro.data.encoding import write_blocks
from stemrepro.data.tokenizer import read_tokenizer, train_tokenizer
from stemrepro.data.vocabularies import write_vocabularies
from stemrepro.evaluation.edit_session import EditSession
from stemrepro.evaluation.lm import StemLM
from stemrepro.evaluation.run_tokenizer import run_tokenizer, tokenizer_from
from stemrepro.evaluation.weights import load_folder
from stemrepro.model.ffn.base import ffn_class
from stemrepro.training.checkpoint import AtomicCheckpointIO
from stemrepro.training.retrofit_rows import beginning
from stemrepro.training.run import InitFrom
from stemrepro.training.run_folder import read_config, read_metrics
from tests.conftest import ROOT

RUN = Path("runs/tiny/main/stem-full/seed0")
EVIL = """
from pathlib import Path
from stemrepro.model.ffn.stem import Stem
Path("executed").touch()
class Rows(Stem): pass
"""
FFN = f"{RUN}/evil.py:Rows"


ROW = '{"step": 13, "tokens": 1664, "loss": 4.0, "rate": 0.1, "norm": 1.0}'


def changed(change):
    """The run with other settings, whose hash its weights carry."""
    config = change(yaml.safe_load((RUN / "config.yaml").read_text()))
    (RUN / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    save_file(load_file(RUN / "weights.safetensors"), RUN / "weights.safetensors", {"config": digest(config)})
    return config


@pytest.fixture
def home(atlas_run, atlas_sample, tmp_path, monkeypatch):
    """A project with recipes, a tokenizer and a trained run."""
    monkeypatch.chdir(tmp_path)
    run = atlas_run("stem-full")
    shutil.copytree(run.folder, RUN)
    Path("recipes").mkdir()
    shutil.copy(ROOT / "recipes/arms.yaml", "recipes")
    Path("data/tiny").mkdir(parents=True)
    for name in ("blocks", "tokenizer.json"):
        Path("data/tiny", name).symlink_to(atlas_sample / name)
    ffn_class.cache_clear()  # of a file that another test had imported
    return run


@pytest.fixture
def foreign(home):
    """The same with a network of a file that came with it."""
    (RUN / "evil.py").write_text(EVIL)
    changed(lambda config: config | {"model": config["model"] | {"ffn": FFN}})
    return home


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exit_code:
        raise UserError(done.stderr) if done.exit_code == 2 else AssertionError(done.output)
    return done.stdout


def keep_final_checkpoint(run):
    """What a retrofit begins with whose parent's checkpoint came with the folder."""
    checkpoint = {"run_config": read_config(RUN).written, "state_dict": load_file(run.weights)}
    AtomicCheckpointIO().save_checkpoint(checkpoint | {"optimizer_states": [{"state": {}}]}, RUN / "end.ckpt")
    init_from = InitFrom(RUN, read_config(RUN).hash, "mean-row", 0, row_tokens=64)
    return beginning(replace(run, address=Address("second", "stem-full"), init_from=init_from), text=None)


EDIT = ("edit", "--run", RUN, "--from", "France", "--to", "Spain")
GENERATE = ("generate", "--run", RUN, "--prompt", "the", "--tokens", 2)
READERS = {
    "generate": lambda run: call(*GENERATE),
    "edit": lambda run: call(*EDIT),
    "export": lambda run: call("export", RUN, "out"),
    "load": lambda run: load(RUN),
    "folder": lambda run: load_folder(RUN),
    "visitor": lambda run: EditSession(RUN, Path("data")),
    "lm": lambda run: StemLM.from_folder(RUN, "data/tiny/tokenizer.json"),
    "goes on": keep_final_checkpoint,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_executes_a_file_that_came_with_a_run(foreign, reader):
    with pytest.raises(UserError, match=r"evil\.py:Rows") as refused:
        READERS[reader](foreign)
    assert len(str(refused.value).strip().splitlines()) == 1
    assert not Path("executed").exists()


@pytest.mark.parametrize("reader", ["generate", "edit", "export", "load", "visitor", "lm"])
def test_no_reader_takes_another_texts_tokenizer(home, reader, sample, atlas_sample):
    """Neither that of a text which has replaced the run's, nor one that the run's token blocks weren't made with."""
    file, corpus, blocks = Path("data/tiny/tokenizer.json"), sample / "corpus/corpus.parquet", Path("data/tiny/blocks")
    file.unlink()
    train_tokenizer(corpus, 512, file)
    with pytest.raises(UserError, match=r"data/tiny/tokenizer\.json .*its tokens are not those of the text that runs/"):
        READERS[reader](home)
    blocks.unlink()
    write_blocks(corpus, file, blocks)
    wanted, there = (sha256(folder / "train.bin")[:12] for folder in (atlas_sample / "blocks", blocks))
    words = f"{file} is not the tokenizer of {RUN}, .* sha256 {wanted}: the blocks in data/tiny have {there};"
    with pytest.raises(UserError, match=words):
        READERS[reader](home)


def test_a_run_in_another_vocabulary_has_that_ones_tokenizer(home, atlas_sample):
    write_vocabularies(atlas_sample / "corpus/corpus.parquet", [600], Path("data/tiny/vocabularies"))
    other = Path("data/tiny/vocabularies/600")
    read = {"train_sha256": sha256(other / "blocks/train.bin")}
    changed(lambda config: config | {"model": config["model"] | {"vocab": 600}, "data": config["data"] | read})
    assert run_tokenizer(RUN, Path("data")).to_str() == read_tokenizer(other / "tokenizer.json").to_str()
    with pytest.raises(UserError, match=r"data/tiny/tokenizer\.json .*its tokens are not those of the text"):
        tokenizer_from(Path("data/tiny/tokenizer.json"), RUN)


@pytest.mark.parametrize("reader", [GENERATE, EDIT])
def test_a_file_is_executed_when_that_is_asked_for(foreign, reader):
    assert call(*reader, "--trust")
    assert Path("executed").exists()


def test_a_file_is_executed_when_an_arm_here_names_it(foreign):
    Path("recipes/arms.yaml").write_text(
        Path("recipes/arms.yaml").read_text() + f"\nmine: {{ffn: '{FFN}', placement: full}}\n"
    )
    assert load(RUN).model.config.ffn == FFN
    assert Path("executed").exists()


MODEL = {
    "vocab": (-1, 0, 10**9, 10**12, "300", 300.5, True, None, math.nan),
    "width": (0, 10**9, [16]),
    "heads": (0, 3),
    "kv_heads": (0,),
    "layers": (0, 10**7, 4000),
    "ffn": ("no-such", "../x", "..", None, ["stem"], "base", "loading", "stem-lowrank", "hash-moe"),
    "replaced_layers": ([-1], [99], 3, list(range(1, 5000))),
    "table_init": ("evil",),
    "table_shared": ("no",),
    "norm_eps": (math.inf, -1.0),
    "poem": (1,),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in MODEL.items() for value in values], ids=lambda x: repr(x)[:20]
)
def test_a_model_that_cannot_be_is_one_sentence(home, key, value):
    changed(lambda config: config | {"model": config["model"] | {key: value}})
    with pytest.raises(UserError) as refused:
        load_folder(RUN)
    assert str(RUN) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c | {"arm": "../../etc"}, "arm: "),
        (lambda c: c | {"data": {"mix": "../..", "train_sha256": ""}}, r"data\.mix: "),
        (lambda c: c | {"training": c["training"] | {"batch": 0}}, r"training\.batch: .*greater than 0"),
        (lambda c: {"model": c["model"]}, "arm: Field required"),
    ],
)
def test_settings_of_no_run_are_named_by_key(home, change, words):
    changed(change)
    with pytest.raises(UserError, match=rf"config\.yaml is missing or damaged \({words}"):
        read_config(RUN)


@pytest.mark.parametrize("text", ["a: " + "[" * 3000, "arm: a\narm: b", "3", "a: 2026-99-99", "\x00"])
def test_yaml_that_is_no_settings_is_refused_and_differs_in_everything(home, text):
    (RUN / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml is missing or damaged") as refused:
        read_config(RUN)
    assert "\n" not in str(refused.value)
    run = replace(home, folder=RUN)
    assert "arm: " in run.other_settings()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "line 13: .*object"),
        (ROW.replace("4.0", '"4.0"'), r"line 13\.loss: "),
        (ROW.replace("4.0", "NaN"), r"line 13\.loss: .*finite"),
        (ROW.replace("}", ', "validation": [1]}'), r"line 13\.validation: "),
        ("[" * 100_000, "is missing or damaged"),
    ],
)
def test_rows_of_no_training_are_named_by_line(home, line, words):
    assert [row["step"] for row in read_metrics(RUN)] == list(range(1, 13))
    with (RUN / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=rf"metrics\.jsonl:? {words}"):
        read_metrics(RUN)


def test_a_runs_own_settings_are_read_as_they_are_written(home):
    settings = read_config(RUN)
    assert settings.written == home.config == yaml.safe_load((RUN / "config.yaml").read_text())
    assert (settings.address, settings.seed) == (home.address, home.seed)
    assert (settings.model, settings.training) == (home.model, home.training)
    assert (settings.hash, settings.params_hash) == (digest(home.config), home.params_hash)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(home, number):
    state = load_file(RUN / "weights.safetensors")
    state["blocks.2.ffn.table.weight"][5, 3] = number
    save_file(state, RUN / "weights.safetensors", {"config": digest(home.config)})
    for name in ("generate", "edit", "export", "load"):
        with pytest.raises(UserError, match=r"weights\.safetensors: 'blocks\.2\.ffn\.table\.weight' holds NaN"):
            READERS[name](home)
    assert not Path("out").exists()


def test_no_memory_is_taken_for_a_model_that_the_weights_do_not_fill(home, monkeypatch):
    """Width 65,536 is within bounds; the file of 16 is not of it."""
    wide = {"width": 2**16, "vocab": 2**20, "ffn_width": 2**18}
    changed(lambda config: config | {"model": config["model"] | wide})
    make = torch.nn.Embedding.__init__

    def make_to_count(self, *sizes):
        assert torch.get_default_device().type == "meta", "a table was made"
        make(self, *sizes)

    monkeypatch.setattr(torch.nn.Embedding, "__init__", make_to_count)
    with pytest.raises(UserError, match=r"does not hold the weights of a model .* numbers, the model"):
        load_folder(RUN)
