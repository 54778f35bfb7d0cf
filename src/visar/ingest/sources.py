"""Sources of stored documents, and reading their files again.

A source is ``file://HOST/path``, the URL of an object (``s3://bucket/key``), or a web address. It
contains the host, so that two computers with a file at the same path don't replace each other's
document in a shared index.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from visar.documents.blocks import lay_out
from visar.documents.options import ReadOptions
from visar.documents.page import Page
from visar.errors import DocumentError, StoreError, VisarError
from visar.results import Document
from visar.store import Store

if TYPE_CHECKING:
    from visar.documents import OpenedDocument

_SCHEME = "file://"
# Two bits of a MAC address: multicast, which marks the random number that Python returns if there
# is no address, and locally administered, which marks addresses that containers may change.
_UNSTABLE_ADDRESS = 0b11 << 40


def host_name() -> str:
    """Return the name of this computer in sources: its host name, and a hash of its machine id.

    In a container this may be only the host name, which should then be fixed.
    """
    import socket

    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.") or "localhost"
    machine = _machine_hash()
    return f"{name}-{machine}" if machine else name


@functools.cache
def _machine_hash() -> str:
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    if not machine:
        address = uuid.getnode()
        machine = "" if address & _UNSTABLE_ADDRESS else f"{address:012x}"
    return hashlib.sha256(machine.encode()).hexdigest()[:8] if machine else ""


def file_source(path: str | os.PathLike[str]) -> str:
    """Return the source of a local file or folder: ``file://HOST/path``, percent-encoded."""
    uri = Path(path).resolve().as_uri()
    return f"{_SCHEME}{host_name()}{uri.removeprefix(_SCHEME)}"


def source_path(source: str) -> Path | None:
    """Return the path of a source, or None if it isn't a file on this computer.

    A source without a host, as in older indexes, counts as one of this computer.
    """
    host, path = _split(source)
    return path if host in ("", host_name()) else None


def source_text(source: str) -> str:
    """Return a source for display: the path, with the host and a colon for other computers.

    >>> source_text("file://elsewhere-0a1b2c3d/data/my%20report.pdf")
    'elsewhere-0a1b2c3d:/data/my report.pdf'
    """
    host, path = _split(source)
    if path is None:
        return source
    # A name that isn't valid Unicode can be opened, but not printed.
    text = str(path).encode(errors="replace").decode()
    return text if host in ("", host_name()) else f"{host}:{text}"


def is_object_source(source: str) -> bool:
    """Return whether a source is an object in object storage, or a web address."""
    return "://" in source and not source.startswith(_SCHEME)


def _split(source: str) -> tuple[str, Path | None]:
    """Return the host, or "" if there is none, and the path."""
    if is_object_source(source):
        return "", None
    if not source.startswith(_SCHEME):
        return "", Path(source) if source else None
    parts = urlsplit(source)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    # On Windows, a drive letter follows the slash.
    return parts.netloc, Path(path.removeprefix("/") if os.name == "nt" else path)


def open_source(
    document: Document, options: ReadOptions | None = None, original: Path | None = None
) -> OpenedDocument:
    """Open a stored document to render its pages, from the stored original or its source.

    This reads the whole file once to check that it hasn't changed, so open it once for many pages.
    Limits are raised if the document needs it. OCR isn't used, because the words are in the index.
    Raises DocumentError if the file is gone, on another computer, changed since it was added, or
    can't be read, for example because it needs a password.
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
            document.name, "can't be opened: its source isn't in the index. Add it again"
        )
    # Also try paths of other computers, because a shared folder may have the same path here.
    if not _exists(path):
        problem = "no longer exists. Put it back, or add the document from its new path"
    else:
        identity = identify(path, limits)
        if identity.id == document.id:
            identity = replace(identity, name=document.name)
            return open_document(path, options, identity=identity)
        problem = "has changed since it was added. Add it again"
    text = source_text(document.source)
    if source_path(document.source) is None:
        host, _ = _split(document.source)
        raise DocumentError(
            document.name,
            f"can't be opened: its file is on another computer ({text}; this one is "
            f"{host_name()}). Run the command on {host}, or add the document from this computer",
        )
    raise DocumentError(document.name, f"can't be opened: its file {text} {problem}")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # The file may exist; opening it will raise the reason.
        return True
    return True


@dataclass(slots=True)
class _PooledSource:
    """A source in a pool."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the document is opened, so that other threads wait instead of opening it too."""
    document: OpenedDocument | None = None
    users: int = 0


