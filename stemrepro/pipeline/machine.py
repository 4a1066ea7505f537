"""What a machine lacks for a plan, before hours are spent: each check returns a sentence, "" where nothing is amiss."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from stemrepro.common.files import atomic_write
from stemrepro.common.paths import DATA, RUNS
from stemrepro.config.catalog import Catalog
from stemrepro.config.mixes import HubMix, ShardsMix
from stemrepro.measures import price as cost
from stemrepro.pipeline.planned import Params
from stemrepro.pipeline.price import Disk, disk

SECONDS = 5
"""That a server may take to answer."""
PROBE = ".check-machine"
"""Name of what is written for a moment."""
EARLIEST = 1_764_547_200
"""2025-12-01, before which no copy of this code was: a clock that says so is wrong."""
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def free_disk(need: Disk, data: Path = DATA, runs: Path = RUNS) -> str:
    """Check that text, checkpoints and weights fit on the disks of their folders."""
    wanted = [(data, need.blocks), (runs, need.checkpoints + need.weights)]
    disks: dict[int, list[tuple[Path, int]]] = {}
    for folder, size in wanted:
        disks.setdefault(existing(folder).stat().st_dev, []).append((folder, size))
    for parts in disks.values():
        size, free = sum(part for _, part in parts), shutil.disk_usage(existing(parts[0][0])).free
        if size > free:
            names = " and ".join(f"{folder}/" for folder, _ in parts)
            return f"{names} need {size / 1e9:,.0f} GB, and their disk has {free / 1e9:,.0f} GB free"
    return ""


def enough_devices(wanted: int, memory: float, found: list[int]) -> str:
    """Check devices, and their memory.

    Args:
        wanted: number of devices.
        memory: bytes that each is estimated to need.
        found: bytes of memory of the devices that are here.
    """
    if len(found) < wanted:
        return f"the scale wants {wanted} GPUs, and torch sees {len(found)}"
    if found and (least := min(found[:wanted])) < memory:
        return f"a device needs {memory / 1e9:.1f} GB before activations, and one here has {least / 1e9:.1f} GB"
    return ""


def gpu_memory() -> list[int]:
    """Return the bytes of memory of each GPU that torch sees."""
    import torch

    return [torch.cuda.get_device_properties(number).total_memory for number in range(torch.cuda.device_count())]


def cuda_build(version: str, cuda: str | None, wanted: bool) -> str:
    """Check that torch was built for GPUs, where the scale wants them."""
    return f"torch {version} was built without CUDA, and the scale wants GPUs" if wanted and cuda is None else ""


def compiler(wanted: bool, device: str, works: Callable[[str], bool]) -> str:
    """Check that runs which ask for it can be compiled."""
    if not wanted or works(device):
        return ""
    return f"torch.compile doesn't work for {device}: a C++ compiler or Python's headers are missing"


HELD = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""
"""A second process that asks for the lock; it ends with 3 where another has it."""


def locks(folder: Path = RUNS, asks: str = HELD) -> str:
    """Check that a folder which this process has locked is locked for another process.

    Args:
        folder: of the runs.
        asks: code of the other process.
    """
    import fcntl

    handle = os.open(existing(folder), os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        code = subprocess.run([sys.executable, "-c", asks, str(existing(folder))], timeout=60, check=False).returncode
    except BlockingIOError:
        return f"{folder}/ is locked by another process: end it and check again"
    except OSError as error:
        return f"{folder}/ can't be locked ({error}); put it on a disk that has flock"
    finally:
        os.close(handle)
    return "" if code == 3 else f"two processes can lock {folder}/ at once; put it on a disk that has flock"


def writes(folder: Path = RUNS) -> str:
    """Check that a file can be written, synced and renamed where runs are kept."""
    path = existing(folder) / f"{PROBE}.{os.getpid()}"
    try:
        atomic_write(path, "ours")
        return "" if path.read_text(encoding="utf-8") == "ours" else f"{path} doesn't hold what was written to it"
    except OSError as error:
        return f"{folder}/ can't be written to ({error})"
    finally:
        path.unlink(missing_ok=True)


def answers(variable: str, uri: str) -> str:
    """Check that the server of a URI accepts connections; files and empty values need none."""
    address = urlsplit(uri)
    scheme = address.scheme.split("+")[0]
    if scheme not in PORTS or not address.hostname:
        return ""
    port = address.port or PORTS[scheme]
    try:
        with socket.create_connection((address.hostname, port), timeout=SECONDS):
            return ""
    except OSError as error:
        return f"{variable}: nothing answers at {address.hostname}:{port} ({error})"


def hub_repository(kind: str, name: str, check: Callable[..., None]) -> str:
    """Check that a repository of the hub can be read with the credentials here.

    Args:
        kind: "dataset" or "model".
        name: owner/name.
        check: huggingface_hub's `auth_check`, which raises where the hub refuses or doesn't answer.
    """
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        check(name, repo_type=kind)
    except GatedRepoError:
        return f"{kind} '{name}': the hub refuses it; agree to its terms there and set HF_TOKEN"
    except RepositoryNotFoundError:
        return f"{kind} '{name}': the hub has no such {kind}, or hides it from those without HF_TOKEN"
    except Exception as error:  # the library and its HTTP client have errors of their own
        return f"{kind} '{name}': the hub can't be reached ({' '.join(str(error).split())[:100]})"
    return ""


def clock(now: float) -> str:
    """Check that the clock isn't behind this code."""
    return "" if now >= EARLIEST else f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}; set it"


def hub_repositories(params: Params) -> list[tuple[str, str]]:
    """Return kind and name of the hub's repositories that a plan reads."""
    (name,) = params.scales
    mid, found = params.scale[name].mid, set()
    for mix in [*params.mix.values(), *(part.mix for part in (mid.mix.parts.values() if mid else ()))]:
        sources = mix.sources.values() if isinstance(mix, ShardsMix) else [mix] if isinstance(mix, HubMix) else []
        found |= {("dataset", source.dataset) for source in sources if not source.local}
        if isinstance(mix, ShardsMix) and mix.tokenizer and not Path(mix.tokenizer).is_file():
            found.add(("model", mix.tokenizer))
    return sorted(found)


def faults(catalog: Catalog, params: Params) -> Iterator[str]:
    """Yield a sentence for everything that the machine lacks for a plan."""
    import torch
    from huggingface_hub import HfApi

    from stemrepro.training.compiling import compiler_works

    (name,) = params.scales
    runs, parallel = list(params.planned(name).values()), catalog.scale(name).parallel
    gpu = any(run.training.accelerator == "gpu" for run in runs)
    most = max((cost.memory(run.model, run.training, parallel).total for run in runs), default=0)
    compiled = any(run.training.compile for run in runs)
    found = [
        free_disk(disk(params)),
        cuda_build(torch.__version__, torch.version.cuda, gpu),
        enough_devices(parallel.devices if parallel else 1, most, gpu_memory()) if gpu else "",
        compiler(compiled, "cuda" if gpu and torch.cuda.is_available() else "cpu", compiler_works),
        locks(),
        writes(),
        *(answers(variable, os.environ.get(variable, "")) for variable in ("MLFLOW_TRACKING_URI", "OPTUNA_STORAGE")),
        *(hub_repository(kind, repository, HfApi().auth_check) for kind, repository in hub_repositories(params)),
        clock(time.time()),
    ]
    yield from filter(None, found)
