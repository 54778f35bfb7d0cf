"""Which files of a folder are documents, and in which order their pages come."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from visar.documents.kinds import DOCUMENT_SUFFIXES, is_image
from visar.documents.unchanged import refusals
from visar.errors import DocumentError

_HEAD = 1024


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sort names as people count: page 2 before page 10.

    >>> sorted(["p10.png", "p2.png", "P1.png"], key=natural_key)
    ['P1.png', 'p2.png', 'p10.png']
    """
    parts = re.split(r"(\d+)", name.casefold())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def visible_files(folder: Path) -> list[Path]:
    """The files and folders directly in a folder that are not hidden, in natural order."""
    with refusals(str(folder)):
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "~$"))]
    return sorted(entries, key=lambda entry: (natural_key(entry.name), entry.name))


def page_images(folder: Path) -> list[Path]:
    """The pages of a folder that is one document: it holds images and nothing else. Else none."""
    entries = visible_files(folder)
    if all(entry.is_file() and is_image(head_of(entry)) for entry in entries):
        return entries
    return []


def head_of(path: Path) -> bytes:
    """The first bytes of a file."""
    with refusals(path.name), path.open("rb") as stream:
        return stream.read(_HEAD)


def find_documents(paths: Iterable[Path | str]) -> list[Path]:
    """Expand folders to the documents in them, at any depth, in natural order.

    - A file that is named is taken as it is, whatever its suffix.
    - A folder that holds page images and nothing else is one document.
    - In any other folder, files with the suffix of a known kind are documents, each image one of
      its own; other files and hidden ones are passed over.

    Nothing is listed twice. A path that does not exist, and a folder without a document,
    are refused.
    """
    found: dict[Path, None] = {}
    for given in map(Path, paths):
        if not given.exists():
            raise DocumentError(str(given), "does not exist")
        documents = _within(given) if given.is_dir() else [given]
        if not documents:
            raise DocumentError(str(given), "is a folder without documents")
        found.update(dict.fromkeys(documents))
    return list(found)


def _within(folder: Path) -> list[Path]:
    if page_images(folder):
        return [folder]
    documents: list[Path] = []
    for entry in visible_files(folder):
        if entry.is_dir() and not entry.is_symlink():
            documents.extend(_within(entry))
        elif entry.is_file() and entry.suffix.lower() in DOCUMENT_SUFFIXES:
            documents.append(entry)
    return documents
