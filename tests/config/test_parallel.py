"""What a block `parallel` refuses, each in a sentence."""

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import Arm, run_settings
from stemrepro.config.parallel import Parallel
from stemrepro.config.scale import Variant


def settings(tiny, arm, training, **fields):
    """Model and training of an arm of a tiny scale, batch 4 in micro-batches of 2."""
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update=training)})
    return run_settings(Address(MAIN, "any"), Arm(**arm | fields), Variant(), scale)


STEM = {"ffn": "stem", "placement": "half"}


@pytest.mark.parametrize(
    ("parallel", "training", "fields", "reason"),
    [
        ({"strategy": "ddp", "devices": 4}, {}, {}, "batch 4 is no multiple of micro_batch 2 x devices 4 = 8"),
        ({"strategy": "ddp", "nodes": 2}, {}, {}, "batch 4 is no multiple of micro_batch 2 x devices 2 x nodes 2 = 8"),
        ({"strategy": "fsdp"}, {}, {"table_update": "touched"}, "table_update 'touched'"),
        ({"strategy": "fsdp"}, {}, {"table_update": "rowwise"}, "table_update 'rowwise'"),
        ({"strategy": "fsdp"}, {"precision": "16-mixed"}, {}, "precision '16-mixed'"),
        ({"strategy": "fsdp"}, {"precision": "bf16-true"}, {}, "precision 'bf16-true'"),
        ({"strategy": "fsdp"}, {}, {"table_shared": True}, "table_shared"),
    ],
)
def test_what_cannot_be_is_refused(tiny, parallel, training, fields, reason):
    with pytest.raises(UserError, match="'it' can't be trained under parallel") as error:
        Parallel(**{"devices": 2} | parallel).check("'it'", *settings(tiny, STEM, training, **fields))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("parallel", "training", "fields"),
    [
        ({"strategy": "ddp"}, {"precision": "16-mixed", "compile": True}, {}),
        ({"strategy": "ddp"}, {}, {"table_update": "touched"}),
        ({"strategy": "fsdp"}, {"precision": "bf16-mixed", "compile": True}, {}),
        ({"strategy": "fsdp", "devices": 1, "nodes": 4}, {"micro_batch": 1}, {}),
    ],
)
def test_what_can_be_passes(tiny, parallel, training, fields):
    Parallel(**{"devices": 2} | parallel).check("'it'", *settings(tiny, STEM, training, **fields))
