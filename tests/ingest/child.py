"""A program that adds a document: ``python -m tests.ingest.child INDEX PATH``; tells how far it is.

No ``if __name__ == "__main__"``: scripts of users have none, and it must not run twice.
"""

from __future__ import annotations

import sys

from tests.ingest.conftest import FirstWord
from visar.ingest import add_document
from visar.store import Store

store = Store.open(sys.argv[1])
added = add_document(
    store,
    sys.argv[2],
    FirstWord(),
    progress=lambda stage, done, _: print(stage, done, flush=True),  # noqa: T201
)
print("added", added.pages, flush=True)  # noqa: T201
