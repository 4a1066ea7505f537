import pytest
import torch

from stemrepro.cli import estimate
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import TunedSettings, Variant
from stemrepro.model.cost import parameter_counts
from stemrepro.model.transformer import Decoder
from stemrepro.pipeline import plan
from tests.conftest import ROOT

SCALES = [path.stem for path in (ROOT / "recipes/scales").glob("*.yaml")]
PAPER = ["paper-350m", "paper-1b"]
ACTIVE = {"dense": 0.37, "hash-moe": 0.37, "stem-third": 0.35, "stem-half": 0.34, "stem-full": 0.30}
ACTIVE_1B = {"dense": 1.50, "stem-third": 1.41}
"""Active parameters, in billions, as Table 3 has them."""
COUNTED = [*(("paper-350m", *one) for one in ACTIVE.items()), *(("paper-1b", *one) for one in ACTIVE_1B.items())]


@pytest.mark.parametrize("name", [n if n == "smoke" else pytest.param(n, marks=pytest.mark.slow) for n in SCALES])
def test_every_scale_builds_all_its_runs(catalog, name):
    """On the meta device, where a model has shapes and no memory."""
    made = plan.make_plan(name, (), catalog)
    assert bool(made.runs) == (catalog.scale(name).published is None) == (estimate.estimate(made)["runs"] > 0)
    for config in {planned.model for planned in made.runs.values()}:
        with torch.device("meta"):
            model = Decoder(config)
        assert sum(p.numel() for p in model.parameters()) == parameter_counts(config)["total"]


@pytest.mark.parametrize(("name", "arm", "printed"), COUNTED)
def test_paper_scales_have_the_papers_counts(catalog, name, arm, printed):
    """Counted on the meta device; of its totals only the 1B's can be rebuilt."""
    planned = plan.make_plan(name, (), catalog).runs[Address(MAIN, arm)]
    with torch.device("meta"):
        tensors = dict(Decoder(planned.model).named_parameters())
    total, counts = sum(p.numel() for p in tensors.values()), parameter_counts(planned.model)
    assert total == counts["total"]
    active = catalog.paper.value(f"table-3-{name.removeprefix('paper-')}/{arm}/active")
    assert active == printed
    assert counts["active"] / 1e9 == pytest.approx(active, abs=0.0065)  # 0.3761 is printed as 0.37
    if name == "paper-1b":
        assert counts["paper_total"] / 1e9 == pytest.approx(catalog.paper.value(f"table-3-1b/{arm}/total"), abs=0.005)


@pytest.mark.parametrize("name", PAPER)
def test_paper_scales_have_the_papers_budget(catalog, name):
    planned = plan.make_plan(name, (), catalog).runs
    tokens, rate = {"paper-350m": (1e11, 2e-3), "paper-1b": (1e12, 4e-4)}[name]
    for address, run in planned.items():
        share = {MAIN: 1, "mid": 0.1, "longer-8": 0.02}[address.variant]
        assert run.training.tokens == pytest.approx(share * tokens, rel=1e-4)
        assert run.training.batch * run.training.sequence == 512 * 4096
        assert run.training.learning_rate == rate
        if address.variant == MAIN:
            assert run.training.warmup_steps == 2000
        if address.variant == "longer-8":
            assert (run.training.sequence, run.model.document_mask) == (32768, True)


@pytest.mark.parametrize("name", SCALES)
def test_logits_are_made_in_parts_where_those_of_a_micro_batch_take_256_mb(catalog, name):
    """So the small scales keep their bits. The card of the scale gpu has room for half a gigabyte."""
    scale = catalog.scales[name]
    each = 4 * scale.model.vocab
    large = each * scale.training.micro_batch * scale.model.sequence >= (2**30 if name == "gpu" else 2**28)
    assert (scale.training.loss_tokens is not None) == large
    if scale.training.loss_tokens:
        assert each * scale.training.loss_tokens < 0.55e9


def test_a_variant_that_changes_nothing_is_the_scale_and_its_tokens_are_whole_steps(tiny):
    assert Variant().at(tiny) == tiny
    step = tiny.training.batch * tiny.model.sequence
    whole = tiny.training.tokens // step
    assert Variant(tokens=0.3).at(tiny).training.tokens == round(0.3 * whole) * step
    assert Variant(tokens=1e-9).at(tiny).training.tokens == step


def test_width_keeps_the_heads_unless_a_variant_says_so(tiny):
    half, double = Variant(width=0.5).at(tiny).model, Variant(width=2, heads=2, vocab=2).at(tiny).model
    assert (half.width, half.ffn_width, half.heads, half.vocab) == (8, 12, 2, 300)
    assert (double.width, double.heads, double.kv_heads, double.vocab) == (32, 4, 1, 600)


