"""Read a document as ViSAR does, and check what must hold for any document."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutations import mutated, seeds
from visar.documents import Limits, OpenedDocument, Page, ReadOptions, open_document
from visar.errors import DocumentError
from visar.text import clean_line

LIMITS = Limits(
    max_bytes=20_000_000,
    max_pages=20,
    max_pixels=2_000_000,
    seconds_per_page=10,
    worker_memory=1_000_000_000,
    conversion_seconds=30,
)
# Nothing may take longer: the limits, with time for a busy machine.
LONGEST_SECONDS = 3 * (LIMITS.seconds_per_page + LIMITS.conversion_seconds)
# How long a process that was killed may take to be gone.
ENDING_SECONDS = 10.0
# Share of the documents that are read by OCR.
OCR_SHARE = 0.01


class Violation(Exception):
    """Something that must not happen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of reading a document."""

    refused: str | None
    """The error of the document, or of its first page that has one; None if it was read."""
    seconds: float


def write(folder: Path, suffix: str, content: bytes) -> Path:
    """Write a document to read: a file, or a folder of page images."""
    if suffix:
        path = folder / f"document{suffix}"
        path.write_bytes(content)
        return path
    path = folder / "document"
    path.mkdir()
    for name, page in {"1.png": seeds()[".png"][0], "2.png": content}.items():
        (path / name).write_bytes(page)
    return path


def read(path: Path, options: ReadOptions | None = None) -> Outcome:
    """Read all of a document. Raises whatever is not a DocumentError, and Violation."""
    options = options or ReadOptions(ocr="never", limits=LIMITS)
    begin, before = time.monotonic(), _children()
    refused: str | None = None
    try:
        with _limited(), open_document(path, options) as document:
            for error in _errors(document):
                refused = refused or error
    except DocumentError as error:
        refused = str(error)
    _check_nothing_is_left(before)
    if refused is not None and (not refused.strip() or clean_line(refused) != refused):
        raise Violation(f"an error unfit for a terminal: {refused!r}")
    return Outcome(refused, time.monotonic() - begin)


def _errors(document: OpenedDocument) -> Iterator[str]:
    if not 1 <= len(document) <= document.options.limits.max_pages:
        raise Violation(f"{len(document)} pages")
    for name, value in document.metadata.items():
        if isinstance(value, str) and clean_line(value) != value:
            raise Violation(f"{name} is {value!r}")
    for number in range(1, len(document) + 1):
        for step in (_check_page, _check_image):
            signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
            try:
                step(document, number)
            except DocumentError as error:
                yield str(error)


def _check_page(document: OpenedDocument, number: int) -> None:
    page = document.page(number)
    if not (0 < page.width < math.inf and 0 < page.height < math.inf):
        raise Violation(f"page {number} measures {page.width} × {page.height}")
    for word in page.words:
        left, top, right, bottom = word.box
        if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
            raise Violation(f"page {number}: {word} is outside of it")
        if not word.text or clean_line(word.text) != word.text:
            raise Violation(f"page {number}: {word} is unfit for a terminal")
    _check_blocks(page)


def _check_blocks(page: Page) -> None:
    blocks = page.blocks or ()
    places = Counter(word for block in blocks for word in block.words)
    if places != Counter(range(len(page.words))):
        raise Violation(f"page {page.number}: words are not in one block each")
    for block in blocks:
        if block.heading is not None and blocks[block.heading].kind != "heading":
            raise Violation(f"page {page.number}: {block.heading} is no heading")
        cells = [word for cell in block.cells for word in cell.words]
        if block.cells and sorted(cells) != sorted(block.words):
            raise Violation(f"page {page.number}: the cells of a table don't hold its words")
        if not 0 < block.size < math.inf:
            raise Violation(f"page {page.number}: a block with the font size {block.size}")


def _check_image(document: OpenedDocument, number: int) -> None:
    image = document.image(number)
    most = document.options.limits.max_pixels + image.width + image.height
    if image.mode != "RGB" or image.width * image.height > most:
        raise Violation(f"page {number}: an image in {image.mode} with {image.size} pixels")


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Violation(f"took longer than {LONGEST_SECONDS:g} seconds")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def adopt_orphans() -> None:
    """Become the parent of all processes left behind, so that none goes unseen."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def _children() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = path.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(path.parent.name))
    return found


def _check_nothing_is_left(before: set[int]) -> None:
    deadline = time.monotonic() + ENDING_SECONDS
    while left := _children() - before:
        for child in left:
            # Those that were adopted are nobody else's to wait for.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        if time.monotonic() > deadline:
            raise Violation(f"processes are left: {left}")
        time.sleep(0.01)


def attempt(path: Path, kept: Path, options: ReadOptions | None = None) -> Outcome | None:
    """Read a document; None if it failed, and then a copy is kept, with what happened."""
    try:
        return read(path, options)
    except Exception:
        kept.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, kept)
        kept.with_name(f"{kept.name}.txt").write_text(traceback.format_exc())
        print(f"{kept}\n{traceback.format_exc()}", flush=True)
        return None


class Case:
    """A document of a run, made from nothing but the run's seed and its number."""

    def __init__(self, seed: int, number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        self.suffix, self._content = mutated(rng)
        self._name = f"{seed}-{number}{self.suffix}"
        self._options = ReadOptions(
            ocr="always" if rng.random() < OCR_SHARE else "never",
            ocr_engine="tesseract" if shutil.which("tesseract") else "rapidocr",
            limits=LIMITS,
        )

    def read(self, save: Path) -> Outcome | None:
        """Read it; None if it failed, and then it is saved."""
        with tempfile.TemporaryDirectory(prefix="visar-fuzz-") as folder:
            path = write(Path(folder), self.suffix, self._content)
            return attempt(path, save / self._name, self._options)
