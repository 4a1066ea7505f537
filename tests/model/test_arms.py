"""Every arm of recipes/arms.yaml as a model: its counts, its backbone, its matched size, and what it may not learn."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from stemrepro.common.errors import UserError
from stemrepro.config.address import Address
from stemrepro.config.arm import Arm, run_settings, shaped
from stemrepro.config.scale import TunedSettings, Variant
from stemrepro.measures.catalog import load
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.ffn.base import is_table, table_parameters
from stemrepro.model.ffn.stem_shuffled import StemShuffled
from stemrepro.model.ffn.topk_moe import TopkMoE
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder, build
from stemrepro.training.module import LanguageModule
from tests.conftest import ROOT

ARMS = load(ROOT / "recipes").arms


@pytest.mark.parametrize("arm", ARMS)
def test_counts_equal_numel(catalog, arm):
    config = shaped(catalog.scales["laptop"].model, ARMS[arm])
    with torch.device("meta"):
        model = Decoder(config)
    assert sum(p.numel() for p in model.parameters()) == parameter_counts(config)["total"]
    assert sum(p.numel() for p in table_parameters(model).values()) == parameter_counts(config)["tables"]


@pytest.mark.parametrize(
    "arm", [name for name, arm in ARMS.items() if arm.match not in ("flops", "shape") and arm.ffn_factor == 1]
)
def test_what_arms_have_in_common_starts_equal(catalog, arm):
    dense = dict(build(shaped(catalog.scales["smoke"].model, ARMS["dense"]), 3).named_parameters())
    other = dict(build(shaped(catalog.scales["smoke"].model, ARMS[arm]), 3).named_parameters())
    shared = [name for name in dense if name in other]
    assert {"embedding.weight", "blocks.0.ffn.gate.weight", "blocks.5.attention.out.weight"} <= set(shared)
    assert all(torch.equal(dense[name], other[name]) for name in shared)


@pytest.mark.parametrize("arm", ARMS)
def test_no_token_of_an_arm_sees_a_later_one(catalog, arm):
    model = build(shaped(catalog.scales["smoke"].model, ARMS[arm]), 3)
    for parameter in model.parameters():
        if not parameter.any():  # what is zero at first would hide its memory
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    tokens = torch.randint(1, 512, (1, 12), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[0, 8:] = (other[0, 8:] + 1) % 512
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :8], model(other)[:, :8])


@pytest.mark.parametrize("shape", ["laptop", "mobilellm-350m"])
def test_matched_arms_match(catalog, shape):
    form = catalog.scales[shape].model if shape in catalog.scales else catalog.shapes[shape]
    totals = {name: parameter_counts(shaped(form, arm))["total"] for name, arm in ARMS.items()}
    for name, other in (("dense-equal-size", "stem-full"), ("hash-moe", "stem-third"), ("topk-moe", "stem-third")):
        assert totals[name] == pytest.approx(totals[other], rel=0.06), name
    costs = {name: flops_per_token(shaped(form, arm), form.sequence) for name, arm in ARMS.items()}
    assert costs["dense-equal-flops"] == pytest.approx(costs["stem-full"], rel=0.005)
    assert costs["hash-moe"] == costs["dense"]
    assert costs["up-removed-wide"] == pytest.approx(costs["dense"], rel=0.005)
    assert costs["up-removed"] == costs["stem-full"]


@pytest.mark.parametrize("shape", ["laptop", "mobilellm-350m"])
def test_a_dense_model_of_equal_size_has_denses_shape(catalog, shape):
    """Its heads are as wide, d_ff / d is dense's to a head's width, and no other number of heads comes nearer."""
    form = catalog.scales[shape].model if shape in catalog.scales else catalog.shapes[shape]
    dense, grown, stem = (shaped(form, ARMS[name]) for name in ("dense", "dense-equal-size", "stem-full"))
    assert parameter_counts(grown)["total"] == pytest.approx(parameter_counts(stem)["total"], rel=0.002)
    assert (grown.head_width, grown.kv_heads, grown.layers) == (dense.head_width, dense.kv_heads, dense.layers)
    assert grown.heads % grown.kv_heads == 0
    ratio = grown.ffn_width / grown.width / (dense.ffn_width / dense.width)
    heads = grown.heads / grown.kv_heads
    assert (heads - 1) / heads < ratio < (heads + 1) / heads


def test_a_large_dense_model_of_equal_size_suits_gpus(catalog):
    """With keys and values for every head as in its shape, and a d_ff of 8 times a whole number."""
    form = catalog.scales["laptop"].model.model_copy(
        update={"vocab": 32_000, "width": 320, "layers": 8, "heads": 5, "kv_heads": 5, "ffn_width": 864}
    )
    grown, stem = (shaped(form, ARMS[name]) for name in ("dense-equal-size", "stem-full"))
    assert (grown.kv_heads, grown.head_width, grown.ffn_width % 8) == (grown.heads, 64, 0)
    assert parameter_counts(grown)["total"] == pytest.approx(parameter_counts(stem)["total"], rel=0.001)


ON_TRACKS = ["dense", "stem-third", "stem-full", "stem-normed", "token-only", "input-add", "stem-frozen"]
ON_TRACKS += ["topk-moe", "hash-moe"]


@pytest.mark.parametrize("name", ON_TRACKS)
@pytest.mark.parametrize("shape", ["laptop", "mobilellm-350m"])
def test_an_arm_on_a_track_has_what_the_track_has(catalog, shape, name):
    form = catalog.scales[shape].model if shape in catalog.scales else catalog.shapes[shape]
    arm = ARMS[name].model_copy(update={"match": "none", "experts": 4 if "moe" in name else 0})
    on = {track: shaped(form.model_copy(update={"track": track}), arm) for track in (None, "flops", "size")}
    dense, stem = (shaped(form, ARMS[other]) for other in ("dense", "stem-full"))
    wanted = flops_per_token(dense, form.sequence)
    assert flops_per_token(on["flops"], form.sequence) == pytest.approx(wanted, rel=0.005)
    assert replace(on["flops"], ffn_width=on[None].ffn_width) == on[None]
    assert parameter_counts(on["size"])["total"] == pytest.approx(parameter_counts(stem)["total"], rel=0.015)
    assert on["size"].head_width == on[None].head_width
    if name in ("dense", "stem-full"):
        assert on["size"] == (stem if name == "stem-full" else shaped(form, ARMS["dense-equal-size"]))


def test_at_equal_time_an_arm_takes_as_many_steps_as_fit_into_denses_time(catalog):
    scale = catalog.scales["laptop"].model_copy(update={"step_times": {"stem-full": 1.25}})
    variant = Variant(equal_time=True)
    both = "dense", "stem-full"
    trained = {arm: run_settings(Address("equal-time", arm), ARMS[arm], variant, scale) for arm in both}
    assert trained["stem-full"][0] == shaped(scale.model, ARMS["stem-full"])
    steps = {arm: training.tokens / (training.batch * 128) for arm, (_, training) in trained.items()}
    assert steps["dense"] == scale.training.tokens / (scale.training.batch * 128)
    assert steps["stem-full"] == round(steps["dense"] / 1.25)
    with pytest.raises(UserError, match="no step time of token-only is known: measure it"):
        run_settings(Address("equal-time", "token-only"), ARMS["token-only"], variant, scale)


def test_settings_of_an_arm_go_before_those_of_its_family(catalog):
    own, familys = (TunedSettings(learning_rate=rate) for rate in (0.001, 0.002))
    rates = {}
    for name, tuned in (("own", {"stem-third": own, "stem-full": familys}), ("family", {"stem-full": familys})):
        scale = catalog.scales["laptop"].model_copy(update={"tuned": tuned})
        address = Address("own-rate", "stem-third")
        _, training = run_settings(address, ARMS["stem-third"], Variant(tuned=True), scale)
        rates[name] = training.learning_rate
    assert rates == {"own": 0.001, "family": 0.002}


def test_an_arm_with_a_size_of_its_own_keeps_it_on_a_track(catalog):
    form = catalog.scales["laptop"].model
    for name in ("dense-equal-size", "dense-equal-latency"):
        assert shaped(form.model_copy(update={"track": "flops"}), ARMS[name]) == shaped(form, ARMS[name])


def test_a_factor_widens_every_ffn_alike(catalog):
    dense, other = (shaped(catalog.scales["laptop"].model, ARMS[name]) for name in ("dense", "dense-equal-latency"))
    assert other == replace(dense, ffn_width=round(ARMS["dense-equal-latency"].ffn_factor * dense.ffn_width))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"ffn": "dense", "placement": "none", "match": "total", "ffn_factor": 0.5},
            "ffn_factor 0.5 and match 'total' both choose",
        ),
        ({"ffn": "stem", "placement": "full", "slots": 4}, "slots 4: 'stem' has one row per token"),
        ({"ffn": "hash-moe", "placement": "full", "match": "flops"}, "'hash-moe' grows by experts, use match 'total'"),
        ({"ffn": "hash-moe", "placement": "full", "match": "shape"}, "'shape' works by ffn_width; 'hash-moe' grows"),
    ],
)
def test_fields_of_an_arm_that_do_not_go_together(fields, words):
    with pytest.raises(ValidationError, match=words):
        Arm.model_validate(fields)


def test_shared_tables_are_one(catalog):
    model = build(shaped(catalog.scales["smoke"].model, ARMS["stem-shared"]), 0)
    names = [name for name in model.state_dict() if is_table(name)]
    assert names == ["blocks.1.ffn.table.weight"]
    assert all(model.blocks[layer].ffn.table is model.blocks[1].ffn.table for layer in (2, 3, 4, 5))
    tokens = torch.randint(0, 512, (2, 9))
    model(tokens).sum().backward()
    assert model.blocks[1].ffn.table.weight.grad.abs().sum() > 0


def test_a_frozen_table_has_no_place_in_the_optimiser(make_run):
    module = LanguageModule(make_run("stem-frozen"))
    groups = module.configure_optimizers()["optimizer"].param_groups
    tables = {id(table) for table in table_parameters(module.model).values()}
    assert len(tables) == 3
    assert not tables & {id(parameter) for group in groups for parameter in group["params"]}
    assert not any(table.requires_grad for table in table_parameters(module.model).values())


def test_rows_are_dealt_out_by_seed_step_and_layer(make_run):
    def orders(seed, step):
        module = LanguageModule(make_run("stem-shuffled", seed))
        type(module).global_step, before = property(lambda _: step), type(module).global_step
        try:
            module.on_train_batch_start(None, 0)
        finally:
            type(module).global_step = before
        return [b.ffn.order.tolist() for b in module.model.blocks if isinstance(b.ffn, StemShuffled)]

    first = orders(0, 5)
    assert first == orders(0, 5)
    assert all(sorted(order) == list(range(300)) for order in first)
    assert len({tuple(order) for order in [*first, *orders(0, 6), *orders(1, 5)]}) == 9


def test_an_arms_memory_can_have_several_rows_per_token(catalog):
    arm = ARMS["dense"].model_copy(update={"memory": "mome", "memory_placement": "half", "slots": 6, "top_k": 2})
    config = shaped(catalog.scales["laptop"].model, Arm.model_validate(arm.model_dump()))
    assert (config.memory, config.slots, config.top_k, config.memory_layers) == ("mome", 6, 2, (1, 3, 5))


def test_a_learned_router_is_balanced_beside_the_loss(make_run):
    module = LanguageModule(make_run("topk-moe"))
    batch = torch.randint(0, 300, (2, 33))
    outputs = module.training_step(batch, 0)
    plain = token_losses(module.model(batch[:, :-1]), batch[:, 1:]).mean()
    balance = 0.01 * sum(ffn.load_balancing_loss for ffn in module.model.ffns if isinstance(ffn, TopkMoE))
    torch.testing.assert_close(outputs["loss"], plain + balance)
    torch.testing.assert_close(outputs["load_balancing_loss"], balance)
