"""Error messages for clients on other machines."""

from __future__ import annotations

import contextlib
import os

from visar.errors import EncryptedDocument, ServiceError, StoreError
from visar.ingest.sources import source_text
from visar.library import Library


def public_message(error: object, library: Library) -> str:
    """Return an error's message with local paths removed."""
    hint = "Its pages are shown once it is unlocked with its password"
    message = str(error).replace(EncryptedDocument.HINT, hint)
    location = library.location
    name = "the server" if location.startswith(("http://", "https://")) else "the index"
    message = message.replace(f"index {location}", "index").replace(location, name)
    # It may be the path of a document. Errors of a server don't contain its paths, and a server
    # that failed can't list its documents.
    if os.sep in message and not isinstance(error, ServiceError):
        with contextlib.suppress(StoreError, ServiceError):
            for document in library.documents():
                if document.source:
                    message = message.replace(source_text(document.source), document.name)
    return message
