"""Checks, errors and lookups that both stores share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from visar.documents.page import Page
from visar.errors import DiskFull, NotAnIndex, NotInIndex, ReadOnlyIndex, StoreError
from visar.results import NO_TEXT, Document, EncoderRef, InvalidPage
from visar.text import counted

if TYPE_CHECKING:
    from visar.encoders.encoder import PageEmbedding

# Maximum number of documents that an error lists.
_MAX_LISTED = 5
# Characters of an id that are usually unique.
_SHORT_ID = 8


def all_without_text(pages: int, invalid: Sequence[InvalidPage]) -> bool:
    """Return whether no text was found on any page of a document."""
    return pages == len({one.number for one in invalid if one.reason == NO_TEXT})


def check_new_document(document: Document, current: Document | None = None) -> None:
    """Raise StoreError for a document without id or pages, or another length than in the index."""
    if document.pages < 1 or not document.id:
        raise StoreError(
            f"Can't add {document.name}: a document needs an id and at least one page."
        )
    check_metadata(document.metadata)
    if current is not None and current.pages != document.pages:
        raise StoreError(
            f"Can't add {document.name}: it has {document.pages} pages, but the document with the "
            f"same id {current.id} in the index has {current.pages}."
        )


def check_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as a dict; raise StoreError for names or values of other types."""
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(  # type: ignore[redundant-expr]
            value, str | int | float | bool | None
        ):
            raise StoreError(
                f"Invalid metadata {name!r}: {value!r}. Values must be text, numbers, true, false "
                "or null."
            )
    return dict(metadata)


def check_dimension(encoder: EncoderRef, stored: Iterable[EncoderRef]) -> None:
    """Raise StoreError if the index has vectors of the same version but another dimension."""
    for other in stored:
        same = (other.name, other.version) == (encoder.name, encoder.version)
        if same and other.dimension != encoder.dimension:
            raise StoreError(
                f"The index already has vectors of {other}, with another dimension than {encoder}. "
                "Give the new encoder another version."
            )


def match_documents(
    documents: Iterable[Document], where: Mapping[str, Any] | None, collection: str | None
) -> list[Document]:
    """Return the documents with this metadata that are in the collection, if one is given."""
    values = (where or {}).items()
    return [
        document
        for document in documents
        if all(name in document.metadata and document.metadata[name] == v for name, v in values)
        and (collection is None or collection in document.collections)
    ]


def find_document(documents: Mapping[str, Document], document: str, location: str) -> Document:
    """Return the document with this id or name, or the only one whose id begins with it."""
    if document in documents:
        return documents[document]
    by_name = [each for each in documents.values() if each.name == document]
    by_id = [each for each in documents.values() if document and each.id.startswith(document)]
    matches = by_name or by_id
    if len(matches) == 1:
        return matches[0]
    if matches:
        relation = "are named" if by_name else "have an id that begins with"
        ids = ", ".join(_with_short_id(match, documents) for match in matches[:_MAX_LISTED])
        more = f" and {len(matches) - _MAX_LISTED} more" if len(matches) > _MAX_LISTED else ""
        raise NotInIndex(
            f"{len(matches)} documents {relation} {document!r}. Use the id of one: {ids}{more}"
        )
    near = _similar_name(document, [each.name for each in documents.values()])
    question = "" if near is None else f" Did you mean {near}?"
    raise NotInIndex(f"No document named {document!r} in {location}.{question}")


def _similar_name(name: str, names: Sequence[str]) -> str | None:
    """Return the name that contains this text, or resembles it with or without its suffix."""
    contained = [one for one in names if name and name.casefold() in one.casefold()]
    stems = {one.rpartition(".")[0] or one: one for one in names}
    near = get_close_matches(name, [*names, *stems], n=1)
    found = contained or [stems.get(one, one) for one in near]
    return found[0] if found else None


def _with_short_id(document: Document, documents: Iterable[str]) -> str:
    """Return the shortest unique prefix of a document's id, with its name, pages and date."""
    lengths = range(_SHORT_ID, len(document.id))
    unique = (
        length
        for length in lengths
        if sum(other.startswith(document.id[:length]) for other in documents) == 1
    )
    short = document.id[: next(unique, len(document.id))]
    pages = counted(document.pages, "page")
    return f"{short} ({document.name}, {pages}, added {document.added:%Y-%m-%d})"


