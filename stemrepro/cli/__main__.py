"""stemrepro.cli.__main__: what `python -m stemrepro.cli` runs, as commands do that start others."""

from stemrepro.cli import main

main()
