"""A visual encoder across processes: one that is killed and goes on, one that serves another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visar.cli import main
from visar.encoders.visual import VisualEncoder
from visar.index import Index

MakePdf = Callable[..., Path]
PAGES = 20
KILLED = """
import os, signal, sys
from visar.index import Index
from visar.store import writing

writing.FLUSH_SECONDS = 0.0  # every page at once, and not what ten seconds' work was

def killed(stage, done, total):
    if stage == "encoding" and done >= 16:
        os.kill(os.getpid(), signal.SIGKILL)

location, path, encoder = sys.argv[1:]
Index.open(location, device="cpu").add(path, encoder=encoder, progress=killed)
"""


def vectors(index: Index, encoder: str) -> Any:
    (document,) = index.documents()
    (reference,) = (ref for ref in document.encoders if ref.name == encoder)
    return index._store.vectors(document.id, reference)


def assert_same(one: Any, other: Any) -> None:
    assert one.vectors.shape == other.vectors.shape
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.boxes, other.boxes)
    # Pages were in other batches.
    np.testing.assert_allclose(one.vectors, other.vectors, atol=5e-4)


def test_an_addition_that_was_killed_goes_on_with_the_missing_pages(
    checkpoint: Callable[[str], Path], tmp_path: Path, make_pdf: MakePdf
) -> None:
    name = str(checkpoint("colqwen2.5"))
    path = make_pdf("long.pdf", *(f"Page {n}\n" + "word " * n for n in range(PAGES)))
    location = tmp_path / "index"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, location, path, name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    index = Index.open(location, device="cpu")
    assert index.documents() == []
    encoder = index.encoder(name)
    assert isinstance(encoder, VisualEncoder)
    encoded: list[int] = []
    encode = encoder.encode_pages

    def counted(pages: Sequence[Any], images: Sequence[Any]) -> Any:
        encoded.extend(page.number for page in pages)
        return encode(pages, images)

    encoder.encode_pages = counted  # type: ignore[method-assign]
    written = index._store.unfinished(_id_of(path), _reference(encoder))
    # The sixteenth was encoded, and killed on its way to the store.
    assert written == set(range(1, 16))
    index.add(path, encoder=name)
    assert encoded == [16, 17, 18, 19, 20]
    whole = Index.open(tmp_path / "whole", device="cpu")
    whole._encoders[name] = encoder
    whole.add(path, encoder=name)
    assert_same(vectors(index, name), vectors(whole, name))


def _id_of(path: Path) -> str:
    from visar.documents import open_document

    with open_document(path) as document:
        return document.id


def _reference(encoder: VisualEncoder) -> Any:
    from visar.store import EncoderRef

    return EncoderRef(encoder.name, encoder.version, encoder.dimension)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """``visar encoders serve FOLDER`` in a process of its own; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "visar", "encoders", "serve", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "VISAR_TOKEN": ""},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r" listens on (http://127\.0\.0\.1:\d+)$", line)
        assert found, line
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_visual_encoder_served_by_another_process_gives_the_same_vectors(
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    make_pdf: MakePdf,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = str(checkpoint("colqwen2.5"))
    path = make_pdf("three.pdf", "Revenue was 42.", "Cats sleep all day.", "A chart of growth.")
    monkeypatch.delenv("VISAR_TOKEN", raising=False)
    location = str(tmp_path / "there")

    def visar(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["visar", *arguments])
        with pytest.raises(SystemExit, match="0"):
            main()
        return capsys.readouterr().out

    with served(Path(name)) as address:
        visar("add", str(path), "--encoder", address, "--index", location)
        answer = visar("ask", "total revenue?", "--encoder", address, "--index", location)
    assert re.search(r"\d of 3 pages", answer)
    there, here = Index.open(location, device="cpu"), Index.open(tmp_path / "here", device="cpu")
    here.add(path, encoder=name)
    assert_same(vectors(there, name), vectors(here, name))
    # Under the same name and version: what was encoded there is asked about here.
    assert there.ask("total revenue?", encoder=name).search.pages_searched == 3
