"""The command line: thin, one module per group of commands."""

from visar.cli.app import main

__all__ = ["main"]
