"""What both stores refuse, in the same words, and how both find a document."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from visar.documents.page import Page
from visar.errors import InvalidVectors, NotInIndex, StoreError
from visar.results import Document, EncoderRef
from visar.text import counted

if TYPE_CHECKING:
    from visar.encoders.protocol import PageEmbedding

# Documents that an error lists, and the characters of an id that mostly tell them apart.
_LISTED = 5
_SHORT_ID = 8


def check_new_document(document: Document, known: Document | None = None) -> None:
    """Refuse a document without an id or pages, or with another length than the known one."""
    if document.pages < 1 or not document.id:
        raise StoreError(f"{document.name} needs an id and at least one page to be added")
    check_metadata(document.metadata)
    if known is not None and known.pages != document.pages:
        raise StoreError(
            f"{document.name} has {document.pages} pages now and {known.pages} in the index, "
            f"under the same id {known.id}"
        )


def check_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as a dict; refuse what is no text, number, truth value or null."""
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(  # type: ignore[redundant-expr]
            value, str | int | float | bool | None
        ):
            raise StoreError(
                f"metadata are texts, numbers, truth values or null, not {name!r}: {value!r}"
            )
    return dict(metadata)


def check_dimension(encoder: EncoderRef, stored: Iterable[EncoderRef]) -> None:
    """Refuse an encoder of which vectors of the same version and another dimension are there."""
    for other in stored:
        same = (other.name, other.version) == (encoder.name, encoder.version)
        if same and other.dimension != encoder.dimension:
            raise StoreError(
                f"the index has vectors of {other}: those of {encoder} do not go with them. An "
                "encoder with other vectors needs another version"
            )


def matching(
    documents: Iterable[Document], where: Mapping[str, Any] | None, collection: str | None
) -> list[Document]:
    """The documents with these metadata, of this collection."""
    wanted = (where or {}).items()
    return [
        document
        for document in documents
        if all(name in document.metadata and document.metadata[name] == v for name, v in wanted)
        and (collection is None or collection in document.collections)
    ]


def find_document(documents: Mapping[str, Document], document: str, location: str) -> Document:
    """Return the document with this id or name, or whose id alone begins like this."""
    if document in documents:
        return documents[document]
    named = [known for known in documents.values() if known.name == document]
    begun = [known for known in documents.values() if document and known.id.startswith(document)]
    matches = named or begun
    if len(matches) == 1:
        return matches[0]
    if matches:
        property_ = "are named" if named else "have an id that begins with"
        ids = ", ".join(_with_short_id(match, documents) for match in matches[:_LISTED])
        more = f" and {len(matches) - _LISTED} more" if len(matches) > _LISTED else ""
        raise NotInIndex(
            f"{len(matches)} documents {property_} {document!r}. Use the id of one: {ids}{more}"
        )
    near = get_close_matches(document, [known.name for known in documents.values()], n=1)
    question = f" Did you mean {near[0]}?" if near else ""
    raise NotInIndex(f"No document named {document!r} in {location}.{question}")


def _with_short_id(document: Document, documents: Iterable[str]) -> str:
    """Return the shortest beginning of an id that no other id shares, and what tells it apart."""
    lengths = range(_SHORT_ID, len(document.id))
    unique = (
        length
        for length in lengths
        if sum(other.startswith(document.id[:length]) for other in documents) == 1
    )
    short = document.id[: next(unique, len(document.id))]
    pages = counted(document.pages, "page")
    return f"{short} ({document.name}, {pages}, added {document.added:%Y-%m-%d})"


def removed(document: str, location: str) -> NotInIndex:
    """Return the error that there is no document with an id (any more)."""
    return NotInIndex(f"no document with the id {document} in {location}: it may have been removed")


def page_numbers(stored: Document, numbers: Sequence[int] | None) -> Sequence[int]:
    """Return the numbers, all if none are given; refuse those the document does not have."""
    wanted = range(1, stored.pages + 1) if numbers is None else numbers
    for number in wanted:
        if not 1 <= number <= stored.pages:
            raise NotInIndex(f"{stored.name} has pages 1 to {stored.pages}, not {number}")
    return wanted


