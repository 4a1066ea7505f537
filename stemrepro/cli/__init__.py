"""The command line. Each command declares its options beside itself; heavy imports stay inside, so that each starts fast."""

import sys

from stemrepro.cli import making, models, new, results  # noqa: F401  commands are those that these files declare
from stemrepro.cli.base import app
from stemrepro.stopping import hear_stops


def main() -> None:
    """Runs a command; bad input ends with one sentence and exit code 2, Ctrl-C with one and 130, SIGTERM with 143, SIGHUP with 129."""
    hear_stops()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks
    app()
