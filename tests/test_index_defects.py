"""Edge cases of an index: threads, missing vectors, duplicates and encrypted documents."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pikepdf
import pytest

import visar
from visar.core import baselines
from visar.documents import Limits, ReadOptions
from visar.errors import EncryptedDocument, InvalidOption, NotInIndex, StoreError
from visar.explain.pictures import pages_with_heat
from visar.index import Index
from visar.retrieval.methods import ScoredPages

MakePdf = Callable[..., Path]
CATS = "The cat sleeps on the sofa all day.\nIts fur is grey and very soft."
TAXES = "Income tax is due in April.\nThe rate is nineteen percent of profits."
BOATS = "Sailing boats need wind to leave the harbour.\nA storm damaged the mast."


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Let threads take turns as often as they can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_threads_get_the_documents_they_asked_for(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    ids = [index.add(make_pdf(f"{n}.pdf", text)).id for n, text in enumerate((CATS, TAXES, BOATS))]
    start = threading.Barrier(6)

    def ask(worker: int) -> set[tuple[str, str]]:
        document = ids[worker % 3]
        start.wait()
        return {
            (document, hit.document)
            for _ in range(15)
            for hit in index.search("Where does it sleep?", documents=[document]).pages
        }

    with ThreadPoolExecutor(6) as pool:
        found = set().union(*pool.map(ask, range(6)))
    assert found == {(document, document) for document in ids}


def test_a_document_without_vectors_from_the_encoder_is_skipped(
    tmp_path: Path, make_pdf: MakePdf
) -> None:
    index = Index.open(tmp_path / "index")
    taxes = index.add(make_pdf("taxes.pdf", TAXES))
    cats = index.add(make_pdf("cats.pdf", CATS), encoder="embedded+pool2")
    found = index.search("When is income tax due?")
    assert {hit.document for hit in found.pages} == {taxes.id}
    assert [document.id for document in found.left_out] == [cats.id]
    with pytest.raises(NotInIndex, match=r"cats\.pdf.*--encoder embedded"):
        index.search("When is income tax due?", documents=["cats.pdf"])


def test_a_document_named_twice_is_searched_once(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    path = make_pdf("taxes.pdf", BOATS, TAXES)
    added = index.add(path)
    copy = tmp_path / "copy.pdf"
    copy.write_bytes(path.read_bytes())
    again = index.add_all([path, copy]).added
    found = index.search(
        "When is income tax due?",
        documents=[added.id, added.id[:10], *(document.id for document in again)],
    )
    assert found.pages_searched == 2
    assert len({(hit.document, hit.page) for hit in found.pages}) == len(found.pages)


def test_pages_of_an_encrypted_document_can_be_shown_with_its_password(
    tmp_path: Path, make_pdf: MakePdf
) -> None:
    path = tmp_path / "secret.pdf"
    with pikepdf.open(make_pdf("plain.pdf", TAXES)) as pdf:
        pdf.save(path, encryption=pikepdf.Encryption("open-sesame", "open-sesame"))
    options = ReadOptions(password="open-sesame")  # noqa: S106 - for a test file
    with Index.open(tmp_path / "index") as index:
        found = index.add(path, options=options)
        assert index.image(found.id, 1).width > 100
    with Index.open(tmp_path / "index", options=options) as index:
        assert index.search("tax").pages[0].image(dpi=36).width == 200
    with (
        Index.open(tmp_path / "index") as index,
        pytest.raises(EncryptedDocument),
    ):
        index.image(found.id, 1)


def test_passwords_of_removed_and_replaced_documents_are_dropped(
    tmp_path: Path, make_pdf: MakePdf
) -> None:
    def encrypted(text: str) -> Path:
        with pikepdf.open(make_pdf("plain.pdf", text)) as pdf:
            pdf.save(path, encryption=pikepdf.Encryption("open-sesame", "open-sesame"))
        return path

    path = tmp_path / "secret.pdf"
    options = ReadOptions(password="open-sesame")  # noqa: S106 - for a test file
    with Index.open(tmp_path / "index") as index:
        # The password is kept while the document exists, even after other additions.
        first = index.add(encrypted(TAXES), options=options)
        index.add(make_pdf("cats.pdf", CATS))
        assert index.image(first.id, 1, dpi=36).width == 200
        # The same file with other content replaces it. Then it is removed.
        second = index.add(encrypted(BOATS), options=options)
        assert index.image(second.id, 1, dpi=36).width == 200
        index.remove(second.id)
        assert "open-sesame" not in strings_in(index)
    with Index.open(tmp_path / "index") as index:
        third = index.add(encrypted(CATS), options=options)
        assert "open-sesame" in strings_in(index)
        # Another process removes it.
        with Index.open(tmp_path / "index") as other:
            other.remove(third.id)
        index.add(make_pdf("boats.pdf", BOATS))
        assert "open-sesame" not in strings_in(index)


def strings_in(index: Index) -> str:
    """Return all strings that are reachable from the options and sources of an index."""
    visited: dict[int, object] = {}
    queue: list[object] = [index._document_options, index._sources]
    while queue:
        one = queue.pop()
        if id(one) not in visited and not isinstance(one, type | ModuleType | FunctionType):
            visited[id(one)] = one
            queue.extend(gc.get_referents(one))
    return " ".join(one for one in visited.values() if isinstance(one, str))


def test_a_document_added_with_higher_limits_can_be_shown(
    tmp_path: Path, make_pdf: MakePdf
) -> None:
    path = make_pdf("long.pdf", *[TAXES] * 4)
    with Index.open(tmp_path / "index") as index:
        added = index.add(path)
    strict = ReadOptions(limits=Limits(max_pages=2, max_bytes=100))
    with Index.open(tmp_path / "index", options=strict) as index:
        assert index.image(added.id, 4).width > 100


def test_a_document_can_be_shown_after_its_file_is_deleted(
    tmp_path: Path, make_pdf: MakePdf
) -> None:
    path = make_pdf("taxes.pdf", TAXES)
    with Index.open(tmp_path / "index") as index:
        hit = index.search("tax", documents=[index.add(path).id]).pages[0]
        path.unlink()
        assert hit.image(dpi=36).width == 200
        assert [word.text for word in hit.words][:2] == ["Income", "tax"]


def test_heat_opens_each_file_once(
    tmp_path: Path, make_pdf: MakePdf, monkeypatch: pytest.MonkeyPatch
) -> None:
    from visar.ingest import sources

    calls = []
    open_source = sources.open_source

    def record(*arguments: object) -> object:
        calls.append(arguments)
        return open_source(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sources, "open_source", record)
    with Index.open(tmp_path / "index") as index:
        index.add(make_pdf("taxes.pdf", TAXES, CATS, BOATS))
        found = index.search("tax", method="top-k", k=3)
        assert len(list(pages_with_heat(index, found, dpi=36))) == 3
    assert len(calls) == 1


def test_a_page_with_invalid_vectors_is_named(tmp_path: Path, make_pdf: MakePdf) -> None:
    """An index that was made before vectors were checked."""
    with Index.open(tmp_path / "index") as index:
        added = index.add(make_pdf("notes.pdf", "Boats need wind.", "Jazz quiz."))
        (path,) = (tmp_path / "index" / "vectors").glob("*.vectors.npy")
        vectors = np.load(path, mmap_mode="r+")
        vectors[-1, 0] = np.nan
        vectors.flush()
        with pytest.raises(StoreError, match=rf"{added.name} .*page 2\b"):
            index.search("jazz")
        (problem,) = index.verify()
        assert "page 2" in problem.what


def test_an_unknown_method_is_refused(library: Index) -> None:
    with pytest.raises(InvalidOption, match=r"vizar.*visar"):
        library.search("warranty", method="vizar")


def test_a_function_can_be_the_method(library: Index) -> None:
    def half_of_the_best(pages: ScoredPages) -> int:
        late = pages.late_interaction
        return int((late >= 0.5 * late.max()).sum())

    found = library.search("How long is the warranty?", method=half_of_the_best)
    assert found.trace is not None
    late = found.trace.relevance.late_interaction
    expected = baselines.top_k(late, int((late >= 0.5 * late.max()).sum()))
    assert found.method == "half_of_the_best"
    assert [hit.page for hit in found.pages] == [page + 1 for page in expected.pages]


def test_score_cluster_is_bounded() -> None:
    import numpy as np

    from visar.retrieval.methods import get_method

    pages = visar.prepare(np.tile(np.eye(1, 4, dtype=np.float32), (1001, 1)), range(1002))
    with pytest.raises(InvalidOption, match="1001"):
        get_method("score-cluster").choose(ScoredPages(np.eye(1, 4, dtype=np.float32), pages))


def test_an_answer_can_be_streamed(library: Index) -> None:
    stream = library.stream("How long is the warranty on the Aurora 4 lantern?")
    assert stream.search.pages[0].page == 10
    pieces = list(stream)
    assert "".join(pieces) == stream.answer.text
    assert stream.answer.pages == stream.search.pages


def test_all_public_names_can_be_imported() -> None:
    for name in visar.__all__:
        assert getattr(visar, name) is not None
    with pytest.raises(AttributeError, match="Indices"):
        visar.Indices  # noqa: B018
