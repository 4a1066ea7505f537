"""Mixed precision as a GPU has it, on machines without one."""

from itertools import chain

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from benchmarks.gpu_checks import classes
from stemrepro.config.arm import shaped
from stemrepro.model.transformer import Decoder, build

MOE = ("hash-moe", "topk-moe", "hash-layers", "sparse-experts")
CPU_ALONE = (torch.index_copy, torch.Tensor.index_copy)
"""What the processor's autocast brings to one type and CUDA's doesn't."""


class CudasList(TorchFunctionMode):
    """Autocast that leaves alone what CUDA's does."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        with torch.autocast("cpu", torch.bfloat16, enabled=func not in CPU_ALONE and torch.is_autocast_enabled("cpu")):
            return func(*args, **kwargs or {})


@pytest.mark.parametrize("name", MOE)
def test_experts_learn_in_bfloat16_where_index_copy_takes_types_as_they_are(catalog, name):
    config = shaped(catalog.scale("gpu-smoke").model, catalog.arms[name])
    tokens = torch.randint(1, config.vocab, (4, 33), generator=torch.Generator().manual_seed(0))
    losses = {}
    for mixed in (False, True):
        model = build(config, 0)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed), CudasList():
            loss = model.losses(tokens[:, :-1], tokens[:, 1:]).mean()
        loss.backward()
        experts = next(block.ffn.experts for block in model.blocks if hasattr(block.ffn, "experts"))
        losses[mixed] = loss.item(), experts.down.grad.norm().item()
    assert losses[True] == pytest.approx(losses[False], rel=0.02)
    assert losses[True] != losses[False]


@pytest.mark.slow
def test_on_a_fake_gpu_no_network_mixes_devices_or_types(catalog, monkeypatch):
    """Forward alone: a build of torch without CUDA has no gradients of such tensors, and can't index them."""
    # How many tokens an expert has isn't known of such tensors: all go to the first.
    monkeypatch.setattr(torch, "bincount", lambda x, minlength: np.array([x.numel()] + [0] * (minlength - 1)))
    done, errors = [], {}
    for name, arm in classes(catalog).items():
        with torch.device("meta"):
            model = Decoder(shaped(catalog.scale("gpu-smoke").model, arm)).requires_grad_(False)
        with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = chain(model.named_parameters(), model.named_buffers())
            fake = {key: FakeTensor(mode, value.to("meta"), torch.device("cuda")) for key, value in tensors}
            tokens = torch.zeros(2, 16, dtype=torch.long, device="cuda")
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", torch.bfloat16)
            try:
                logits = torch.func.functional_call(model, fake, tokens)
                done.append((name, logits.device.type, logits.dtype))
            except RuntimeError as error:
                errors[name] = str(error)
            finally:
                torch.set_autocast_enabled("cuda", False)
    assert {each[1:] for each in done} == {("cuda", torch.bfloat16)}
    assert not {name: error for name, error in errors.items() if "not linked with support for cuda" not in error}
    names = {each[0] for each in done}
    assert {"dense", "stem-third", "token-only", "stem-dagger", "value-embeddings", "jtok", "input-add"} <= names
    assert len(names) > len(errors)
