"""Files that must stay as they are while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from visar.errors import DocumentError


@contextmanager
def refusals(document: str) -> Iterator[None]:
    """Say of what the system refuses to read which document it belongs to."""
    try:
        yield
    except FileNotFoundError as error:
        raise DocumentError(document, "does not exist, or not any more") from error
    except OSError as error:
        raise DocumentError(document, f"cannot be read: {error.strerror}") from error


class UnchangedFile:
    """A file as it was when the document's id was taken from its content."""

    def __init__(self, path: Path, document: str) -> None:
        self.path = path
        self._document = document
        self._state = self._look()

    @property
    def size(self) -> int:
        """In bytes."""
        return self._state[0]

    def check(self) -> None:
        """Refuse to go on if it vanished or changed."""
        if self._look() != self._state:
            raise DocumentError(self._document, "was changed while it was read: open it again")

    def _look(self) -> tuple[int, int]:
        with refusals(self._document):
            state = self.path.stat()
        return state.st_size, state.st_mtime_ns
