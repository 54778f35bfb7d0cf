"""Run the command line with ``python -m visar``."""

from visar.cli import main

main()
