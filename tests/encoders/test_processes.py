"""A visual encoder in several processes: one is killed and resumed, one serves another."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from visar.encoders.visual import VisualEncoder
from visar.index import Index
from visar.results import Document, EncoderRef

MakePdf = Callable[..., Path]
PAGES = 20
KILLED = """
import os, signal, sys
from visar.index import Index
from visar.store import sqlite_addition

sqlite_addition.FLUSH_SECONDS = 0.0  # every page at once, and not what ten seconds' work was

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
    # Pages were in different batches.
    np.testing.assert_allclose(one.vectors, other.vectors, atol=5e-4)


def test_a_killed_add_resumes_with_the_missing_pages(
    checkpoint: Callable[[str], Path], tmp_path: Path, make_pdf: MakePdf
) -> None:
    name = str(checkpoint("colqwen2.5"))
    path = make_pdf("long.pdf", *(f"Page {n}\n" + "word " * n for n in range(PAGES)))
    location = tmp_path / "index"
    process = subprocess.run(
        [sys.executable, "-c", KILLED, location, path, name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
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
    new = Document(_id_of(path), "long.pdf", PAGES, 0)
    with index._store.adding(new, EncoderRef.of(encoder)) as addition:
        assert addition.written == set(range(1, 17))
    index.add(path, encoder=name)
    assert encoded == [17, 18, 19, 20]
    whole = Index.open(tmp_path / "whole", device="cpu")
    whole._models.get(("encoder", name), lambda: encoder)
    whole.add(path, encoder=name)
    assert_same(vectors(index, name), vectors(whole, name))


def _id_of(path: Path) -> str:
    from visar.documents import open_document

    with open_document(path) as document:
        return document.id
