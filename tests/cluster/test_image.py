"""Containerfile on a base image that is here, and the smoke test in what it gives. Nothing is pulled."""

import os
import shutil
import subprocess

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

BASE = os.environ.get("BASE", "docker.io/library/python:3.11-slim")
IMAGE = "stemrepro-test"
TOOLS = {
    "docker": (["image", "inspect"], ["build"], [["run", "--rm", IMAGE]]),
    "podman": (["image", "inspect"], ["build"], [["run", "--rm", IMAGE]]),
    "buildah": (["inspect", "--type", "image"], ["bud"], [["from", "--name", IMAGE, IMAGE], ["run", IMAGE, "--"]]),
}
"""How each tells of an image, builds one, and runs a command in it, the command behind the last line."""
SMOKE = ["make", "reproduce", "SCALE=smoke"]


@pytest.fixture
def tool():
    """The first tool that works here and has the base image."""
    here = [name for name in TOOLS if shutil.which(name)]
    lacks = {name: subprocess.run([name, "info"], capture_output=True).returncode for name in here}
    for name in here:
        if not lacks[name]:
            lacks[name] = subprocess.run([name, *TOOLS[name][0], BASE], capture_output=True).returncode and "base"
        if not lacks[name]:
            return name
    said = [f"{name} {f'has no image {BASE}' if lacks[name] == 'base' else 'does not work'}" for name in here]
    pytest.skip(f"{'; '.join(said) or 'no ' + ', '.join(TOOLS)}: pull that image, or name one that is here in BASE")


def test_smoke_runs_in_the_image(tool, tmp_path, request):
    _, build, commands = TOOLS[tool]
    clone = tmp_path / "stemrepro"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    options = ["--file", "Containerfile", "--tag", IMAGE, "--build-arg", f"BASE={BASE}"]
    subprocess.run([tool, *build, *options, "."], cwd=clone, check=True)
    if tool == "buildah":  # its containers stay
        request.addfinalizer(lambda: subprocess.run([tool, "rm", IMAGE]))
    for command in [*commands[:-1], [*commands[-1], *SMOKE]]:
        done = subprocess.run([tool, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Figures and verdicts: results/smoke/" in done.stdout
