"""stemrepro.cli.__main__: what `python -m stemrepro.cli` runs, as commands do that start others."""

from stemrepro.cli import main

if __name__ == "__main__":
    main()
