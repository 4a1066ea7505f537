"""The command line. Each command declares its options; heavy imports stay inside, so that commands start fast."""

import os
import select
import sys
from typing import TextIO

from stemrepro.cli import making, models, new, results  # noqa: F401  commands are those that these files declare
from stemrepro.cli.base import app
from stemrepro.common.stopping import hear_stops

UNREAD = 141  # a shell's exit code for programs that SIGPIPE has ended


def _unread(stream: TextIO) -> bool:
    """Tell whether the reader of a stream has closed it; rich then puts the null device in its place."""
    if os.path.samestat(os.fstat(stream.fileno()), os.stat(os.devnull)):
        return True
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def main() -> None:
    """Run a command.

    Bad input ends with one sentence and exit code 2, Ctrl-C with one and 130, SIGTERM with 143, SIGHUP with 129. Where
    nobody reads its output any more, as in `stemrepro cost | head`, it ends quietly with 141, as other programs do.
    """
    hear_stops()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks
    try:
        try:
            app()
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # click and rich make this of it
                raise end.__context__ from None
            if not end.code:
                sys.stdout.flush()
            raise
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if _unread(stream)]
        if not unread:  # another process's
            raise
        for stream in unread:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or Python's last flush would complain
        sys.exit(UNREAD)
