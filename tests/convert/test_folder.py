"""Exported models in a process that can't import stemrepro, against the run's model: logits, text, lm-eval's scores."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from lm_eval import simple_evaluate
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, dynamic_module_utils
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, sha256, write_json
from stemrepro.common.provenance import provenance
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import Variant
from stemrepro.convert.folder import export
from stemrepro.convert.weights import check
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.lm import StemLM, task_manager
from stemrepro.measures.catalog import load
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.ffn.base import ffns
from stemrepro.model.generate import continuations
from stemrepro.model.transformer import build
from stemrepro.training.run import Run, params_hash
from tests.conftest import ROOT, TASKS
from tests.made_up import write_arm

ARMS = load(ROOT / "recipes").arms
EXPERTS = {"hash-moe", "topk-moe", "hash-layers", "sparse-experts", "stem-slots", "token-ffn", "joint-token-mixture"}
CANT = (
    EXPERTS | {"ngram-table", "value-embeddings", "bigram-input"} | {name for name, arm in ARMS.items() if arm.memory}
)
"""Arms whose networks modeling_stem.py hasn't."""
pytestmark = pytest.mark.slow
CAN = [arm for arm in ARMS if arm not in CANT]
MASKED, OTHER = "stem-full@masked", "stem-full@other"
"""With a document mask; with another rotary base and epsilon of the norms than everywhere."""
TEXT = "In the beginning <|end|> the capital of France"
TOKENS = torch.randint(1, 300, (2, 31), generator=torch.Generator().manual_seed(1))
LENGTH = 12
CLOSE = 2e-5
"""Between logits of up to 5 in float32; the largest difference measured is 6e-6."""
FRESH = """
import json, sys
sys.modules["stemrepro"] = None  # importing it fails
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokens, out, folders = torch.tensor(json.loads(sys.argv[1])), sys.argv[2], json.loads(sys.argv[3])
arrays = {}
for name, (folder, trusted) in folders.items():
    trust = {"trust_remote_code": True} if trusted else {}
    tokenizer, model = (kind.from_pretrained(folder, **trust) for kind in (AutoTokenizer, AutoModelForCausalLM))
    with torch.no_grad():
        arrays[f"{name}/logits"] = model(tokens).logits.numpy()
    for cached in (True, False):
        made = model.generate(tokens[:, :7], max_new_tokens=int(sys.argv[5]), do_sample=False, use_cache=cached)
        arrays[f"{name}/greedy/{cached}"] = made[:, 7:].numpy()
    kinds = (model.generation_config, model.config, tokenizer)
    arrays[f"{name}/ends"] = np.array([kind.eos_token_id for kind in kinds])
    ids = tokenizer(sys.argv[4]).input_ids
    arrays[f"{name}/class"], arrays[f"{name}/ids"] = np.array(type(model).__name__), np.array(ids)
    arrays[f"{name}/text"] = np.array(tokenizer.decode(ids, skip_special_tokens=True))
np.savez(out, **arrays)
"""


@pytest.fixture(scope="module")
def home(sample, tiny, tmp_path_factory):
    """A project with a tokenizer, a data card, and runs of every arm with weights as after training."""
    home = tmp_path_factory.mktemp("home")
    (home / "data/tiny").mkdir(parents=True)
    (home / "results/tiny").mkdir(parents=True)
    for name in ("blocks", "tokenizer.json"):
        (home / "data/tiny" / name).symlink_to(sample / name)
    (home / "results/tiny/data_card.md").write_text("# Data card\n\nspeeches: public domain\n")
    longer = tiny.model.model_copy(update={"sequence": 64})  # answers of the tasks are longer than 32
    scale = tiny.model_copy(update={"model": longer})
    text, wanted = sha256(sample / "blocks/train.bin"), {arm: (arm, {}) for arm in ARMS}
    wanted[MASKED] = ("stem-full", {"document_mask": True})
    wanted[OTHER] = ("stem-full", {"rope_base": 77.0, "norm_eps": 0.1})
    for name, (arm, fields) in wanted.items():
        address = Address.parse(name)
        model, training = run_settings(Address(MAIN, arm), ARMS[arm], Variant(), scale)
        folder = home / "runs/tiny" / address.path / "seed0"
        run = Run(address, 0, replace(model, **fields), training, folder, "sample", sample / "blocks", text)
        decoder = build(run.model, 0)
        noise = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in decoder.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=noise))
            for block in decoder.blocks:
                if hasattr(block.ffn, "order"):
                    block.ffn.start_step("a deal")
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(run.config))
        save_file(decoder.state_dict(), run.weights, {"config": digest(run.config)})
        write_json(folder / "provenance.json", provenance() | {"epochs": 0.5, "params_hash": run.params_hash})
    return home


DENSE = "runs/tiny/main/dense/seed0"
OTHER_RECORD = provenance() | {"epochs": 0.5, "params_hash": "0" * 12}


def folder_of(home, name):
    return home / "runs/tiny" / Address.parse(name).path / "seed0"


