"""Servers of a cluster on this machine, each in a folder of its own; what is missing is said, and nothing installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

NODES = ("127.0.0.1", "127.0.0.2")


def needed(*programs: str) -> None:
    """Skip the test where a program is missing, or where this user may not start servers."""
    if missing := [program for program in programs if not shutil.which(program)]:
        pytest.skip(f"{', '.join(missing)} isn't installed here")
    if os.getuid() != 0:
        pytest.skip("these servers are started by root alone")


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def waited(done: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until something is done; fail where it isn't in time."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what} took more than {seconds:g} s"
        time.sleep(0.5)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """SLURM_CONF of a cluster of two nodes, which are this machine under two addresses; each has two cores."""
    needed("slurmctld", "slurmd", "sbatch", "munged")
    home, host = tmp_path_factory.mktemp("slurm"), socket.gethostname()
    settings = {
        "ClusterName": "test", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmUser": "root", "SlurmdUser": "root",
        "AuthType": "auth/munge", "AuthInfo": f"socket={home}/munge.socket,cred_expire=10",
        "StateSaveLocation": home / "state", "SlurmdSpoolDir": home / "spool-%n",
        "SlurmctldPidFile": home / "ctld.pid", "SlurmdPidFile": home / "d-%n.pid",
        "SlurmctldLogFile": home / "ctld.log", "SlurmdLogFile": home / "d-%n.log", "SlurmctldPort": free_port(),
        "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core", "MpiDefault": "none",
    }  # fmt: skip
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += [
        f"NodeName={node} NodeHostname={host} NodeAddr={node} Port={free_port()} CPUs=2 RealMemory=1000 State=UNKNOWN"
        for node in NODES
    ]
    lines += [f"PartitionName=main Nodes={','.join(NODES)} Default=YES State=UP OverSubscribe=FORCE:4"]
    conf = home / "slurm.conf"
    conf.write_text("\n".join(lines) + "\n")
    for folder in ("state", *(f"spool-{node}" for node in NODES)):
        (home / folder).mkdir()
    for parent in (home, *home.parents[:-2]):  # munged refuses a socket that others can't reach
        parent.chmod(parent.stat().st_mode | 0o011)
    munge = ["--foreground", "--force", f"--socket={home}/munge.socket", f"--pid-file={home}/munge.pid",
             f"--log-file={home}/munge.log", f"--seed-file={home}/munge.seed",
             f"--key-file={home}/munge.key"]  # fmt: skip
    (home / "munge.key").write_bytes(os.urandom(128))
    (home / "munge.key").chmod(0o600)
    environment = os.environ | {"SLURM_CONF": str(conf)}
    servers = [subprocess.Popen(["munged", *munge], env=environment)]
    try:
        waited((home / "munge.socket").exists, "munged's start")
        for command in (["slurmctld"], *(["slurmd", "-N", node] for node in NODES)):
            line = [*command, "-D", "-f", str(conf)]
            servers.append(subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL))
        state = ["sinfo", "-h", "-N", "-o", "%t"]
        waited(
            lambda: (
                subprocess.run(state, env=environment, capture_output=True, text=True).stdout.split()
                == ["idle"] * len(NODES)
            ),
            "Slurm's start",
        )
        yield {"SLURM_CONF": str(conf)}
    finally:
        for server in reversed(servers):
            server.terminate()
            server.wait()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """Address of a PostgreSQL server without its scheme, user@host:port."""
    pytest.importorskip("psycopg2", reason="psycopg2-binary isn't installed here (pip install -e '.[cluster]')")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        needed("initdb", "pg_ctl")
    needed("runuser")
    home, port, bin = tmp_path_factory.mktemp("postgres"), free_port(), f"{programs[-1]}/" if programs else ""
    for parent in (home, *home.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o011)
    shutil.chown(home, "postgres")

    def run(*command: str) -> None:
        subprocess.run(["runuser", "-u", "postgres", "--", *command], check=True, cwd=home, stdout=subprocess.DEVNULL)

    run(f"{bin}initdb", "-D", f"{home}/data", "-A", "trust", "-U", "postgres")
    options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1"
    run(f"{bin}pg_ctl", "-D", f"{home}/data", "-l", f"{home}/log", "-o", options, "-w", "start")
    try:
        for name in ("mlflow", "optuna"):
            run(f"{bin}createdb", "-h", "127.0.0.1", "-p", str(port), name)
        yield f"postgres@127.0.0.1:{port}"
    finally:
        run(f"{bin}pg_ctl", "-D", f"{home}/data", "-m", "immediate", "stop")
