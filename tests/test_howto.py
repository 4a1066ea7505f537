"""The example of docs/howto.md of playing with a run works as it stands, on a small run in the place that it names (the other one:
test_pipeline.py), and its sweep is one."""

import re
import shutil
from functools import reduce

from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.pipeline import drawing
from stemrepro.plan import make_params
from stemrepro.sweeps.spec import read_sweep
from stemrepro.sweeps.study import grid_points
from tests.conftest import ROOT


def example(word):
    """The one Python example that has a word."""
    (code,) = (
        code
        for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto.md").read_text(), re.DOTALL)
        if word in code
    )
    return compile(code, "docs/howto.md", "exec")


def test_a_llama_becomes_stem(tmp_path, monkeypatch, capsys):
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "my/llama")
    monkeypatch.chdir(tmp_path)
    exec(example("load_llama"), {})
    assert "[4, 64, 50]" in capsys.readouterr().out


def test_playing_with_a_run(atlas_run, atlas_sample, tmp_path, monkeypatch, capsys):
    """Without facts.json, as the vendored countries are others than the example's."""
    shutil.copytree(atlas_run("stem-full").folder, tmp_path / "runs/atlas/main/stem-full/seed0")
    (tmp_path / "data/atlas").mkdir(parents=True)
    shutil.copy(atlas_sample / "tokenizer.json", tmp_path / "data/atlas")
    monkeypatch.chdir(tmp_path)
    exec(example('"runs/atlas'), {})
    assert "0." in capsys.readouterr().out


def test_the_grid_is_a_sweep_of_known_arms(book, tmp_path):
    (code,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/howto.md").read_text(), re.DOTALL)
    (tmp_path / "grid.yaml").write_text(code)
    space = read_sweep(tmp_path / "grid.yaml").space
    assert set(space["arm"]) <= set(book.arms)
    assert len(grid_points(space)) == 18


def test_the_experiment_sets_a_field_that_is_planned(book):
    asked = re.findall(
        r"dvc exp run (?:-n \w+ )?-S plan/params.yaml:([\w.-]+)=([\d.]+) (\w+)@laptop",
        (ROOT / "docs/howto.md").read_text(),
    )
    assert len(asked) == 2
    planned = make_params(book, "laptop").model_dump(mode="json")
    for key, value, stage in asked:
        there = reduce(lambda part, name: part[name], key.split("."), planned)
        assert there != float(value)
        assert stage in drawing(book)
