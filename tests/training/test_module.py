"""Optimiser groups, schedule, clipping and the loss."""

import json
from dataclasses import replace

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision

from stemrepro.model import loss, transformer
from stemrepro.training.module import LanguageModule
from stemrepro.training.train import train
from tests.conftest import quiet, retrained


def groups(module):
    """The optimiser's groups by name."""
    return {group["name"]: group for group in module.configure_optimizers()["optimizer"].param_groups}


def test_embedding_factors_act_on_the_input_embeddings_alone(make_run):
    run = make_run("stem-full")
    fields = {"embedding_rate_factor": 4.0, "embedding_decay_factor": 0.5}
    module = LanguageModule(retrained(run, **fields))
    by_name = groups(module)
    assert by_name["embedding"]["params"] == [module.model.embedding.weight]
    assert (by_name["embedding"]["initial_lr"], by_name["embedding"]["weight_decay"]) == pytest.approx((0.04, 0.05))
    for name in ("backbone", "tables"):
        assert (by_name[name]["initial_lr"], by_name[name]["weight_decay"]) == (0.01, 0.1)


def test_backbone_and_tables_are_clipped_separately(make_run):
    module = LanguageModule(make_run("stem-full"))
    optimizer = module.configure_optimizers()["optimizer"]
    parts = {group["name"]: group["params"] for group in optimizer.param_groups}
    clipped = (parts["embedding"] + parts["backbone"], parts["tables"])
    for parameters, size in zip(clipped, (100.0, 0.001), strict=True):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, size / sum(p.numel() for p in parameters) ** 0.5)
    module.configure_gradient_clipping(optimizer, gradient_clip_val=None, gradient_clip_algorithm=None)
    norms = [torch.stack([p.grad.norm() for p in parameters]).norm() for parameters in clipped]
    assert float(norms[0]) == pytest.approx(1.0, rel=1e-4)
    assert float(norms[1]) == pytest.approx(0.001, rel=1e-4)
    assert float(module.gradient_norm) == pytest.approx(100.0, rel=1e-4)


def test_sixteen_bit_gradients_are_clipped_without_their_scale(make_run):
    """With the plugin that Lightning takes for 16-mixed on a GPU, its scaler on the CPU: gradients are 65536 times too
    large until it takes the scale off, which a fused optimiser does only after they have been clipped."""
    norms = {}
    for precision in ("32-true", "16-mixed"):
        run = retrained(make_run("stem-full"), precision=precision)
        module, seen = LanguageModule(run), []
        keep = L.pytorch.callbacks.LambdaCallback()
        keep.on_train_batch_end = lambda *_, m=module, s=seen: s.append(float(m.gradient_norm))
        plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
        silent = {f"enable_{what}": False for what in ("checkpointing", "progress_bar", "model_summary")}
        plugins = [plugin] if precision == "16-mixed" else []
        trainer = L.Trainer("cpu", max_steps=2, logger=False, plugins=plugins, callbacks=[keep], **silent)
        trainer.fit(module)
        norms[precision] = seen
    assert norms["16-mixed"] == pytest.approx(norms["32-true"], rel=0.05)


def test_losses_in_parts_train_and_validate_as_all_at_once(make_run, tmp_path, monkeypatch):
    found, counted, plain = [], [], loss.token_losses

    def counting(logits, targets):
        counted.append(targets.numel())
        return plain(logits, targets)

    for module in (loss, transformer):
        monkeypatch.setattr(module, "token_losses", counting)
    for tokens in (None, 24):
        run = make_run("stem-half", seed=tokens or 0)
        run = replace(retrained(run, loss_tokens=tokens), seed=0)
        counted.clear()
        train(run, quiet)
        assert set(counted) == ({24, 2 * 8, 4 * 2} if tokens else {64, 128})
        found.append([json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()])
    for row, expected in zip(*found, strict=True):
        assert row.pop("validation", {}) == pytest.approx(expected.pop("validation", {}), abs=1e-5)
        assert row == pytest.approx(expected, abs=1e-5)
