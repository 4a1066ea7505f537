import io as streams
import pickle
from pathlib import Path

import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256
from stemrepro.training.checkpoint import AtomicCheckpointIO, checkpoint_path, intact, newest, prune


def saved(value):
    buffer = streams.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_round_trip_and_no_debris(tmp_path):
    io, path = AtomicCheckpointIO(), checkpoint_path(tmp_path, 7)
    io.save_checkpoint({"state_dict": {"weights": torch.arange(5)}, "rows": [{"step": 1}]}, path)
    assert io.load_checkpoint(path)["state_dict"]["weights"].tolist() == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step000000007.ckpt", "step000000007.ckpt.sha256"]


def test_damage_is_found_and_named(tmp_path):
    io, path = AtomicCheckpointIO(), checkpoint_path(tmp_path, 7)
    io.save_checkpoint({"state_dict": {"weights": torch.arange(5)}}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert not intact(path)
    with pytest.raises(UserError, match=r"step000000007\.ckpt is damaged"):
        io.load_checkpoint(path)


def test_newest_falls_back_and_prune_keeps_two(tmp_path):
    io = AtomicCheckpointIO()
    for step in (5, 10, 15):
        io.save_checkpoint({"step": step}, checkpoint_path(tmp_path, step))
    prune(tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["step000000010.ckpt", "step000000015.ckpt"]
    (tmp_path / "step000000015.ckpt.sha256").unlink()  # killed between the file and its hash
    with pytest.warns(UserWarning, match="step000000015"):
        assert newest(tmp_path) == checkpoint_path(tmp_path, 10)
    assert newest(tmp_path / "nothing") is None


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "content",
    [
        lambda path: pickle.dumps(Bomb(path)),
        lambda path: saved({"state_dict": {}, "x": Bomb(path)}),
        lambda path: saved([1]),
        lambda path: saved({"weights": 1}),
        lambda path: saved({"state_dict": {}})[:-30],
        lambda path: b"garbage",
        lambda path: b"",
    ],
)
def test_what_is_no_checkpoint_is_one_sentence_and_executes_no_code(tmp_path, content):
    """Whoever hands in a file can hand in its sha256 too."""
    path = checkpoint_path(tmp_path, 1)
    path.write_bytes(content(tmp_path / "executed"))
    Path(f"{path}.sha256").write_text(sha256(path))
    with pytest.raises(UserError, match=r"step000000001\.ckpt is no checkpoint of tensors and plain values") as refused:
        AtomicCheckpointIO().load_checkpoint(path)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "executed").exists()
