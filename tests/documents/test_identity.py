"""Test identities of documents, and copies in other processes."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from PIL import Image

from tests.documents.conftest import lines_of, text_at, text_image, write_pdf
from tests.documents.test_office import fake_soffice, write_docx
from visar.documents import Limits, OpenedDocument, Page, ReadOptions, identify, open_document
from visar.errors import DocumentError


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def test_identify_hashes_a_file_without_opening_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This must not start a process such as LibreOffice."""
    pdf = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    docx = write_docx(tmp_path / "b.docx")
    Image.new("L", (9, 9)).save(tmp_path / "c.png")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process started"))
    for path, kind in ((pdf, "pdf"), (docx, "office"), (tmp_path / "c.png", "image")):
        known = identify(path)
        content = path.read_bytes()
        assert (known.id, known.kind) == (hashlib.sha256(content).hexdigest(), kind)
        assert (known.name, known.size) == (path.name, len(content))
        assert [file.path for file in known.files] == [path]


def test_identify_hashes_names_and_contents_of_a_folder(tmp_path: Path) -> None:
    for name, grey in (("p10.png", 9), ("p2.png", 0)):
        Image.new("L", (9, 9), grey).save(tmp_path / name)
    known = identify(tmp_path)
    assert (known.kind, known.name) == ("images", tmp_path.name)
    pages = [tmp_path / "p2.png", tmp_path / "p10.png"]
    assert [file.path for file in known.files] == pages
    parts = [sha256(page.name.encode()) + sha256(page.read_bytes()) for page in pages]
    assert known.id == hashlib.sha256(b"".join(parts)).hexdigest()
    assert known.size == sum(page.stat().st_size for page in pages)


def test_name_of_the_current_and_the_parent_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "1.png")
    for folder, path in ((tmp_path, "."), (tmp_path / ".below", "..")):
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        assert identify(path).name == tmp_path.name


def test_current_folder_can_change_while_a_document_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    monkeypatch.chdir(tmp_path)
    with open_document("a.pdf") as document:
        monkeypatch.chdir("/")
        with copy.copy(document) as another:
            assert lines_of(another.page(1)) == lines_of(document.page(1)) == ["a"]


def test_identity_saves_hashing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    known = identify(path)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    with open_document(path, identity=known) as document:
        assert (document.id, document.identity, document.kind) == (known.id, known, "pdf")
        assert lines_of(document.page(1)) == ["a"]
    path.write_bytes(path.read_bytes() + b"\n%more")
    with pytest.raises(DocumentError, match=r"^a.pdf "):
        open_document(path, identity=known)


def test_byte_limit_is_checked_before_reading(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    with pytest.raises(DocumentError, match=r"^a.pdf .*\b10\b"):
        identify(path, Limits(max_bytes=10))


@pytest.mark.parametrize(
    "name",
    ["x" * 300 + ".pdf", "x/" * 3000 + "a.pdf", "nu\0ll.pdf", "gone.pdf"],
    ids=["long name", "long path", "null", "missing"],
)
def test_invalid_file_names(tmp_path: Path, name: str) -> None:
    for use in (identify, open_document):
        with pytest.raises(DocumentError):
            use(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't allow such names")
def test_names_with_invalid_utf_8_or_control_characters(tmp_path: Path) -> None:
    original = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    for raw, shown in ((b"caf\xe9.pdf", "caf .pdf"), (b"\x1b[2Jred\n.pdf", "[2Jred .pdf")):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + raw))
        shutil.copy(original, path)
        with open_document(path) as document:
            assert document.name == shown
            assert lines_of(document.page(1)) == ["a"]
            path.unlink()
            with pytest.raises(DocumentError) as error:
                document.page(1)
            str(error.value).encode()
            assert "\x1b" not in str(error.value)


@pytest.fixture
def many_pages(tmp_path: Path) -> Path:
    return write_pdf(tmp_path / "a.pdf", *[text_at(50, 500, f"page{n}") for n in range(1, 7)])


