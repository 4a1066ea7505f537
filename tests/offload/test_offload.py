"""Tables in host memory: the same logits as on the device, copies in their order, no row that is not the table's."""

from dataclasses import replace

import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import row_bytes
from stemrepro.model.transformer import build
from stemrepro.offload.link import Link
from stemrepro.offload.offload import Counts, offload
from stemrepro.offload.row_cache import RowCache

VOCAB = 61
SHAPE = {"vocab": VOCAB, "width": 16, "layers": 5, "heads": 2, "kv_heads": 1, "ffn_width": 24}
CONFIG = ModelConfig(**SHAPE, ffn="stem", replaced_layers=(1, 2, 3, 4))
TOKENS = torch.randint(0, VOCAB, (3, 17), generator=torch.Generator().manual_seed(5))


class Recording(Link):
    """A link that writes down its calls; from a chosen fill on its copies fail."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.calls, self.numbers, self.fails_at = [], {}, fails_at

    def name(self, buffer):
        return self.numbers.setdefault(id(buffer.rows), len(self.numbers))

    def fill(self, buffer, source, ids):
        self.calls.append(("fill", self.name(buffer)))
        super().fill(buffer, source, ids)

    def copy(self, buffer, source, ids):
        if self.fails_at is not None and sum(word == "fill" for word, _ in self.calls) > self.fails_at:
            raise OSError("the bus is gone")
        super().copy(buffer, source, ids)

    def wait(self, buffer):
        self.calls.append(("wait", self.name(buffer)))

    def release(self, buffer):
        self.calls.append(("release", self.name(buffer)))


def homes():
    return {
        "synchronous": {"ahead": 0, "distinct": False},
        "prefetched": {"ahead": 2, "distinct": False},
        "distinct": {"ahead": 2},
        "three ahead": {"ahead": 3},
        "lfu": {"cache": RowCache(20, VOCAB)},
        "one slot, synchronous": {"ahead": 0, "cache": RowCache(1, VOCAB)},
    }


@pytest.mark.parametrize("ffn", ["stem", "stem-dagger", "gate-replaced", "token-only", "stem-lowrank"])
@pytest.mark.parametrize("home", homes())
def test_the_same_logits_in_every_home(ffn, home):
    config = replace(CONFIG, ffn=ffn, rank=5 if ffn == "stem-lowrank" else 0, value_layers=(1,))
    resident, moved = build(config, 3), build(config, 3)
    offloaded = offload(moved, **homes()[home])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for length in (17, 1, 30, 17, 2):
            tokens = torch.randint(0, VOCAB, (2, length), generator=generator)
            assert torch.equal(moved(tokens), resident(tokens))
    assert len(offloaded.tables) == len([name for name, _ in resident.named_parameters() if "table" in name])
    assert not [name for name, _ in moved.named_parameters() if "table" in name]


def test_two_buffers_in_turn_each_filled_after_it_was_read():
    link = Recording()
    model = build(CONFIG, 3)
    offload(model, link=link)
    with torch.no_grad():
        model(TOKENS)
    begun, ended = ["fill 0", "fill 1"], ["wait 0", "release 0", "wait 1", "release 1"]
    between = ["wait 0", "release 0", "fill 0", "wait 1", "release 1", "fill 1"]
    assert [f"{word} {number}" for word, number in link.calls] == begun + between + ended


def test_bytes_are_those_of_the_cost_model():
    for distinct, rows in ((False, TOKENS.numel()), (True, len(set(TOKENS.flatten().tolist())))):
        model = build(CONFIG, 3)
        offloaded = offload(model, distinct=distinct)
        with torch.no_grad():
            model(TOKENS)
        assert offloaded.link.moved == row_bytes(CONFIG, rows, width=4)
        assert offloaded.counts == Counts(TOKENS.numel(), rows, rows, 0)


def test_counts_and_bytes_with_a_cache():
    model = build(CONFIG, 3)
    offloaded = offload(model, cache=RowCache(VOCAB, VOCAB))
    rows = len(set(TOKENS.flatten().tolist()))
    with torch.no_grad():
        model(TOKENS)
        model(TOKENS[:, :4])
    assert offloaded.link.moved == row_bytes(CONFIG, rows, width=4)
    assert offloaded.counts.found == TOKENS[:, :4].numel()
    assert offloaded.counts.rows == rows + len(set(TOKENS[:, :4].flatten().tolist()))
    assert offloaded.device_bytes == 4 * 24 * (4 * VOCAB + 2 * rows)


@pytest.mark.parametrize("fails_at", range(4))
@pytest.mark.parametrize("cache", [False, True])
def test_a_copy_that_fails_raises_and_leaves_nothing_stale(fails_at, cache):
    resident, model = build(CONFIG, 3), build(CONFIG, 3)
    link = Recording()
    offload(model, cache=RowCache(30, VOCAB) if cache else None, link=link)
    with torch.no_grad():
        model(TOKENS[:1])
        link.fails_at, link.calls = fails_at, []
        with pytest.raises(OSError, match="bus"):
            model(TOKENS)
        link.fails_at = None
        for tokens in (TOKENS, TOKENS[:, 3:5], TOKENS[:1]):
            assert torch.equal(model(tokens), resident(tokens))


def test_a_pass_that_ends_early_leaves_nothing_stale():
    resident, model = build(CONFIG, 3), build(CONFIG, 3)
    offload(model, cache=RowCache(30, VOCAB))
    hook = model.blocks[3].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with torch.no_grad():
        with pytest.raises(KeyboardInterrupt):
            model(TOKENS)
        hook.remove()
        assert torch.equal(model(TOKENS), resident(TOKENS))


def test_books_of_another_models_rows_are_refused():
    cache = RowCache(30, VOCAB)
    offload(build(CONFIG, 3), cache=cache)
    with pytest.raises(ValueError, match="each its own RowCache"):
        offload(build(CONFIG, 4), cache=cache)


@pytest.mark.parametrize("cached", [False, True])
def test_it_serves_inside_and_outside_inference_mode_and_by_name(cached):
    resident, model = build(CONFIG, 3), build(CONFIG, 3)
    offload(model, cache=RowCache(30, VOCAB) if cached else None)
    with torch.inference_mode():
        assert torch.equal(model(TOKENS[:1]), resident(TOKENS[:1]))
    with torch.no_grad():
        assert torch.equal(model(tokens=TOKENS[:1]), resident(TOKENS[:1]))
        assert torch.equal(model(TOKENS), resident(TOKENS))


def test_rows_of_other_tokens_and_out_of_turn_are_refused():
    model = build(CONFIG, 3)
    offloaded = offload(model)
    with pytest.raises(RuntimeError, match="no pass"):
        offloaded.take(0, TOKENS)
    offloaded.begin(TOKENS)
    with pytest.raises(RuntimeError, match="no pass"):
        offloaded.take(0, TOKENS.clone())
    with pytest.raises(RuntimeError, match="turn"):
        offloaded.take(1, TOKENS)
    with pytest.raises(ValueError, match="0 to 60"):
        offloaded.begin(torch.tensor([[3, VOCAB]]))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ffn": "dense", "replaced_layers": ()}, "no table"),
        ({"ffn": "stem-shuffled"}, "stem-shuffled"),
        ({"pair_rows": 50}, "stem"),
        ({"table_shared": True}, "stem"),
    ],
)
def test_arms_that_have_nothing_to_offload(changes, named):
    with pytest.raises(UserError, match=named):
        offload(build(replace(CONFIG, **changes), 3))