def no_index_error(location: str) -> NotAnIndex:
    """Return the error for a location without an index."""
    return NotAnIndex(f"There is no index at {location}. Add a document to create one.")


def not_found_error(document: str, location: str) -> NotInIndex:
    """Return the error for an id that isn't in the index."""
    return NotInIndex(f"No document with id {document} in {location}: it may have been removed.")


def page_numbers(stored: Document, numbers: Sequence[int] | None) -> Sequence[int]:
    """Return the numbers, or all; raise NotInIndex for pages that the document doesn't have."""
    if numbers is None:
        return range(1, stored.pages + 1)
    for number in numbers:
        if not 1 <= number <= stored.pages:
            raise NotInIndex(f"{stored.name} has no page {number}, only 1 to {stored.pages}.")
    return numbers


def check_encoder(stored: Document, encoder: EncoderRef) -> None:
    """Raise NotInIndex if the document has no vectors of an encoder."""
    if encoder not in stored.encoders:
        encoders = ", ".join(str(each) for each in stored.encoders) or "none"
        raise NotInIndex(
            f"{stored.name} has no vectors of {encoder}, only of {encoders}. "
            "Add the document again with that encoder."
        )


def check_put(
    document: Document,
    page: Page,
    embedding: PageEmbedding,
    encoder: EncoderRef,
    put: Container[int],
) -> None:
    """Raise an error for a page that doesn't exist or was already put, and for invalid arrays."""
    if not 1 <= page.number <= document.pages:
        raise StoreError(f"{document.name} has no page {page.number}, only 1 to {document.pages}.")
    if page.number in put:
        raise StoreError(f"Page {page.number} of {document.name} was put twice.")
    from visar.encoders.encoder import check_embedding  # imported here: listing needs no numpy

    # Once stored, invalid vectors would make every question fail.
    source = f"page {page.number} of {document.name}, encoded by {encoder.name}"
    check_embedding(embedding, page, encoder.dimension, source)


def check_complete(document: Document, written: Container[int]) -> None:
    """Raise StoreError if pages of a document are missing."""
    missing = [number for number in range(1, document.pages + 1) if number not in written]
    if missing:
        raise StoreError(
            f"{len(missing)} of {document.pages} pages of {document.name} are missing, the "
            f"first is page {missing[0]}. The others are saved: put the missing pages."
        )


def conflict_error(document: Document, *, removed: bool) -> StoreError:
    """Return the error for a document that another process changed during an addition."""
    change = (
        f"Another process removed {document.name} while it was being added"
        if removed
        else f"Another process added {document.name} with other words at the same time"
    )
    return StoreError(f"{change}. Add it again.")


def damage_error(location: str, stored: Document, reason: str) -> StoreError:
    """Return the error for a document whose stored data is damaged."""
    return StoreError(
        f"The index {location} is damaged: can't read {stored.name} ({stored.id}) because "
        f"{reason}. Remove the document and add it again."
    )


_ADVICE: dict[tuple[str, ...], tuple[type[StoreError], str]] = {
    ("disk is full", "no space left", "quota exceeded"): (
        DiskFull,
        "the disk is full ({}). Free up space and try again",
    ),
    # SQLite needs to write beside the database even to read it.
    ("readonly", "read-only file", "permission denied", "unable to open database"): (
        ReadOnlyIndex,
        "it can't be written ({}). Check the permissions of the folder",
    ),
    ("is locked", "busy"): (StoreError, "another process is using it ({}). Try again"),
    ("malformed", "not a database"): (
        StoreError,
        "it is damaged ({}). Restore a backup, or add the documents to a new index",
    ),
}


def store_error(subject: str, reason: str, path: str = "") -> StoreError:
    """Return the error for a failure of the system, SQLite or LanceDB, with advice."""
    if path:
        reason = f"{reason}: {path}"
    lower = reason.lower()
    for phrases, (kind, advice) in _ADVICE.items():
        if any(phrase in lower for phrase in phrases):
            return kind(f"{subject}: {advice.format(reason)}.")
    return StoreError(f"{subject}: {reason}.")
