"""Training against the official code's: its equations, AdamW and clipping as loops over weights, for five steps.

They were read off apps/main/stem_train.py and lingua/optim.py of github.com/Infini-AI-Lab/STEM at dcc9b73.
"""

import math

import pytest
import torch

from stemrepro.config.scale import Scale
from stemrepro.config.training import RunTraining
from stemrepro.training.module import LanguageModule
from stemrepro.training.schedule import schedule_factor
from tests.conftest import TINY
from tests.model.test_official import Official, decoder, drawn, gradients_of, ours


def factor_at(step, steps, warmup, final):
    """Their rate at a step, counted from 0, over its peak: a warm-up from 0 on, then a cosine."""
    if step < warmup:
        return step / warmup
    return final + 0.5 * (1 - final) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def norm_of(gradients):
    return math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))


def clipped(gradients, limit):
    """Gradients whose joint norm is at most the limit; torch adds 1e-6 to the norm."""
    factor = min(1.0, limit / (norm_of(gradients) + 1e-6))
    return {name: gradient * factor for name, gradient in gradients.items()}


def trained(state, shape, batches, rates, settings, factors):
    """Weights after a step on each batch: AdamW, backbone and tables clipped separately, all weights decayed.

    `factors` are rate and decay of input embeddings and tables, relative to the backbone's.
    """
    (beta1, beta2), eps, decay, limit = settings.betas, settings.eps, settings.weight_decay, settings.clip
    state = dict(state)
    moments = {name: (torch.zeros_like(weight), torch.zeros_like(weight)) for name, weight in state.items()}
    norms = []
    for step, (batch, rate) in enumerate(zip(batches, rates, strict=True), start=1):
        _, gradients = gradients_of(state, shape, batch)
        tables = {name: gradient for name, gradient in gradients.items() if name.startswith("stem_embeddings")}
        backbone = {name: gradient for name, gradient in gradients.items() if name not in tables}
        norms.append(norm_of(tables))
        for name, gradient in (clipped(backbone, limit) | clipped(tables, limit)).items():
            first, second = moments[name]
            first, second = beta1 * first + (1 - beta1) * gradient, beta2 * second + (1 - beta2) * gradient**2
            moments[name] = first, second
            its_rate, its_decay = factors.get(name.partition(".")[0], (1.0, 1.0))
            direction = first / (1 - beta1**step) / ((second / (1 - beta2**step)).sqrt() + eps)
            state[name] = state[name] - rate * its_rate * (decay * its_decay * state[name] + direction)
    assert min(norms) < limit < max(norms)  # not at every step
    return state


def test_weights_after_five_steps_are_those_of_the_official_training(make_run):
    """The module's own step, optimiser and schedule, in float64, with its losses in float32.

    A large epsilon, so that rounding isn't blown up where gradients are small, and clipping shows.
    """
    training = TINY["training"] | {
        "tokens": 12 * 3 * 8, "batch": 3, "micro_batch": 3, "warmup": 0.375, "clip": 0.15, "weight_decay": 1.0,
        "eps": 1e-3, "embedding_rate_factor": 1.5, "embedding_decay_factor": 0.5,
    }  # fmt: skip
    scale = Scale.model_validate(TINY | {"model": TINY["model"] | {"sequence": 12}, "training": training})
    run = make_run("stem-third", scale=scale, table_rate_factor=2.0, table_decay_factor=0.25)
    config, settings = run.model, run.training
    shape = Official(config.vocab, config.width, config.layers, config.heads, config.kv_heads, config.ffn_width,
                     config.replaced_layers, config.rope_base, config.norm_eps)  # fmt: skip
    state, module = drawn(shape), LanguageModule(run)
    module.model = decoder(state, shape)
    made = module.configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    batches = [module.blocks.batch(0, k, settings.batch) for k in range(5)]
    for k, batch in enumerate(batches):
        optimizer.zero_grad()
        module.training_step(batch, k).backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
        schedule.step()

    factors = {"stem_embeddings": (2.0, 0.25), "tok_embeddings": (1.5, 0.5)}
    rates = [0.01 * factor for factor in (1 / 3, 2 / 3, 1, 1, factor_at(4, 8, 3, 0.1))]
    expected = ours(trained(state, shape, batches, rates, settings, factors), shape)
    for name, weight in module.model.named_parameters():  # they have moved by 0.05
        torch.testing.assert_close(weight.data, expected[name], atol=1e-6, rtol=0, msg=name)


def test_the_rate_is_the_official_one_but_for_a_step_of_the_warmup():
    settings = RunTraining.model_validate(
        TINY["training"] | {"tokens": 4 * 32 * 20, "sequence": 32, "learning_rate": 1.0, "warmup": 0.25}
    )
    found = [schedule_factor(step, settings) for step in range(20)]
    theirs = [factor_at(step, 20, 5, 0.1) for step in range(20)]
    assert found[:5] == pytest.approx([*theirs[1:5], 1.0])
    assert found[5:] == pytest.approx(theirs[5:])
