"""The program of `python -m stemrepro.cli`, which commands also start."""

from stemrepro.cli import main

if __name__ == "__main__":
    main()
