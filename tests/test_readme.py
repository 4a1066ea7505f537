"""The README's Python examples run as they stand, on small runs in the places that they name."""

import os
import re
import shutil

import pytest

from stemrepro.training.train import train
from tests.conftest import ROOT, quiet

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.fixture
def project(make_run, tiny, atlas_run, atlas_sample, sample, tmp_path, monkeypatch):
    """Runs, tokenizers and items where the examples look for them; without facts.json, as the vendored countries are others."""
    training = tiny.training.model_copy(update={"tokens": 2 * 4 * 128, "marks": 1})
    scale = tiny.model_copy(update={"model": tiny.model.model_copy(update={"sequence": 128}), "training": training})
    run = make_run("stem-full", scale=scale)
    train(run, quiet)
    for scale, folder in (("laptop", run.folder), ("atlas", atlas_run("stem-full").folder)):
        shutil.copytree(folder, tmp_path / f"runs/{scale}/main/stem-full/seed0")
        (tmp_path / "data" / scale).mkdir(parents=True)
    shutil.copy(sample / "tokenizer.json", tmp_path / "data/laptop")
    shutil.copy(atlas_sample / "tokenizer.json", tmp_path / "data/atlas")
    (tmp_path / "data/text-8").mkdir()
    (tmp_path / "data/text-8/items").symlink_to(sample / "items")
    monkeypatch.chdir(tmp_path)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return tmp_path


def test_there_are_examples():
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: code.split()[1])
def test_an_example_runs(project, code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    if "print" in code:
        assert capsys.readouterr().out.strip()
