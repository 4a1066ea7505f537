"""A run on several devices: torch's elastic agent starts its ranks and starts them again where one was killed.

Where a run has several machines, each has an agent. They meet on the first of them, by Slurm's variables.
"""

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from typing import Any

import torch
from lightning.fabric.plugins.environments import SLURMEnvironment
from torch.distributed import DistError, TCPStore
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from stemrepro.common.errors import Unfinished, UserError
from stemrepro.common.files import digest
from stemrepro.common.stopping import handlers_kept, stops_held
from stemrepro.common.workers import fork_server, leave_when_parent_ends
from stemrepro.config.training import Training
from stemrepro.model.specs import splits
from stemrepro.training import ranks
from stemrepro.training.callbacks import Report
from stemrepro.training.run import Run
from stemrepro.training.train import train

RESTARTS = 2
"""How often ranks are started again in one command after one of them was killed."""
SECONDS_TO_LEAVE = 300
"""Ranks that haven't left so long after a signal to the command are killed."""
SECONDS_TO_MEET = 600
"""Agents wait so long for each other."""
PORTS = range(15000, 25000)
"""Of the first machine; which of them agents meet at follows from the job's number."""
POLL = 0.2
"""Seconds between two looks at the reports of the first rank."""


def _be_rank(function: Callable, training: Training, queue: Any, arguments: tuple) -> Any:
    """Be one of the ranks: call `function(*arguments, report)`, where reports go to the launcher."""
    leave_when_parent_ends()
    ranks.hear_leaving()
    torch.set_num_threads(training.threads)
    try:
        with ranks.joined(training.accelerator):
            return function(*arguments, lambda *values: queue.put(values))
    except UserError as error:
        queue.put(str(error))
        sys.exit(2)
    except ranks.Left:
        sys.exit(Unfinished.code)


@cache
def _server(address: str, port: int) -> TCPStore:
    """Serve what agents of several machines tell each other, until the command ends."""
    return TCPStore(address, port, is_master=True, wait_for_workers=False, multi_tenant=True)


def meeting(nodes: int) -> dict[str, Any]:
    """Return where a run's agents meet, as arguments of a LaunchConfig.

    Raises:
        UserError: there are several, and Slurm's variables are missing or have another number of machines.
    """
    if nodes == 1:
        return {"rdzv_endpoint": "localhost:0", "local_addr": "127.0.0.1"}
    about = [os.environ.get(f"SLURM_{name}", "") for name in ("NNODES", "NODEID", "JOB_ID")]
    names, here = os.environ.get("SLURM_NODELIST", ""), os.environ.get("SLURMD_NODENAME", "")
    if not (names and here and all(number.isdecimal() for number in about) and int(about[0]) == nodes):
        raise UserError(
            f"parallel asks for nodes {nodes}: each runs the command as a task of Slurm, "
            f"'srun --nodes={nodes} --ntasks-per-node=1 stemrepro train ...'; SLURM_NNODES is '{about[0]}' here"
        )
    head, port = SLURMEnvironment.resolve_root_node_address(names), PORTS[int(about[2]) % len(PORTS)]
    first = int(about[1]) == 0
    if first:
        _server(head, port)
    way = {"is_host": first, "read_timeout": SECONDS_TO_MEET, "join_timeout": SECONDS_TO_MEET}
    return {"rdzv_endpoint": f"{head}:{port}", "local_addr": here, "rdzv_configs": way}


def group(
    function: Callable,
    arguments: tuple,
    devices: int,
    training: Training,
    report: Report,
    nodes: int = 1,
    name: str = "stemrepro",
) -> list[Any]:
    """Call `function(*arguments, report)` in so many ranks of this machine; return what each of them returns.

    Args:
        training: whose accelerator, threads and kernels the ranks have.
        report: called with what the first rank reports, if it is one of this machine.
        nodes: machines that call it together, each for its ranks.
        name: of what they do together, the same on all of them; a process may use it once.

    Raises:
        UserError: raised by a rank; or other machines weren't met.
        Unfinished: the ranks have left after a signal to one of them or to this process.
        ChildFailedError: a rank was killed, or raised something else.
    """
    for source in ("torch.distributed.elastic", "torch.multiprocessing"):  # the sentences here say it
        logging.getLogger(source).setLevel(logging.CRITICAL)
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or a new group reads the addresses of a dead one
    kernels = ["stemrepro.common.fork_server_avx512"] if training.mkl_avx512 else []
    context = fork_server(training.threads, *kernels, "stemrepro.training.launch", "stemrepro.training.fork_server")
    with stops_held():
        queue, ended, sentences = context.Queue(), threading.Event(), []
        forkserver.ensure_running()

    def hear() -> None:
        while not (ended.is_set() and queue.empty()):
            while not queue.empty():
                values = queue.get()
                sentences.append(values) if isinstance(values, str) else report(*values)
            ended.wait(POLL)

    listener = threading.Thread(target=hear)
    listener.start()
    try:
        with tempfile.TemporaryDirectory() as logs, handlers_kept(ranks.LEAVING):
            settings = LaunchConfig(
                nodes, nodes, devices, DefaultLogsSpecs(log_dir=logs), run_id=name, rdzv_backend="c10d",
                **meeting(nodes), max_restarts=0, start_method="forkserver",
                signals_to_handle=",".join(number.name for number in ranks.LEAVING), shutdown_timeout=SECONDS_TO_LEAVE,
            )  # fmt: skip
            results = elastic_launch(settings, _be_rank)(function, training, queue, arguments)
            return [results[rank] for rank in sorted(results)]
    except SignalException as stop:
        raise Unfinished(f"left after signal {stop.sigval.name}; the same command resumes") from stop
    except (RendezvousError, DistError) as error:
        raise UserError(
            f"the {nodes} nodes of a run didn't meet ({' '.join(str(error).split())}); "
            "stop what is left of them, and start the command on all"
        ) from error
    except ChildFailedError as error:
        ended.set()
        listener.join()
        if sentences:
            raise UserError(sentences[0]) from error
        if error.get_first_failure()[1].exitcode == Unfinished.code:
            raise Unfinished(
                "left with a checkpoint after a signal to one of the ranks; the same command resumes"
            ) from error
        raise
    finally:
        ended.set()
        listener.join()


def _train(run: Run, replace: bool, report: Report) -> None:
    train(run, report, replace)


def train_on_devices(run: Run, report: Report, replace: bool = False) -> None:
    """Train a run on the devices that it names, as `train` does on one; raises as `group` and `train` do.

    Raises:
        UserError: the run can't be trained so, or the machine has fewer devices.
    """
    parallel, training = run.parallel, run.training
    parallel.check(str(run), run.model, training, splits(run.model))
    if training.accelerator == "gpu" and torch.cuda.device_count() < parallel.devices:
        raise UserError(
            f"{run}: parallel asks for devices {parallel.devices}, and this machine has {torch.cuda.device_count()}"
        )
    for restarts in range(RESTARTS + 1):
        try:
            name = digest([str(run.folder), restarts])
            group(_train, (run, replace), parallel.devices, training, report, parallel.nodes, name)
            return
        except ChildFailedError as error:
            said = error.get_first_failure()[1].message  # a text of a signal, or what an exception was
            reason, more = (said, "") if isinstance(said, str) else (said["message"], said["extraInfo"]["py_callstack"])
            if restarts == RESTARTS:
                raise UserError(f"{run} failed {restarts + 1} times, at last with {reason}\n{more}") from error
            again = "all ranks are started again, from the last checkpoint"
            print(f"stemrepro: {run}: a rank ended ({' '.join(reason.split())}); {again}", file=sys.stderr)
