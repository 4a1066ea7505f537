"""Bad input through the front door: one sentence, exit code 2."""

import json
import shutil

import pandas as pd
import pytest
import yaml

from stemrepro import plan
from stemrepro.cli import COMMANDS, main, parser
from tests.conftest import ROOT, TINY


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--scale", "huge"), "scale 'huge' is unknown"),
        (("train", "--arm", "dense"), "params.yaml is missing"),
        (("data", "fetch", "--mix", "poems"), "unknown data mix 'poems'"),
        (("verify", "--scale", "laptop"), "has no verdicts"),
        (("cost", "--shape", "gpt-9"), "shape 'gpt-9' is unknown"),
        (("paper", "chess"), "no number of the paper matches chess"),
    ],
)
def test_one_sentence_and_exit_code_two(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes" / "scales").mkdir(parents=True)
    (tmp_path / "recipes" / "arms.yaml").write_text("dense: {ffn: dense, placement: none}")
    (tmp_path / "recipes" / "mixes.yaml").write_text("text: {kind: archives}")
    for name in ("paper", "shapes"):
        (tmp_path / "recipes" / f"{name}.yaml").write_text("{}")
    if arguments[0] == "data":
        (tmp_path / "params.yaml").write_text("scales: [tiny]\nmix: {text: {kind: archives}}")
    assert run(*arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("stemrepro: ")
    assert words in message
    assert message.count("\n") == 1


def test_every_command_has_help(capsys):
    assert run("--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, function in COMMANDS.items():
        assert name in shown
        assert function.__doc__.split(";")[0].split(" (")[0][:40] in shown


def test_commands_have_not_crept():
    assert set(COMMANDS) == {"plan", "data", "train", "evaluate", "track", "paper", "cost", "sweep", "report", "verify"}
    assert parser().prog == "stemrepro"


def test_several_arms_are_trained_and_scored_together_and_without_mlflow(sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY | {"seeds": [0, 1], "workers": 2}))
    plan.write("tiny")
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    arms = ("--scale", "tiny", "--arm", "dense", "stem-full")
    assert run("train", *arms, "--untracked") == 0
    assert not (tmp_path / "mlflow.db").exists()
    assert run("evaluate", *arms, "--part", "losses") == 0
    for arm, ffn in (("dense", "dense"), ("stem-full", "stem")):
        scores = pd.read_csv(tmp_path / "scores/tiny" / arm / "losses/losses.csv")
        assert set(scores["seed"]) == {0, 1}
        config = yaml.safe_load((tmp_path / "runs/tiny" / arm / "seed1/config.yaml").read_text())
        assert (config["arm"]["name"], config["arm"]["ffn"]) == (arm, ffn)
    summary = json.loads((tmp_path / "scores/tiny/stem-full/losses/summary.json").read_text())
    assert summary["parameters"]["tables"] == 3 * 300 * 24
