"""Where the file of a stored document lies, and how it is opened again.

A source is ``file://HOST/path``, or the address of an object (``s3://bucket/key``). The host is
part of it, so that two computers with a file of the same path do not replace each other's document
in an index they share.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from visar.documents.options import ReadOptions
from visar.errors import DocumentError
from visar.results import Document

if TYPE_CHECKING:
    from visar.documents import OpenedDocument

_SCHEME = "file://"
# In a MAC address: for a group, which marks the random number that Python gives where there is no
# address; and assigned locally, which containers and privacy settings change at any time.
_UNSTABLE_ADDRESS = 0b11 << 40


def host_name() -> str:
    """Name this computer in sources: its host name, and a mark of the machine where it has one.

    In a container this is the host name alone: give the container a fixed one to keep it the
    same host.
    """
    import socket

    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.") or "localhost"
    mark = _machine_mark()
    return f"{name}-{mark}" if mark else name


@functools.cache
def _machine_mark() -> str:
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    if not machine:
        address = uuid.getnode()
        machine = "" if address & _UNSTABLE_ADDRESS else f"{address:012x}"
    return hashlib.sha256(machine.encode()).hexdigest()[:8] if machine else ""


def file_source(path: str | os.PathLike[str]) -> str:
    """The source of a file or folder of this computer: ``file://HOST/path``, percent-encoded."""
    uri = Path(path).resolve().as_uri()
    return f"{_SCHEME}{host_name()}{uri.removeprefix(_SCHEME)}"


def source_path(source: str) -> Path | None:
    """The path of a source, if it is of this computer; None if it is of another, or no file.

    A source without a host, as older indexes have it, is taken for one of this computer.
    """
    host, path = _split(source)
    return path if host in ("", host_name()) else None


def source_text(source: str) -> str:
    """A source as people read it: the path, after the host and a colon if that is another.

    >>> source_text("file://elsewhere-0a1b2c3d/data/my%20report.pdf")
    'elsewhere-0a1b2c3d:/data/my report.pdf'
    """
    host, path = _split(source)
    if path is None:
        return source
    # A name that is no valid text can be opened, but not printed.
    text = str(path).encode(errors="replace").decode()
    return text if host in ("", host_name()) else f"{host}:{text}"


def is_object_source(source: str) -> bool:
    """Whether a source is an object in object storage."""
    return "://" in source and not source.startswith(_SCHEME)


def _split(source: str) -> tuple[str, Path | None]:
    """The host, empty if none is named, and the path."""
    if is_object_source(source):
        return "", None
    if not source.startswith(_SCHEME):
        return "", Path(source) if source else None
    parts = urlsplit(source)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    # A drive letter follows the slash.
    return parts.netloc, Path(path.removeprefix("/") if os.name == "nt" else path)


def open_source(
    document: Document, options: ReadOptions | None = None, original: Path | None = None
) -> OpenedDocument:
    """Open a stored document to show its pages: its kept original, or the file it came from.

    The whole file is read once to see that it is still the same: open it once for many pages.

    Parameters
    ----------
    document
        As the store gives it.
    options
        The password, and limits; these are raised to what the document is known to need. OCR is
        not run: the words are in the index.
    original
        What the store has kept of it, if anything.

    Returns
    -------
    OpenedDocument
        To be closed by the caller.

    Raises
    ------
    EncryptedDocument
        It needs a password, or another one.
    DocumentError
        Its file is gone, lies on another computer, was changed since it was added, or cannot be
        read.
    """
    from visar.documents import identify, open_document

    options = options or ReadOptions()
    limits = replace(
        options.limits,
        max_bytes=max(options.limits.max_bytes, document.size),
        max_pages=max(options.limits.max_pages, document.pages),
    )
    options = replace(options, ocr="never", limits=limits)
    if original is not None:
        identity = replace(identify(original, limits), name=document.name)
        return open_document(original, options, identity=identity)
    path = _split(document.source)[1]
    if path is None:
        raise DocumentError(
            document.name, "cannot be shown: the index does not say where its file is. Add it again"
        )
    # Of another computer too: a shared folder may have the same path here. The content decides.
    if not _exists(path):
        change = "does not exist any more. Put it back, or add the document from where it is now"
    else:
        identity = identify(path, limits)
        if identity.id == document.id:
            return open_document(path, options, identity=identity)
        change = "was changed since it was added. Add it again"
    place = source_text(document.source)
    if source_path(document.source) is None:
        host, _ = _split(document.source)
        raise DocumentError(
            document.name,
            f"cannot be shown: its file is on another computer ({place}; this one is "
            f"{host_name()}). Ask on {host}, or add the document from a path of this computer",
        )
    raise DocumentError(document.name, f"cannot be shown: its file {place} {change}")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # It is there, or may be: opening it tells why it cannot be read.
        return True
    return True


@dataclass(slots=True)
class _Opened:
    """A source in a pool."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is opened, so that others wait for it instead of opening it too."""
    document: OpenedDocument | None = None
    users: int = 0


class SourcePool:
    """Keeps the sources used last open: showing many pages hashes and opens each file once.

    Several threads may use it.

    Parameters
    ----------
    size
        How many stay open while nobody uses them; each has a process.
    """

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._opened: OrderedDict[tuple[str, str, ReadOptions | None], _Opened] = OrderedDict()

    @contextlib.contextmanager
    def lease(
        self,
        document: Document,
        options: ReadOptions | None = None,
        original: Path | None = None,
    ) -> Iterator[OpenedDocument]:
        """Give a source, opened as `open_source` does, to be used within the ``with`` block.

        Several may use the same one; none closes it.
        """
        key = document.id, document.source, options
        with self._lock:
            opened = self._opened.setdefault(key, _Opened())
            self._opened.move_to_end(key)
            opened.users += 1
        try:
            with opened.lock:
                if opened.document is not None and not _unchanged(opened.document):
                    opened.document.close()
                    opened.document = None
                if opened.document is None:
                    opened.document = open_source(document, options, original)
                source = opened.document
            yield source
        finally:
            with self._lock:
                opened.users -= 1
                unused = self._take_unused()
                if not opened.users and opened.document and self._opened.get(key) is not opened:
                    # The pool was closed, or the document forgotten, meanwhile.
                    unused.append(opened.document)
            for source in unused:
                source.close()

    def close(self) -> None:
        """Close all sources."""
        with self._lock:
            sources = [opened.document for opened in self._opened.values()]
            self._opened.clear()
        for source in sources:
            if source is not None:
                source.close()

    def documents(self) -> set[str]:
        """Return the ids of the documents that have a source here."""
        with self._lock:
            return {document for document, _, _ in self._opened}

    def forget(self, document: str) -> None:
        """Close the sources of a document, those in use after their last use; drop its password."""
        with self._lock:
            keys = [key for key in self._opened if key[0] == document]
            removed = [self._opened.pop(key) for key in keys]
            unused = [opened.document for opened in removed if not opened.users]
        for source in unused:
            if source is not None:
                source.close()

    def _take_unused(self) -> list[OpenedDocument]:
        """Remove the sources used longest ago that are too many, and those never opened."""
        idle = [(key, opened) for key, opened in self._opened.items() if not opened.users]
        surplus = len(self._opened) - self._size
        removed = [
            (key, opened)
            for place, (key, opened) in enumerate(idle)
            if place < surplus or opened.document is None
        ]
        for key, _ in removed:
            del self._opened[key]
        return [opened.document for _, opened in removed if opened.document is not None]


def _unchanged(document: OpenedDocument) -> bool:
    try:
        document.identity.check()
    except DocumentError:
        return False
    return True