def check_encoder(stored: Document, encoder: EncoderRef) -> None:
    """Refuse an encoder whose vectors the document does not have."""
    if encoder not in stored.encoders:
        held = ", ".join(str(known) for known in stored.encoders) or "none"
        raise NotInIndex(
            f"{stored.name} has no vectors of {encoder}, only of {held}: add it with that encoder"
        )


def check_put(
    document: Document,
    page: Page,
    embedding: PageEmbedding,
    encoder: EncoderRef,
    put: Container[int],
) -> None:
    """Refuse a page that was put before or does not exist, and invalid arrays."""
    if not 1 <= page.number <= document.pages or page.number in put:
        raise StoreError(
            f"page {page.number} of {document.name} came twice or does not exist: "
            f"the document has {document.pages} pages"
        )
    n = len(embedding.vectors)
    expected = (
        ("vectors", embedding.vectors, (n, encoder.dimension), "float16"),
        ("boxes", embedding.boxes, (n, 4), "float32"),
        ("words", embedding.words, (n,), "int32"),
    )
    for name, array, shape, dtype in expected:
        if array.shape != shape or array.dtype.name != dtype:
            raise InvalidVectors(
                f"page {page.number}: {name} must be {dtype} of shape {shape}, "
                f"not {array.dtype.name} of shape {array.shape}"
            )
    if n and embedding.invalid is not None:
        raise InvalidVectors(f"page {page.number} is invalid and has {n} vectors; it may have none")
    if n and not -1 <= embedding.words.min() <= embedding.words.max() < len(page.words):
        raise InvalidVectors(
            f"page {page.number}: words must be -1 or below {len(page.words)}, the number of its "
            f"words, not {embedding.words.min()} to {embedding.words.max()}"
        )
    from visar.core.vectors import check_vectors  # not at the top: listing needs no numpy

    # Once stored, such vectors would make every question fail.
    where = f"page {page.number} of {document.name}, encoded by {encoder.name}"
    check_vectors(embedding.vectors, where)


def check_complete(document: Document, written: Container[int]) -> None:
    """Refuse to commit a document of which pages are missing."""
    missing = [number for number in range(1, document.pages + 1) if number not in written]
    if missing:
        raise StoreError(
            f"{len(missing)} of {document.pages} pages of {document.name} were not given, the "
            f"first is page {missing[0]}. Those given are kept: add the others"
        )


def changed_meanwhile(document: Document, *, removed: bool) -> StoreError:
    """Return the error that another process has changed the pages vectors were made from."""
    what = (
        f"{document.name} was removed by another process while vectors were being added to it"
        if removed
        else f"another process added {document.name} with other words at the same time"
    )
    return StoreError(f"{what}. Add it again")


def damaged(location: str, stored: Document, what: str) -> StoreError:
    """Return the error that something of a document cannot be read."""
    return StoreError(
        f"the index {location} is damaged at {stored.name} ({stored.id}): {what}. Remove the "
        "document and add it again"
    )


_ADVICE = {
    ("disk is full", "no space left", "quota exceeded"): (
        "the disk is full ({}): make room, and do the same again"
    ),
    # SQLite needs to write beside the database even to read it.
    ("readonly", "read-only file", "permission denied", "unable to open database"): (
        "it cannot be written ({}): check the rights of the folder"
    ),
    ("is locked", "busy"): "another process keeps it busy ({}): try again",
    ("malformed", "not a database"): (
        "it is damaged ({}): restore it, or add the documents to a new one"
    ),
}


def advice(reason: str) -> str:
    """Say what to do about what the system, SQLite or LanceDB has refused."""
    said = reason.lower()
    for phrases, what in _ADVICE.items():
        if any(phrase in said for phrase in phrases):
            return what.format(reason)
    return reason