def test_a_deeper_variant_differs_by_its_layers_alone(tiny):
    own, deeper = (Variant(**fields).at(tiny).model for fields in ({}, {"layers": 2}))
    assert deeper == own.model_copy(update={"layers": 2 * own.layers})
    assert Variant(layers=2).changed == {"layers"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"width": 0.3}, "a head needs an even whole width"),
        ({"heads": 1.5}, "width 16 with 3 heads"),
        ({"layers": 0.3}, r"layers 1\.2 is no whole number"),
        ({"vocab": 0.334}, r"vocab 100\.2 is no whole number"),
    ],
)
def test_sizes_are_whole_numbers(tiny, fields, words):
    with pytest.raises(ValueError, match=words):
        Variant(**fields).at(tiny)


def test_matrices_of_a_wider_model_learn_more_slowly_and_its_embeddings_do_not(catalog, tiny):
    """Tables do as the matrices do, or keep their rate by the variant."""
    scale, stem = tiny.model_copy(update={"rate_width": 16}), catalog.arms["stem-full"]

    def rates(**variant):
        training = run_settings(Address(MAIN, "stem-full"), stem, Variant(**variant), scale)[1]
        rate = training.learning_rate
        return rate, rate * training.embedding_rate_factor, rate * training.table_rate_factor

    assert rates() == (0.01, 0.01, 0.01)
    assert rates(width=4, heads=4) == (0.0025, 0.01, 0.0025)
    assert rates(width=4, heads=4, table_rate=4) == (0.0025, 0.01, 0.01)


def test_a_matched_shape_has_the_rate_of_its_width_and_its_own_as_its_study_found_it(catalog, tiny):
    arm, own = catalog.arms["dense-equal-size"], TunedSettings(learning_rate=0.02, embedding_rate_factor=3.0)
    scale = tiny.model_copy(update={"rate_width": 16, "tuned": {"dense-equal-size": own}})

    def at(**variant):
        config, training = run_settings(Address(MAIN, "dense-equal-size"), arm, Variant(**variant), scale)
        return config.width, training.learning_rate, training.embedding_rate_factor

    width, rate, embedding = at()
    assert width > 16
    assert (rate, embedding) == pytest.approx((0.01 * 16 / width, width / 16))
    assert at(tuned=True) == (width, 0.02, 3.0)
    assert at(tuned=True, width=2, heads=2)[1:] == (0.01, 6.0)


def test_a_rate_is_a_factor(catalog, tiny):
    _, training = run_settings(Address(MAIN, "dense"), catalog.arms["dense"], Variant(learning_rate=4), tiny)
    assert training.learning_rate == 4 * tiny.learning_rate


def test_tokens_that_warm_up_are_a_variants_own(catalog):
    """At width 16 they are 31 steps of 1,024 tokens."""
    at = catalog.variant("width-16").at(catalog.scale("width")).training
    assert (at.warmup_tokens, at.tokens) == (31744, 465920)
    _, training = run_settings(
        Address("width-16", "dense"), catalog.arms["dense"], catalog.variant("width-16"), catalog.scale("width")
    )
    assert training.warmup_steps == 31
    with pytest.raises(ValueError, match="warmup_tokens are of the schedule wsd"):
        catalog.variant("width-16").at(catalog.scale("laptop"))


def test_numbers_of_a_variant_hold_at_its_scale_and_are_scaled_to_others(catalog):
    """By hand: 324,608 of the ladder's 38,630,400 tokens, 64 of its width's 32, 0.032 over its rate of 0.004."""
    rung = catalog.variants["rung-1"]
    assert (rung.tokens, rung.learning_rate, rung.width) == (324608 / 38630400, 8, 1)
    assert catalog.variants["wide-rung-1"].width == 2
    assert catalog.variants["longer"].extends.sequence == 256 / 64
    assert catalog.variants["people-sixth"].people == 64 / 384
    assert rung.at(catalog.scales["ladder"]).training.tokens == 324608
    assert rung.at(catalog.scales["smoke"]).training.tokens == 1024  # of 8,192, and a step at least


def test_the_same_text_has_other_tokens(catalog, tiny):
    """In whole steps, where a vocabulary needs three quarters of the tokens for it."""
    training = run_settings(Address(MAIN, "dense"), catalog.arms["dense"], Variant(), tiny)[1]
    assert training.same_text(0.75).tokens == 0.75 * training.tokens
    assert training.same_text(1.0) == training
    step = training.batch * training.sequence
    assert training.same_text(0.7777).tokens % step == 0
