"""The command line: thin, one module per group of commands."""

import sys


def main() -> None:
    """Run the program. Ctrl-C ends it with exit code 130, also while it is still being imported."""
    try:
        # Imported here: it takes long enough to be interrupted.
        from visar.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write(
            "visar: interrupted. What was finished is kept; the same command goes on from there.\n"
        )
        sys.exit(130)


__all__ = ["main"]