class SourcePool:
    """A cache of open sources, so that rendering many pages hashes and opens each file once.

    It keeps up to ``size`` unused sources open; each has a process. Thread-safe.
    """

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str, ReadOptions | None], _PooledSource] = (
            OrderedDict()
        )

    @contextlib.contextmanager
    def lease(
        self,
        document: Document,
        options: ReadOptions | None = None,
        original: Path | None = None,
    ) -> Iterator[OpenedDocument]:
        """Context manager: a source, opened by `open_source`.

        Several threads can use the same source. Don't close it.
        """
        key = document.id, document.source, options
        with self._lock:
            entry = self._entries.setdefault(key, _PooledSource())
            self._entries.move_to_end(key)
            entry.users += 1
        try:
            with entry.lock:
                if entry.document is not None and not _is_unchanged(entry.document):
                    entry.document.close()
                    entry.document = None
                if entry.document is None:
                    entry.document = open_source(document, options, original)
                source = entry.document
            yield source
        finally:
            with self._lock:
                entry.users -= 1
                unused = self._remove_unused()
                if not entry.users and entry.document and self._entries.get(key) is not entry:
                    # The pool was closed, or the document was forgotten in the meantime.
                    unused.append(entry.document)
            for source in unused:
                source.close()

    def close(self) -> None:
        with self._lock:
            sources = [entry.document for entry in self._entries.values()]
            self._entries.clear()
        for source in sources:
            if source is not None:
                source.close()

    def documents(self) -> set[str]:
        """Return the ids of the documents with a source in the pool."""
        with self._lock:
            return {document for document, _, _ in self._entries}

    def forget(self, document: str) -> None:
        """Close the sources of a document, once they aren't in use, and forget its password."""
        with self._lock:
            keys = [key for key in self._entries if key[0] == document]
            removed = [self._entries.pop(key) for key in keys]
            unused = [entry.document for entry in removed if not entry.users]
        for source in unused:
            if source is not None:
                source.close()

    def _remove_unused(self) -> list[OpenedDocument]:
        """Remove the least recently used sources over the limit, and those that never opened."""
        idle = [(key, entry) for key, entry in self._entries.items() if not entry.users]
        surplus = len(self._entries) - self._size
        removed = [
            (key, entry)
            for position, (key, entry) in enumerate(idle)
            if position < surplus or entry.document is None
        ]
        for key, _ in removed:
            del self._entries[key]
        return [entry.document for _, entry in removed if entry.document is not None]


def _is_unchanged(document: OpenedDocument) -> bool:
    try:
        document.identity.check()
    except DocumentError:
        return False
    return True


class StoredPages:
    """A reader of stored pages with their blocks.

    Blocks of pages that were stored without them are found in the original file, and saved in the
    store. Words and vectors don't change. ``options`` returns the options for reading a document,
    by its id.
    """

    def __init__(
        self, store: Store, sources: SourcePool, options: Callable[[str], ReadOptions]
    ) -> None:
        self._store = store
        self._sources = sources
        self._options = options

    def read(self, document: Document, numbers: Sequence[int] | None = None) -> tuple[Page, ...]:
        """Return the pages of a document with these numbers, in this order, or all pages."""
        pages = self._store.pages(document.id, numbers)
        bare = {page.number: page for page in pages if page.blocks is None}
        if not bare:
            return pages
        with_blocks = self._lay_out(document, bare)
        # A read-only index can still be read.
        with contextlib.suppress(StoreError):
            self._store.set_blocks(document.id, with_blocks.values())
        return tuple(with_blocks.get(page.number, page) for page in pages)

    def _lay_out(self, document: Document, pages: dict[int, Page]) -> dict[int, Page]:
        """Return pages with blocks, from the original if possible, or else from stored words."""
        # Running OCR again would take seconds.
        readable = [page for page in pages.values() if page.text_source == "text layer"]
        with_blocks = {page.number: page for page in self._read_again(document, readable)}
        return {number: with_blocks.get(number) or lay_out(page) for number, page in pages.items()}

    def _read_again(self, document: Document, pages: Sequence[Page]) -> list[Page]:
        """Return the stored pages with the blocks of the original, where the words are equal."""
        results: list[Page] = []
        if not pages:
            return results
        # The original may be gone, encrypted or damaged.
        with contextlib.suppress(VisarError):
            options, original = self._options(document.id), self._store.original(document.id)
            with self._sources.lease(document, options, original) as source:
                for page in pages:
                    with contextlib.suppress(DocumentError):
                        read = source.page(page.number)
                        # Blocks refer to words by index, so the words must be the same.
                        if _texts(read) == _texts(page) and read.blocks is not None:
                            results.append(replace(page, blocks=read.blocks))
        return results


def _texts(page: Page) -> list[str]:
    return [word.text for word in page.words]