def exported(home, name, out):
    export(folder_of(home, name), out, home / "data", home / "scores", home / "results")
    return out


def own_model(home, name):
    return StemLM.from_folder(folder_of(home, name), home / "data/tiny/tokenizer.json")


@pytest.fixture(scope="module")
def fresh(home, tmp_path_factory):
    """The arrays that a process without stemrepro makes of the exported folders."""
    place = tmp_path_factory.mktemp("elsewhere")
    names = [*CAN, MASKED, OTHER]
    folders = {}
    for name in names:
        folder = exported(home, name, place / name)
        folders[name] = (str(folder), "stem" in json.loads((folder / "config.json").read_text())["model_type"])
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hub"), "OMP_NUM_THREADS": "1"}
    given = [json.dumps(TOKENS.tolist()), str(place / "arrays.npz"), json.dumps(folders), TEXT, str(LENGTH)]
    around = {"cwd": place, "env": os.environ | offline, "stdin": subprocess.DEVNULL}
    done = subprocess.run([sys.executable, "-I", "-c", FRESH, *given], **around, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(place / "arrays.npz") as arrays:
        return dict(arrays)


@torch.no_grad()
def test_every_arm_is_exported_or_refused(home, tmp_path):
    assert {arm.ffn for arm in ARMS.values()} == set(ffns())
    for arm in CANT:
        with pytest.raises(UserError, match="can't be exported"):
            exported(home, arm, tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"ffn 'my/rows\.py:Rows' can't be exported"):
        check(replace(own_model(home, "stem-full").model.config, ffn="my/rows.py:Rows"))


@pytest.mark.parametrize("name", [*CAN, OTHER])
def test_logits_and_greedy_tokens_are_the_runs_own(home, fresh, name):
    model = own_model(home, name).model
    with torch.no_grad():
        logits = model(TOKENS)
    assert logits.abs().max() > 3
    np.testing.assert_allclose(fresh[f"{name}/logits"], logits, rtol=0, atol=CLOSE)
    expected = torch.stack(list(continuations(model, TOKENS[:, :7], LENGTH)), dim=1)
    for cached in (True, False):
        np.testing.assert_array_equal(fresh[f"{name}/greedy/{cached}"], expected)
    dense = ARMS[name.partition("@")[0]].ffn == "dense"
    assert fresh[f"{name}/class"] == ("LlamaForCausalLM" if dense else "StemForCausalLM")


def test_a_text_begins_behind_an_end_mark_and_holds_none(home, fresh):
    """Our tokens of the text, also where it spells the mark."""
    ids = read_tokenizer(home / "data/tiny/tokenizer.json").encode(TEXT).ids
    assert END_OF_DOCUMENT not in ids
    for name in ("dense", "stem-full"):
        assert fresh[f"{name}/ids"].tolist() == [END_OF_DOCUMENT, *ids]
        assert fresh[f"{name}/text"] == TEXT
        assert fresh[f"{name}/ends"].tolist() == [END_OF_DOCUMENT] * 3


@torch.no_grad()
def test_without_its_mask_a_model_reads_one_document(home, fresh):
    """Which is what the masked model sees of a document after a mark."""
    model = own_model(home, MASKED).model
    marked = torch.cat([torch.full((2, 1), END_OF_DOCUMENT), TOKENS], dim=1)
    np.testing.assert_allclose(fresh[f"{MASKED}/logits"], model(marked)[:, 1:], rtol=0, atol=CLOSE)
    assert fresh[f"{MASKED}/ids"].tolist() == read_tokenizer(home / "data/tiny/tokenizer.json").encode(TEXT).ids
    assert "a mask that keeps documents from seeing each other, which is not carried over" in card_of(home, MASKED)


def card_of(home, name):
    return (exported(home, name, home / "cards" / name) / "README.md").read_text()


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """Code that comes with a model is in a folder of this test, and none of it or of another test's is imported yet."""

    def forget():
        for module in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
            del sys.modules[module]

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    forget()
    yield
    forget()


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize(
    ("name", "asked", "rows"),
    [
        ("stem-full", {"new_num_tokens": 301}, 301),
        ("stem-lowrank", {"pad_to_multiple_of": 64, "mean_resizing": False}, 320),
        ("stem-full", {"new_num_tokens": 290}, 290),
    ],
)
@torch.no_grad()
def test_tables_are_resized_with_the_embedding(home, tmp_path, name, asked, rows):
    """The tokens that stay are read as before; also after a copy was written and loaded, and a second time."""

    def load_from(folder):
        return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

    model = load_from(exported(home, name, tmp_path / "out"))
    model.model.layers[1].mlp.table.weight.requires_grad_(False)
    tokens, kept = TOKENS.clamp(max=min(rows, 300) - 1), min(rows, 300)
    before = model(tokens).logits[..., :kept]
    model.resize_token_embeddings(**asked)
    tables = [layer.mlp.table for layer in model.model.layers if hasattr(layer.mlp, "table")]
    assert [(table.num_embeddings, len(table.weight)) for table in tables] == [(rows, rows)] * 3
    assert [table.weight.requires_grad for table in tables] == [False, True, True]
    assert all(table.weight.isfinite().all() and table.weight[-1].any() for table in tables)
    torch.testing.assert_close(model(tokens).logits[..., :kept], before, rtol=0, atol=0)
    tokens[0, 3] = rows - 1
    after = model(tokens).logits
    model.save_pretrained(tmp_path / "copy")
    torch.testing.assert_close(load_from(tmp_path / "copy")(tokens).logits, after, rtol=0, atol=0)
    model.model.resize_token_embeddings(310)
    assert {len(table.weight) for table in tables} == {310}


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize("name", ["dense", "stem-full"])
def test_lm_eval_scores_it_as_it_scores_the_run(home, sample, tmp_path, name):
    pytest.importorskip("accelerate", reason="lm-eval's model 'hf' needs accelerate, which the dev extra has")
    settings = {"tasks": list(TASKS), "task_manager": task_manager(sample / "items")}
    settings |= {"bootstrap_iters": 0, "log_samples": True}
    folder = exported(home, name, tmp_path / "out")
    arguments = {"pretrained": str(folder), "trust_remote_code": name != "dense"}
    theirs = simple_evaluate("hf", model_args=arguments, batch_size=3, device="cpu", **settings)
    ours = simple_evaluate(own_model(home, name), **settings)
    for task in TASKS:
        for metric in ("acc,none", "acc_norm,none"):
            assert theirs["results"][task][metric] == ours["results"][task][metric]
        scores = [
            {row["doc_id"]: [score for ((score, _),) in row["resps"]] for row in result["samples"][task]}
            for result in (theirs, ours)
        ]
        assert scores[0].keys() == scores[1].keys()
        for item, row in scores[1].items():
            assert scores[0][item] == pytest.approx(row, abs=1e-3)


def test_the_card_is_made_of_the_runs_record(home):
    config = yaml.safe_load((folder_of(home, "stem-full") / "config.yaml").read_text())
    text = card_of(home, "stem-full")
    told = ["y = W_d(SiLU(W_g x) * U[token])", "1,536 tokens of mix `sample`", "0.5 epochs", "This run wasn't scored"]
    for words in (*told, params_hash(config), provenance()["commit"], "trust_remote_code=True"):
        assert words in text
    tables = 3 * 300 * 24
    assert f"{tables:,} in tables" in text
    assert "trust_remote_code" not in card_of(home, "dense")
    assert (home / "cards/stem-full/data_card.md").read_text() == (home / "results/tiny/data_card.md").read_text()


def test_the_card_has_the_scores_of_this_very_run(home, tmp_path):
    config = yaml.safe_load((folder_of(home, "dense") / "config.yaml").read_text())
    scores = tmp_path / "scores"
    write_arm(scores / "tiny", "dense", (1.25, 1.5, 2.5))

    def text(out):
        export(folder_of(home, "dense"), tmp_path / out, home / "data", scores, home / "results")
        return (tmp_path / out / "README.md").read_text()

    others = text("others")
    assert "of other runs or settings than this one's; none are shown" in others
    assert "1.25" not in others
    write_arm(scores / "tiny", "dense", (1.25, 1.5, 2.5), params_hash=params_hash(config))
    assert "| prose, nats per token | 1.2500 | 1.7500 |" in text("of-this-run")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda home: (home / DENSE / "config.yaml").write_text("model: 3"), r"config\.yaml is missing or damaged"),
        (lambda home: (home / DENSE / "weights.safetensors").unlink(), r"weights\.safetensors is missing; train"),
        (lambda home: (home / DENSE / "provenance.json").write_text("{}"), r"provenance\.json .*commit: Field"),
        (
            lambda home: write_json(home / DENSE / "provenance.json", OTHER_RECORD),
            r"dense/seed0/provenance\.json is .*\(it is of a run with other settings\); .*\(of a run: its folder\)",
        ),
        (lambda home: (home / DENSE / "diverged.json").write_text("{}"), r"seed0 diverged .* no weights to export"),
        (lambda home: (home / "data/tiny/tokenizer.json").unlink(), r"tokenizer\.json is missing or damaged"),
        (
            lambda home: (home / "results/tiny/data_card.md").unlink(),
            r"data_card\.md can't be read .* 'stemrepro data blocks --scale tiny'",
        ),
    ],
)
def test_what_cannot_be_exported_is_one_sentence_and_nothing_written(home, tmp_path, monkeypatch, damage, words):
    copy = tmp_path / "home"
    for part in ("data", "results", "runs/tiny/main/dense"):
        shutil.copytree(home / part, copy / part)
    damage(copy)
    monkeypatch.chdir(copy)
    before = sorted(copy.rglob("*"))
    done = CliRunner().invoke(app, ["export", "runs/tiny/main/dense/seed0", "out"])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    with pytest.raises(UserError, match=words):
        raise UserError(done.stderr)
    assert sorted(copy.rglob("*")) == before
