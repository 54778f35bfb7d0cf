"""``python -m visar``."""

from visar.cli import main

main()
