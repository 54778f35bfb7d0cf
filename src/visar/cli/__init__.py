"""The command line, one module per group of commands."""

import atexit
import gc
import sys


def main() -> None:
    """Run the program. Ctrl-C ends it with exit code 130, even during imports."""
    # Imported modules live as long as the process: there is nothing to collect.
    gc.disable()
    atexit.register(gc.freeze)
    try:
        # Imported here: it takes long enough to be interrupted.
        from visar.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write(
            "visar: interrupted. Finished work is kept. Run the same command again to resume.\n"
        )
        sys.exit(130)


__all__ = ["main"]
