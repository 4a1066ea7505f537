"""What a block `parallel` refuses, each in a sentence."""

import pytest
from pydantic import ValidationError

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import Arm, run_settings
from stemrepro.config.parallel import Parallel
from stemrepro.config.scale import Variant
from stemrepro.model.specs import splits


def settings(tiny, arm, training, **fields):
    """Model and training of an arm of a tiny scale, batch 4 in micro-batches of 2, ffn_width 24."""
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update=training)})
    return run_settings(Address(MAIN, "any"), Arm(**arm | fields), Variant(), scale)


STEM = {"ffn": "stem", "placement": "half"}


@pytest.mark.parametrize(
    ("parallel", "training", "fields", "reason"),
    [
        ({"strategy": "ddp", "devices": 4}, {}, {}, "batch 4 is no multiple of micro_batch 2 x devices 4 = 8"),
        ({"strategy": "ddp", "nodes": 2}, {}, {}, "batch 4 is no multiple of micro_batch 2 x devices 2 x nodes 2 = 8"),
        ({"strategy": "ddp"}, {}, {"table_update": "touched", "table_home": "host"}, "table_home 'host'"),
        ({"strategy": "fsdp"}, {}, {"table_update": "touched"}, "table_update 'touched'"),
        ({"strategy": "tables"}, {}, {"table_update": "rowwise"}, "table_update 'rowwise'"),
        ({"strategy": "fsdp"}, {"optimizer": "muon"}, {}, "optimizer 'muon'"),
        ({"strategy": "fsdp"}, {"precision": "16-mixed"}, {}, "precision '16-mixed'"),
        ({"strategy": "tables"}, {"precision": "bf16-true"}, {}, "precision 'bf16-true'"),
        ({"strategy": "fsdp"}, {}, {"table_shared": True}, "table_shared"),
        ({"strategy": "fsdp", "param_dtype": "bfloat16"}, {}, {}, "in precision '32-true'; use 'bf16-mixed'"),
        ({"strategy": "fsdp", "devices": 4, "tensor": 2}, {"micro_batch": 4}, {}, "devices 4 / tensor 2 = 8"),
        ({"strategy": "fsdp", "tensor": 2}, {}, {"ffn": "jtok"}, "the network 'jtok' can't be shared by channels"),
        ({"strategy": "fsdp", "tensor": 2}, {}, {"pairs": True}, "pair_rows has a table"),
        ({"strategy": "fsdp", "tensor": 2}, {}, {}, "kv_heads 1 is no multiple of tensor 2"),
        ({"strategy": "fsdp", "tensor": 3, "devices": 3}, {}, {}, "heads 2 is no multiple of tensor 3"),
        ({"strategy": "tables", "devices": 5}, {"batch": 10, "micro_batch": 2, "tokens": 320}, {}, "ffn_width 24"),
    ],
)
def test_what_cannot_be_is_refused(tiny, parallel, training, fields, reason):
    model, asked = settings(tiny, STEM, training, **fields)
    with pytest.raises(UserError, match="'it' can't be trained under parallel") as error:
        Parallel(**{"devices": 2} | parallel).check("'it'", model, asked, splits(model))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("parallel", "training", "fields"),
    [
        ({"strategy": "ddp"}, {"precision": "16-mixed", "compile": True, "optimizer": "muon"}, {}),
        ({"strategy": "ddp"}, {}, {"table_update": "touched"}),
        ({"strategy": "fsdp"}, {"precision": "bf16-mixed", "compile": True}, {}),
        ({"strategy": "fsdp", "param_dtype": "bfloat16", "recompute": True}, {"precision": "bf16-mixed"}, {}),
        ({"strategy": "tables", "devices": 4, "table_ranks": 2, "replicate": 2}, {"micro_batch": 1}, {}),
        ({"strategy": "fsdp", "devices": 1, "nodes": 4, "replicate": 2}, {"micro_batch": 1}, {}),
    ],
)
def test_what_can_be_passes(tiny, parallel, training, fields):
    model, asked = settings(tiny, STEM, training, **fields)
    Parallel(**{"devices": 2} | parallel).check("'it'", model, asked, splits(model))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"strategy": "fsdp", "devices": 4, "table_ranks": 2}, "leave table_ranks out"),
        ({"strategy": "tables", "devices": 4, "table_ranks": 3}, "table_ranks 3 does not divide devices 4"),
        ({"strategy": "fsdp", "devices": 4, "tensor": 3}, "tensor 3 must divide devices 4"),
        ({"strategy": "ddp", "devices": 4, "tensor": 2}, "goes with strategy 'fsdp'"),
        ({"strategy": "tables", "devices": 4, "tensor": 2}, "goes with strategy 'fsdp'"),
        ({"strategy": "fsdp", "devices": 8, "tensor": 2, "replicate": 2}, "and replicate 1"),
        ({"strategy": "fsdp", "devices": 4, "replicate": 3}, "replicate 3 must divide devices 4"),
        ({"strategy": "tables", "devices": 1, "nodes": 4, "table_ranks": 3}, "devices 1 x nodes 4"),
        ({"strategy": "fsdp", "devices": 4, "replicate": 4}, "use strategy 'ddp'"),
        ({"strategy": "ddp", "devices": 4, "replicate": 2}, "replicate is for sharded weights"),
        ({"strategy": "ddp", "devices": 2, "param_dtype": "bfloat16"}, "param_dtype is for sharded weights"),
        ({"strategy": "ddp", "devices": 1}, "leave the block out"),
    ],
)
def test_sizes_of_the_block_must_fit(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        Parallel(**fields)
