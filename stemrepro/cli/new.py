"""Commands that write an arm or a recipe to start from."""

from typing import Annotated

import typer

from stemrepro.cli import names
from stemrepro.cli.base import app
from stemrepro.common.errors import UserError

new = typer.Typer(no_args_is_help=True, help="Writes an arm or a recipe to start from.")
app.add_typer(new, name="new")


@new.command("arm")
def new_arm(
    name: str,
    ffn: Annotated[
        str, typer.Option(help="a name of stemrepro/model/ffn, or my/file.py:Class, which is written")
    ] = "stem",
) -> None:
    """Add an arm to recipes/arms.yaml."""
    from stemrepro.cli.skeletons import new_arm as write

    print(f"written: {', '.join(write(name, ffn))}")
    print(f"next: edit them, name '{name}' in a recipe ('stemrepro new recipe NAME dense {name}' writes one)")


@new.command("recipe")
def new_recipe(
    name: str,
    arms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARM...",
            help="two or more; the claim is that the last ends below the first",
            autocompletion=names.keys("arms"),
        ),
    ] = None,
    leaderboard: Annotated[
        bool, typer.Option("--leaderboard", help="of the arm NAME on all tracks, with its class and its study")
    ] = False,
) -> None:
    """Write recipes/NAME.yaml."""
    from stemrepro.cli.skeletons import new_method
    from stemrepro.cli.skeletons import new_recipe as write

    if leaderboard:
        if arms:
            raise UserError(f"--leaderboard compares '{name}' with dense; leave {', '.join(arms)} out")
        print(f"written: {', '.join(new_method(name))}")
        print("next, by docs/leaderboard.md: edit the class, say in the recipe what you claim, and commit both; then")
        print(f"  stemrepro plan --scale leaderboard --recipe {name}")
        print("  stemrepro data --scale leaderboard")
        print(f"  stemrepro sweep recipes/sweeps/{name}.yaml --scale leaderboard   # 12 trials; a line for `tuned`")
        print(f"  make reproduce RECIPE={name}   # 5 seeds on three tracks; equal time, when its step is timed")
        print(f"  stemrepro report   # its rows are in results/{name}.md")
        return
    print(f"written: {', '.join(write(name, arms or []))}")
    print(f"next: edit its claim, then 'make reproduce SCALE=smoke RECIPE={name}'; every recipe has a forest plot,")
    print(f"  analysis/{name}.py with collect(scores) and draw(data, scores) gives it another figure")
