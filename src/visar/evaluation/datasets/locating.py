"""Where the documents of a data set are on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from visar.evaluation.datasets.fields import leaves_folder

_PAGE_IMAGE = re.compile(r"(?P<document>.+)_(?P<page>\d+)\.(?:png|jpe?g|webp)", re.I | re.A)


def within(folder: Path, document: str) -> Path | None:
    """A file or folder by its name below a folder; None if there is none."""
    return None if leaves_folder(document) else existing(folder / document)


def existing(path: Path) -> Path | None:
    """A path, or None if nothing is there."""
    try:
        return path if path.exists() else None
    except (OSError, ValueError):
        # A name that this system's files cannot have.
        return None


class ScatteredDocuments:
    """Documents anywhere below a folder: ``NAME.pdf``, or page images ``NAME_0.png`` and so on.

    Which folders they are in says nothing. The folder is looked through once, when the first
    document is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked_through = False
        self._pdfs: dict[str, Path] = {}
        self._images: defaultdict[str, dict[int, Path]] = defaultdict(dict)
        self._gathered: dict[str, Path] = {}

    def pdf(self, name: str) -> Path | None:
        """The PDF of a document; None if there is none."""
        self._look_through()
        return self._pdfs.get(name)

    def images(self, name: str) -> Mapping[int, Path]:
        """The page images of a document by the numbers in their names, of which 0 is the first."""
        self._look_through()
        return self._images.get(name, {})

    def folder_of_images(self, name: str) -> Path:
        """A folder with a document's page images, which begin with 0, and nothing else.

        Where they share one with other files, that is a folder of links to them, which lasts as
        long as this object.
        """
        from visar.documents.finding import visible_files

        images = self.images(name)
        folder = images[0].parent
        if set(visible_files(folder)) == set(images.values()):
            return folder
        if name not in self._gathered:
            self._gathered[name] = self._gather(name, images)
        return self._gathered[name]

    def _gather(self, name: str, images: Mapping[int, Path]) -> Path:
        parent = Path(tempfile.mkdtemp(prefix="visar-pages-"))
        weakref.finalize(self, shutil.rmtree, parent, ignore_errors=True)
        # Named so because a document is shown by the name of its folder.
        folder = parent / name
        folder.mkdir()
        for path in images.values():
            link = folder / path.name
            try:
                link.symlink_to(path.absolute())
            except OSError:
                # Windows lets only some users make links.
                shutil.copyfile(path, link)
        return folder

    def _look_through(self) -> None:
        if self._looked_through:
            return
        for path in _files_below(self._folder):
            if path.suffix.lower() == ".pdf":
                self._pdfs.setdefault(path.stem, path)
            elif match := _PAGE_IMAGE.fullmatch(path.name):
                self._images[match["document"]].setdefault(int(match["page"]), path)
        self._looked_through = True


def _files_below(folder: Path) -> Iterator[Path]:
    """All files that are not hidden, in the order of their names; links to folders are followed."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        with contextlib.suppress(OSError):
            state = Path(parent).stat()
            if (state.st_dev, state.st_ino) in seen:
                # A link to a folder that this walk has been in.
                folders.clear()
                continue
            seen.add((state.st_dev, state.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))
