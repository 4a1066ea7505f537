"""What MKL is answered in a process of its own: torch asks once, when it is loaded."""

import json
import pickle
import subprocess
import sys

import pytest

from stemrepro.common import mkl_avx512
from stemrepro.training.train import train
from tests.conftest import ROOT, quiet, retrained

CHILD = """
import json, sys
from stemrepro.common import mkl_avx512
if sys.argv[1] == "before": mkl_avx512.load()
import torch
if sys.argv[1] == "behind": mkl_avx512.load()
a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in ((64, 300), (300, 64)))
print(json.dumps([mkl_avx512.in_force(), (a @ b).tolist(), (a.double() @ b.double()).tolist()]))
"""


def product(when: str, **environment: str) -> list:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, when], text=True, capture_output=True, check=True, env=environment or None
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems' torch has no MKL")
def test_loaded_before_torch_it_is_in_force_and_products_are_right():
    try:
        mkl_avx512.built()
    except OSError:
        pytest.skip("there is no C compiler")
    in_force, products, exact = product("before")
    assert in_force
    for row, right in zip(products, exact, strict=True):
        assert row == pytest.approx(right, abs=1e-4)
    assert product("behind")[0] is False


@pytest.mark.slow
def test_without_a_compiler_nothing_happens(tmp_path):
    """The run is then trained without, and says so."""
    assert product("before", CC="no-compiler", TMPDIR=str(tmp_path), PATH="")[0] is False


TRAIN = """
import pickle, sys
from stemrepro.pipeline.runs import train_runs
train_runs([pickle.loads(sys.stdin.buffer.read())], 1, False)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems' torch has no MKL")
def test_a_run_that_asks_for_it_has_it_and_says_so_where_it_cant(make_run, capfd):
    """It trains to the losses of the kernels that it had before, but for roundings."""
    run = make_run("stem-full")
    train(run, quiet)
    here, worker = (retrained(run, name, mkl_avx512=True) for name in ("here", "worker"))
    train(here, quiet)
    assert "MKL can't be asked for AVX-512" in capfd.readouterr().err
    subprocess.run([sys.executable, "-c", TRAIN], input=pickle.dumps(worker), check=True)
    had = [json.loads((each.folder / "provenance.json").read_text())["mkl_avx512"] for each in (run, here, worker)]
    assert had == [False, False, True]
    losses = [[json.loads(line)["loss"] for line in (each.folder / "metrics.jsonl").open()] for each in (run, worker)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


SWEEP = """
import sys
import stemrepro.sweeps.search as search
from stemrepro.common import mkl_avx512
from stemrepro.cli import main
search.run_sweep = lambda *given: print(mkl_avx512.in_force())
sys.argv = ["stemrepro", "sweep", "recipes/sweeps/leaderboard.yaml", "--scale", "SCALE"]
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems' torch has no MKL")
@pytest.mark.parametrize(("scale", "said"), [("leaderboard", "True"), ("laptop", "False")])
def test_a_sweep_asks_for_it_before_recipes_import_torch(scale, said):
    """A sweep trains in its own process."""
    code = SWEEP.replace("SCALE", scale)
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, cwd=ROOT)
    assert done.stdout.split() == [said], done.stderr