def read_in_another_process(document: OpenedDocument, number: int) -> tuple[int, list[str]]:
    with document:
        return os.getpid(), lines_of(document.page(number))


def test_document_can_be_sent_to_other_processes(many_pages: Path) -> None:
    with (
        open_document(many_pages) as document,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
    ):
        numbers = range(1, 7)
        results = list(pool.map(read_in_another_process, [document] * 6, numbers))
        assert [lines for _, lines in results] == [[f"page{n}"] for n in numbers]
        assert os.getpid() not in {pid for pid, _ in results}
        assert lines_of(document.page(1)) == ["page1"]


def test_copy_does_not_convert_or_hash_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    pdf = write_pdf(tmp_path / "bin" / "made.pdf", text_at(50, 500, "converted"))
    fake_soffice(
        tmp_path / "bin",
        f"""
out = pathlib.Path(sys.argv[sys.argv.index("--outdir") + 1])
shutil.copy({str(pdf)!r}, out / "document.pdf")""",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    options = ReadOptions(ocr="never", limits=Limits(max_pages=7))
    with open_document(write_docx(tmp_path / "a.docx"), options) as document:
        monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
        # Without LibreOffice in the path, nothing can be converted.
        monkeypatch.setenv("PATH", str(tmp_path))
        with pickle.loads(pickle.dumps(document)) as other:  # noqa: S301 - our own data
            assert (other.id, other.kind, len(other)) == (document.id, "office", 1)
            assert other.options == options
            assert lines_of(other.page(1)) == ["converted"]
        assert lines_of(document.page(1)) == ["converted"]


def test_pages_are_read_lazily_and_in_order(
    many_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = OpenedDocument.page

    def remember(self: OpenedDocument, number: int) -> Page:
        read.append(number)
        return real(self, number)

    monkeypatch.setattr(OpenedDocument, "page", remember)
    with open_document(many_pages) as document:
        pages = document.pages([3, 1, 2, 5])
        assert lines_of(next(pages)) == ["page3"]
        assert set(read) <= {3, 1}
        assert [lines_of(page) for page in pages] == [["page1"], ["page2"], ["page5"]]
    assert read == [3, 1, 2, 5]


def test_pages_raise_at_the_first_failing_page(many_pages: Path) -> None:
    with open_document(many_pages) as document:
        pages = document.pages()
        next(pages)
        many_pages.unlink()
        with pytest.raises(DocumentError, match=many_pages.name):
            list(pages)


def test_close_interrupts_other_threads(tmp_path: Path) -> None:
    from tests.documents.test_hostile import exponential_pdf

    document = open_document(exponential_pdf(tmp_path / "slow.pdf"))
    errors: list[DocumentError] = []
    started = threading.Event()

    def read() -> None:
        started.set()
        try:
            document.page(1)
        except DocumentError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    started.wait()
    document.close()
    thread.join()
    assert len(errors) == 1
    with pytest.raises(DocumentError, match=r"^slow.pdf "):
        document.page(2)


def test_ocr_cache_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from visar.documents import document as module

    monkeypatch.setattr(module, "_CACHE_SIZE", 2)
    for number in range(4):
        text_image(f"number {number}", size=(400, 200)).save(tmp_path / f"{number}.png")
    with open_document(tmp_path) as document:
        assert [lines_of(page) for page in document.pages()] == [[f"number {n}"] for n in range(4)]
        assert len(document._ocr_pages) == 2
        assert len(document._picture_words) == 2
        assert [document.needs_ocr(number) for number in (1, 2, 3, 4)] == [True, True, False, False]


def test_password_is_not_in_repr(tmp_path: Path) -> None:
    options = ReadOptions(password="open sesame")  # noqa: S106
    assert "sesame" not in repr(options)
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    with open_document(path, options) as document:
        assert "sesame" not in repr(document)


def test_temporary_folders_are_deleted_after_a_failed_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    fake_soffice(tmp_path / "bin", "sys.exit('no')")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(DocumentError):
        open_document(write_docx(tmp_path / "a.docx"))
    assert list((tmp_path / "tmp").iterdir()) == []
