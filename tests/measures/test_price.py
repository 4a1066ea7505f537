"""What a run takes: against bytes counted on real processes, against the paper's sizes, and as factors."""

import pytest

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import shaped
from stemrepro.config.parallel import Parallel
from stemrepro.config.scale import Machine
from stemrepro.measures import price
from stemrepro.pipeline import plan

MACHINE = Machine(device="H100", flops=9.89e14, memory_gb=80, dollars_per_hour=2.5, utilisation=(0.25, 0.4))


@pytest.fixture
def run(catalog):
    """run("paper-1b", "dense") -> its model, training and parallel block."""

    def of(scale, arm, variant=MAIN):
        planned = plan.make_params(catalog, scale).planned(scale)[Address(variant, arm)]
        return planned.model, planned.training, catalog.scales[scale].parallel

    return of


def test_hours_are_those_of_a_calculation_by_hand(run):
    """6 FLOPs a parameter, embeddings apart, and attention's 12 x layers x width x context, all of it, a token."""
    model, training, _ = run("paper-1b", "dense")
    matrices = 1498482688 - 128256 * 2048 - 33 * 2048
    token = 6 * matrices + 12 * 16 * 2048 * 4096
    assert price.training_flops(model, training) == pytest.approx(token * 1000001765376)
    fast, slow = price.device_hours(price.training_flops(model, training), MACHINE)
    assert fast == pytest.approx(token * 1000001765376 / (0.4 * 9.89e14 * 3600))
    assert slow == pytest.approx(1.6 * fast)


@pytest.mark.parametrize(("devices", "dense", "tables"), [(2, 0.548, 1.815), (4, 0.822, 2.723)])
def test_traffic_of_sharded_weights_is_what_gloo_moved(catalog, devices, dense, tables):
    """Megabytes a rank and step that were counted on 2 and 4 processes: width 32, 6 layers, five tables, one pass."""
    shape = catalog.scales["laptop"].model.model_copy(update={"vocab": 512})
    for arm, counted in (("dense", dense), ("stem-full", tables)):
        model = shaped(shape, catalog.arms[arm])
        training = plan.make_params(catalog, "laptop").planned("laptop")[Address(MAIN, arm)].training
        training = training.model_copy(update={"batch": devices, "micro_batch": 1})
        parallel = Parallel(strategy="fsdp", devices=devices)
        assert price.traffic(model, training, parallel) / 1e6 == pytest.approx(counted, rel=0.002)


def test_rows_by_width_are_less_than_whole_tables(run):
    model, training, parallel = run("paper-1b", "stem-third")
    by_width = price.traffic(model, training, parallel)
    inside = price.traffic(model, training, Parallel(strategy="fsdp", devices=8))
    backbone = price.traffic(model, training, parallel) - price.traffic(run("paper-1b", "dense")[0], training, parallel)
    assert by_width < inside / 3
    ids = price.expected_distinct(4096, 128256)
    removed = 5 * 2048 * 8192 * 7 / 8 * (2 * 2 * 64 + 4)  # up-projections, gathered in bfloat16 and reduced in float32
    rows = 64 * (2 * ids * 5 * 8192 * 2 * 7 / 8 + 7 * (1 + ids) * 8)
    assert backbone == pytest.approx(rows - removed)


def test_copies_of_tables_are_added_up(run):
    model, training, parallel = run("paper-1b", "stem-third")
    pairs = parallel.model_copy(update={"table_ranks": 2})
    assert price.memory(model, training, pairs).tables == 4 * price.memory(model, training, parallel).tables
    ids = price.expected_distinct(4096, 128256)
    rows, each = 64 * 2 * ids * 5 * 8192 * 2, 64 * (1 + ids) * 8
    more = rows * (1 / 2 - 7 / 8) + each * (1 - 7) + 2 * 3 / 4 * 4 * 5253365760 / 2
    assert price.traffic(model, training, pairs) - price.traffic(model, training, parallel) == pytest.approx(more)


def test_memory_of_a_device(run):
    """Gradients are whole where micro-batches are added up, as here: 64 in a step."""
    model, training, parallel = run("paper-1b", "stem-third")
    memory = price.memory(model, training, parallel)
    assert memory.tables == 16 * 5253365760 / 8
    assert memory.state == 1414596608 * 4 * (3 / 8 + 1)
    assert memory.logits == 2 * 4 * 1024 * 128256
    at_once = training.model_copy(update={"loss_tokens": None})
    assert price.memory(model, at_once, parallel).logits == 2 * 4 * 4096 * 128256
    short = training.model_copy(update={"sequence": 512})
    assert price.memory(model, short, parallel).logits == 2 * 4 * 512 * 128256
    one_pass = training.model_copy(update={"micro_batch": 64})
    assert price.memory(model, one_pass, parallel).state == 1414596608 * 16 / 8
    assert price.memory(model, training, None).state == 1414596608 * 16
    ddp = Parallel(strategy="ddp", devices=8)
    assert price.memory(model, training, ddp).tables == 5253365760 * 16


def test_devices_that_share_layers_have_their_part_of_weights_and_logits(run):
    """And of gradients, which are whole among them; they read the same tokens, and add up what they compute."""
    model, training, parallel = run("paper-1b", "stem-third")
    split = parallel.model_copy(update={"strategy": "fsdp", "tensor": 4})
    memory, counts = price.memory(model, training, split), price.parameter_counts(model)
    assert memory.state + memory.tables == pytest.approx(4 * counts["total"] * (3 / 8 + 1 / 4))
    assert memory.logits == 2 * 4 * 1024 * 128256 / 4
    passes, added = 256, 2 * 3 / 4 * 4096 * (66 * 2048 * 2 + 12)
    apart = price.fsdp_bytes(model, price.Step(2, passes, 4096, 2))
    assert price.traffic(model, training, split) == pytest.approx(apart / 4 + passes * added)


def test_bytes_of_text_and_checkpoints(run):
    model, training, _ = run("paper-1b", "dense")
    assert price.block_bytes(1000, 65536) == 2000
    assert price.block_bytes(1000, 65537) == 4000
    assert price.checkpoint_bytes(model) == 12 * 1498482688
    assert price.weight_bytes(model, training) == 4 * 1498482688
    assert price.traffic(model, training, None) == 0
