import pytest
import torch

from stemrepro.errors import UserError
from stemrepro.training.checkpoint import AtomicCheckpointIO, checkpoint_path, intact, newest, prune


def test_round_trip_and_no_debris(tmp_path):
    io, path = AtomicCheckpointIO(), checkpoint_path(tmp_path, 7)
    io.save_checkpoint({"weights": torch.arange(5), "rows": [{"step": 1}]}, path)
    assert io.load_checkpoint(path)["weights"].tolist() == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step000000007.ckpt", "step000000007.ckpt.sha256"]


def test_damage_is_found_and_named(tmp_path):
    io, path = AtomicCheckpointIO(), checkpoint_path(tmp_path, 7)
    io.save_checkpoint({"weights": torch.arange(5)}, path)
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


def test_checkpoints_execute_no_code(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (print, ("boom",))

    io, path = AtomicCheckpointIO(), checkpoint_path(tmp_path, 1)
    io.save_checkpoint({"x": Bomb()}, path)
    with pytest.raises(Exception, match=r"(?i)weights.?only|unsupported"):
        io.load_checkpoint(path)
