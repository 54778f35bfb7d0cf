"""Test adding documents: reading, encoding and committing."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pikepdf
import pytest

from tests.conftest import write_slow_pdf
from tests.documents.conftest import text_at, text_image, write_pdf
from tests.documents.test_office import fake_soffice, write_docx
from tests.ingest.conftest import FirstWord, MeanColor
from visar.documents import Limits, ReadOptions, open_document
from visar.documents.page import Page
from visar.encoders.encoder import Encoder, PageEmbedding
from visar.errors import DocumentError, InvalidVectors, PageError, StoreError
from visar.ingest.pipeline import ReadPage, Stage, add_document, encode_pages, read_pages
from visar.results import Document, EncoderRef
from visar.store import Store

MakePdf = Callable[..., Path]
MakeScan = Callable[..., Path]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands of all started processes."""
    commands: list[Any] = []
    real = subprocess.Popen.__init__

    def start(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        commands.append(args)
        real(self, args, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    return commands


def test_document_is_read_encoded_and_committed(
    store: Store, embedded: Encoder, report: Path, tmp_path: Path
) -> None:
    path = tmp_path / "part.pdf"
    with pikepdf.open(report) as pdf:
        # One of these pages is scanned: the 11th of the report.
        del pdf.pages[12:]
        del pdf.pages[:9]
        pdf.save(path)
    seen: list[tuple[Stage, int, int]] = []
    stored = add_document(store, path, embedded, progress=lambda *step: seen.append(step))
    with open_document(path, ReadOptions(ocr_threads=1)) as document:
        pages = list(document.pages())
    assert stored.id == document.id
    assert stored.size == path.stat().st_size
    kept = store.pages(stored.id)
    assert [[word.text for word in page.words] for page in kept] == [
        [word.text for word in page.words] for page in pages
    ]
    assert [page.text_source for page in kept] == [page.text_source for page in pages]
    vectors = store.vectors(stored.id, EncoderRef.of(embedded))
    expected = [embedding.vectors for _, embedding in encode_pages(embedded, map(ReadPage, pages))]
    assert np.array_equal(vectors.vectors, np.concatenate(expected))
    reading = [step for step in seen if step[0] != "encoding"]
    assert reading == [("reading", 1, 3), ("ocr", 2, 3), ("reading", 3, 3)]
    assert seen[-1] == ("encoding", 3, 3)


def test_stored_document_is_neither_opened_nor_converted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    (tmp_path / "bin").mkdir()
    pdf = write_pdf(tmp_path / "bin" / "made.pdf", text_at(50, 500, "converted"))
    fake_soffice(
        tmp_path / "bin",
        "folder = pathlib.Path(sys.argv[sys.argv.index('--outdir') + 1])\n"
        f"shutil.copy({str(pdf)!r}, folder / 'document.pdf')",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    path = write_docx(tmp_path / "letter.docx")
    first = add_document(store, path, FirstWord())
    assert started
    started.clear()
    # Without LibreOffice in the path, nothing can be converted.
    monkeypatch.setenv("PATH", str(tmp_path))
    assert add_document(store, path, FirstWord()) == first
    assert started == []


def test_stored_words_are_not_read_again(
    store: Store, make_pdf: MakePdf, started: list[Any], embedded: Encoder
) -> None:
    path = make_pdf("a.pdf", "One two three.", "Four five.")
    add_document(store, path, FirstWord())
    started.clear()
    seen: list[Stage] = []
    stored = add_document(store, path, embedded, progress=lambda stage, *_: seen.append(stage))
    assert [known.name for known in stored.encoders] == ["embedded", "first-word"]
    assert seen == ["encoding", "encoding"]
    assert started == []


def test_image_encoder_gets_images(store: Store, tmp_path: Path) -> None:
    path = write_pdf(
        tmp_path / "a.pdf", *(text_at(50, 500, f"Page {number}") for number in range(20))
    )
    stored = add_document(store, path, MeanColor())
    assert len(store.vectors(stored.id, EncoderRef.of(MeanColor())).vectors) == 20
    assert store.pages(stored.id, [20])[0].words[1].text == "19"
    # The words are stored by now, but images come from the file.
    other = MeanColor()
    other.name = "another"
    add_document(store, path, other)
    before = store.vectors(stored.id, EncoderRef.of(MeanColor())).vectors
    assert np.array_equal(before, store.vectors(stored.id, EncoderRef.of(other)).vectors)


def test_several_processes_read_a_long_document(
    store: Store, tmp_path: Path, started: list[Any]
) -> None:
    path = write_pdf(
        tmp_path / "a.pdf", *(text_at(50, 500, f"Page {number}") for number in range(1, 71))
    )
    stored = add_document(store, path, FirstWord(), workers=4)
    assert [page.words[1].text for page in store.pages(stored.id)] == [
        str(number) for number in range(1, 71)
    ]
    assert len(started) == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_scanned_pages_are_in_order(store: Store, make_scan: MakeScan, workers: int) -> None:
    words = ["ALPHA", "BRAVO", "CHARLIE", "DELTA"]
    stored = add_document(store, make_scan("deck", *words), FirstWord(), workers=workers)
    assert [page.words[0].text for page in store.pages(stored.id)] == words
    assert {page.text_source for page in store.pages(stored.id)} == {"ocr"}


def test_interrupted_addition_is_resumed(store: Store, make_pdf: MakePdf) -> None:
    path = make_pdf("long.pdf", *(f"Page {n} speaks of subject {n}." for n in range(60)))

    def stop(stage: Stage, done: int, _total: int) -> None:
        if stage == "encoding" and done == 24:
            raise KeyboardInterrupt

    with open_document(path) as document:
        identity = document.id
    seen: list[tuple[Stage, int]] = []
    for encoder in (FirstWord(), MeanColor()):
        with pytest.raises(KeyboardInterrupt):
            add_document(store, path, encoder, progress=stop)
        new = Document(identity, "long.pdf", 60, 0)
        with store.adding(new, EncoderRef.of(encoder)) as addition:
            assert len(addition.written) == 24
        seen.clear()
        stored = add_document(
            store, path, encoder, progress=lambda stage, done, _: seen.append((stage, done))
        )
        assert [done for stage, done in seen if stage == "encoding"] == list(range(25, 61))
        assert len(store.vectors(stored.id, EncoderRef.of(encoder)).vectors) == 60
    # The second encoder uses the stored words.
    assert not [stage for stage, _ in seen if stage == "reading"]
    assert not [problem for problem in store.verify() if problem.kind == "damage"]


def test_unreadable_page_is_reported(store: Store, make_scan: MakeScan) -> None:
    folder = make_scan("deck", "ALPHA", "BRAVO", "CHARLIE")
    content = (folder / "2.png").read_bytes()
    (folder / "2.png").write_bytes(content[: len(content) // 2])
    added = add_document(store, folder, FirstWord())
    (page,) = added.failed_pages()
    assert (page.number, page.encoder) == (2, FirstWord.name)
    assert "damaged" in page.reason
    vectors = store.vectors(added.id, EncoderRef.of(FirstWord()))
    assert [len(vectors.page(number).vectors) for number in (1, 2, 3)] == [1, 0, 1]
    # An encoder of images can't use the page either.
    added = add_document(store, folder, MeanColor())
    assert [(page.number, page.encoder) for page in added.failed_pages(MeanColor.name)] == [
        (2, MeanColor.name)
    ]
    assert not [problem for problem in store.verify() if problem.kind == "damage"]


def test_document_without_a_readable_page(store: Store, make_scan: MakeScan) -> None:
    folder = make_scan("deck", "ALPHA", "BRAVO")
    for path in folder.iterdir():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    for _ in range(2):  # the first attempt must not leave pages for the second
        with pytest.raises(PageError) as raised:
            add_document(store, folder, FirstWord())
        assert raised.value.page == 1
    with pytest.raises(DocumentError):
        add_document(store, folder / "missing.pdf", FirstWord())
    assert store.documents() == []
    assert store.verify() == []


def test_document_timeout(store: Store, tmp_path: Path) -> None:
    path = write_slow_pdf(tmp_path / "slow.pdf", 60)
    options = ReadOptions(limits=Limits(seconds_per_document=0.5))
    seen: list[int] = []
    with pytest.raises(DocumentError) as raised:
        add_document(store, path, FirstWord(), options, lambda _, done, __: seen.append(done))
    assert raised.value.code == "document"
    assert "0.5 seconds (Limits.seconds_per_document" in str(raised.value)
    assert max(seen, default=0) < 60
    assert not store.documents()


def test_reading_stops_when_the_generator_is_closed(make_scan: MakeScan) -> None:
    folder = make_scan("deck", *("WORD" for _ in range(6)))
    for number in range(1, 7):
        text_image(f"WORD {number}").save(folder / f"{number}.png")
    with open_document(folder) as document:
        pages = read_pages(document, range(1, 7))
        assert next(pages).page.number == 1
        pages.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("visar-read")]


def test_threads_add_the_same_document(store: Store, embedded: Encoder, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", *(f"Page {n} speaks of subject {n}." for n in range(30)))
    other = make_pdf("b.pdf", "Something else.")
    with ThreadPoolExecutor(4) as pool:
        paths = [path, path, other, path]
        added = list(pool.map(lambda one: add_document(store, one, embedded), paths))
    assert [document.pages for document in added] == [30, 30, 1, 30]
    assert len(store.documents()) == 2
    assert not [problem for problem in store.verify() if problem.kind == "damage"]


def test_metadata_of_the_file_and_of_the_user(store: Store, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", "one page")
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        pdf.docinfo["/Title"] = "Title of the file"
        pdf.docinfo["/CreationDate"] = "D:20190101"
        pdf.save(path)
    first = add_document(store, path, FirstWord(), metadata={"year": 2021}, collection="mine")
    assert dict(first.metadata)["title"] == "Title of the file"
    assert (first.metadata["year"], first.collections) == (2021, ("mine",))
    # A second call adds metadata, without reading the file.
    again = add_document(store, path, FirstWord(), metadata={"kind": "note"}, collection="other")
    assert dict(again.metadata) == {**first.metadata, "kind": "note"}
    assert again.collections == ("mine", "other")
    assert store.documents() == [again]
    with pytest.raises(StoreError, match="metadata"):
        add_document(store, path, FirstWord(), metadata={"pages": [1, 2]})


def with_title(path: Path, title: str) -> Path:
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        pdf.docinfo["/Title"] = title
        pdf.save(path)
    return path


def test_changed_file_keeps_metadata_of_the_user(store: Store, make_pdf: MakePdf) -> None:
    old = add_document(
        store,
        with_title(make_pdf("a.pdf", "The first version."), "First"),
        FirstWord(),
        metadata={"kind": "report", "state": "draft"},
        collection="mine",
    )
    path = with_title(make_pdf("a.pdf", "The second version."), "Second")
    new = add_document(store, path, FirstWord(), metadata={"state": "final"})
    assert new.id != old.id
    assert store.documents() == [new]
    assert new.collections == ("mine",)
    expected = {"title": "Second", "kind": "report", "state": "final"}
    assert {name: new.metadata[name] for name in expected} == expected


class Long(FirstWord):
    """An encoder whose vectors have an invalid length from the third page on."""

    name = "long"

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        embeddings = super().encode_pages(pages, images)
        return [
            replace(one, vectors=one.vectors * np.float16(3 if page.number > 2 else 1))
            for page, one in zip(pages, embeddings, strict=True)
        ]


def test_vectors_of_an_invalid_length_are_not_stored(store: Store, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", "One.", "Two.", "Three.", "Four.")
    with pytest.raises(InvalidVectors, match=r"page 3 of a\.pdf"):
        add_document(store, path, Long())
    assert store.documents() == []
