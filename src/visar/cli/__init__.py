"""The command line: thin, one module per group of commands."""

import atexit
import gc
import sys


def main() -> None:
    """Run the program. Ctrl-C ends it with exit code 130, also while it is still being imported."""
    # What is imported lives as long as the process: collecting garbage among it finds none, neither
    # meanwhile nor at the end.
    gc.disable()
    atexit.register(gc.freeze)
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
