"""Import of a fork server whose processes train: it reads the code of a run once, not in each of them."""

from contextlib import suppress

from stemrepro.common.errors import UserError
from stemrepro.training import train as train  # what they need
from stemrepro.training.run import run_code

with suppress(UserError):  # a process that needs the hash says what is wrong
    run_code(())
