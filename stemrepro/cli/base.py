"""The frame of the command line: failures as one sentence, and the options that commands share."""

import signal
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stemrepro.cli import names
from stemrepro.common.errors import UserError, of_system
from stemrepro.common.provenance import other_code


class Commands(TyperGroup):
    """Commands whose failures are one sentence each."""

    def invoke(self, context: Any) -> object:  # click's, which typer has a private copy of
        """Run a command; bad input ends with exit code 2, Ctrl-C with 130, SIGTERM with 143, SIGHUP with 129."""
        try:
            if advice := other_code():
                raise UserError(advice)
            return super().invoke(context)
        except UserError as error:
            sentence, code = str(error), error.code
        except KeyboardInterrupt as stop:
            sentence = "stopped; what is finished is kept, and the same command resumes the rest"
            code = 128 + (stop.args[0] if stop.args else signal.SIGINT)
        except MemoryError:
            sentence, code = "no memory is left; end another program, or take a smaller scale, and run again", 2
        except OSError as error:
            if not (sentence := of_system(error)):
                raise
            code = 2
        with suppress(BrokenPipeError):  # the exit code remains where nobody reads
            print(f"stemrepro: {sentence}", file=sys.stderr, flush=True)
        raise typer.Exit(code)


app = typer.Typer(
    name="stemrepro",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reproduces the STEM paper, claim by claim.",
)
Scale = Annotated[str, typer.Option(help="a file of recipes/scales/", autocompletion=names.scales)]
Recipes = Annotated[
    list[str] | None,
    typer.Option("--recipe", help="only what this recipe needs; may be repeated", autocompletion=names.recipes),
]
Addresses = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARM[@VARIANT]]...", help="all that are planned when left out", autocompletion=names.addresses
    ),
]


def _print_version(requested: bool) -> None:
    if requested:
        print(f"stemrepro {version('stemrepro')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass
