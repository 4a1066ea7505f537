"""The example of docs/howto.md of playing with a run works as it stands, on a small run in the place that it names. (The other one:
test_pipeline.py.)"""

import re
import shutil

from tests.conftest import ROOT


def test_playing_with_a_run(atlas_run, atlas_sample, tmp_path, monkeypatch, capsys):
    """Without facts.json, as the vendored countries are others than the example's."""
    _, code = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto.md").read_text(), re.DOTALL)
    shutil.copytree(atlas_run("stem-full").folder, tmp_path / "runs/atlas/main/stem-full/seed0")
    (tmp_path / "data/atlas").mkdir(parents=True)
    shutil.copy(atlas_sample / "tokenizer.json", tmp_path / "data/atlas")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/howto.md", "exec"), {})
    assert "0." in capsys.readouterr().out
