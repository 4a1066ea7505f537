"""What a run takes: against bytes counted on real processes, against the paper's sizes, and as factors."""

import pytest

from stemrepro.config.address import MAIN, Address
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


def test_memory_and_traffic_of_a_device(run):
    model, training, parallel = run("paper-1b", "stem-third")
    memory = price.memory(model, training, parallel)
    assert memory.tables == 16 * 5253365760 / 8
    assert memory.state == 1414596608 * 16 / 8
    assert memory.logits == 2 * 4 * 1024 * 128256
    ddp = Parallel(strategy="ddp", devices=8)
    assert price.memory(model, training, ddp).tables == 5253365760 * 16
    assert price.traffic(model, training, ddp) == 2 * 7 / 8 * 4 * (5253365760 + 1414596608)


def test_bytes_of_text_and_checkpoints(run):
    model, training, _ = run("paper-1b", "dense")
    assert price.block_bytes(1000, 65536) == 2000
    assert price.block_bytes(1000, 65537) == 4000
    assert price.checkpoint_bytes(model) == 12 * 1498482688
    assert price.weight_bytes(model, training) == 4 * 1498482688
    assert price.traffic(model, training, None) == 0
