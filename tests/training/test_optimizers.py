"""Groups of a run's optimiser, and Muon: against a plain loop with torch's optimisers, and after a kill."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import build
from stemrepro.training import callbacks
from stemrepro.training.module import LanguageModule
from stemrepro.training.optimizers import Chain
from stemrepro.training.rowwise import RowwiseAdamW
from stemrepro.training.touched import TouchedAdamW
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.training.test_train import rows, train_until

SETTINGS = {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


@pytest.mark.parametrize("kind", [TouchedAdamW, RowwiseAdamW])
def test_a_closure_makes_the_gradients_of_its_own_step(kind):
    """Lightning's way: forward and backward run inside `step`, so nothing must move before them."""

    def end(by_closure):
        table, backbone = nn.Parameter(torch.ones(5, 4)), nn.Parameter(torch.ones(4))
        optimizer = Chain([torch.optim.AdamW([backbone], **SETTINGS), kind([table], **SETTINGS)])

        def closure(step):
            optimizer.zero_grad()
            rows = nn.functional.embedding(torch.tensor([step, 4]), table, sparse=kind is TouchedAdamW)
            loss = (rows * backbone - step).square().sum()
            loss.backward()
            return loss

        for step in range(4):
            if by_closure:
                assert optimizer.step(lambda step=step: closure(step)).requires_grad
            else:
                closure(step)
                optimizer.step()
        return table.detach(), backbone.detach()

    assert all(map(torch.equal, end(by_closure=True), end(by_closure=False)))


@pytest.mark.parametrize(
    ("arm", "kind"), [("stem-full", "AdamW"), ("stem-touched", "TouchedAdamW"), ("stem-rowwise", "RowwiseAdamW")]
)
def test_tables_have_the_update_that_their_arm_asks_for(make_run, arm, kind):
    optimizer = LanguageModule(make_run(arm)).configure_optimizers()["optimizer"]
    kinds = {part.param_groups[0]["name"]: type(part).__name__ for part in optimizer.optimizers}
    assert kinds == {"embedding": "AdamW", "backbone": "AdamW", "tables": kind}


@pytest.fixture
def muon(make_run, tiny):
    """muon("stem-full") -> a Run of 12 steps with Muon; matrices are of several shapes."""
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update={"optimizer": "muon"})})

    def make(arm, seed=0, **fields):
        return make_run(arm, seed, scale, **fields)

    return make


def test_muon_has_the_hidden_matrices_alone(muon):
    optimizer = LanguageModule(muon("jtok")).configure_optimizers()["optimizer"]
    names = {group["name"]: group["param_names"] for group in optimizer.param_groups}
    of_layer_1 = {name.removeprefix("blocks.1.") for name in names["matrices"] if name.startswith("blocks.1.")}
    assert of_layer_1 == {
        "attention.query.weight", "attention.key.weight", "attention.value.weight", "attention.out.weight",
        "ffn.gate.weight", "ffn.up.weight", "ffn.down.weight",
    }  # fmt: skip
    assert names["embedding"] == ["embedding.weight"]
    assert {"head.weight", "norm.weight", "blocks.1.ffn.scale", "blocks.0.ffn_norm.weight"} <= {*names["backbone"]}
    assert names["tables"] == [f"blocks.{layer}.ffn.table.weight" for layer in (1, 2, 3)]


def test_experts_are_left_to_adamw(muon):
    """Their matrices lie in one tensor [experts, ffn_width, width], and torch's Muon takes matrices alone."""
    optimizer = LanguageModule(muon("topk-moe")).configure_optimizers()["optimizer"]
    names = {group["name"]: group["param_names"] for group in optimizer.param_groups}
    assert "blocks.1.ffn.router.weight" in names["matrices"]
    assert "blocks.1.ffn.experts.gate" in names["backbone"]


def plain_losses(run):
    """Losses and weights of a run with Muon, by torch's optimisers in a loop; no step is clipped."""
    model, training = build(run.model, run.seed), run.training
    blocks = LanguageModule(run).blocks
    in_blocks = dict(model.blocks.named_parameters())
    matrices = [p for name, p in in_blocks.items() if p.dim() == 2 and "table" not in name]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    optimizers = (
        torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    )
    losses = []
    for step in range(training.steps):
        rate = min(1.0, (step + 1) / 3)  # of 12 steps 3 rise
        if step >= 3:
            rate = 0.1 + 0.9 * 0.5 * (1 + torch.tensor(torch.pi * (step - 3) / 9, dtype=torch.float64).cos().item())
        parts = []
        for part in range(2):
            batch = blocks.batch(run.seed, 2 * step + part, 2)
            loss = token_losses(model(batch[:, :-1]), batch[:, 1:]).mean() / 2
            loss.backward()
            parts.append(loss.detach())
        losses.append(float(torch.stack(parts).sum()))
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.01 * rate
            optimizer.step()
            optimizer.zero_grad()
    return losses, model.state_dict()


@pytest.mark.parametrize("arm", ["stem-full", "dense"])
def test_muon_equals_a_plain_loop(muon, arm):
    run = muon(arm)
    run = replace(run, training=run.training.model_copy(update={"clip": 1e9}))
    train(run, quiet)
    losses, weights = plain_losses(run)
    assert [row["loss"] for row in rows(run)] == pytest.approx(losses, abs=1e-6)
    assert losses[-1] < losses[0] - 0.1
    for name, weight in load_file(run.weights).items():
        torch.testing.assert_close(weight, weights[name], atol=1e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["stem-full", "stem-touched"])
def test_a_killed_run_with_muon_resumes_to_the_same_bytes(muon, arm, monkeypatch):
    """Weights, metrics and the last checkpoint, with Muon's momentum and the tables' moments in it."""
    monkeypatch.setattr(callbacks.time, "monotonic", iter(range(10**9)).__next__)  # or not every step is reported
    run = replace(muon(arm), keep_final_checkpoint=True)
    train(run, quiet)
    expected = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.name != "provenance.json"}
    again = replace(run, folder=run.folder.parent / "killed")
    train_until(again, 7)
    train(again, quiet)
    assert (again.folder / "end.ckpt").exists()
    assert {p.name: p.read_bytes() for p in again.folder.iterdir() if p.name != "provenance.json"} == expected
