"""Which store keeps an index, by its location."""

from __future__ import annotations

import os
from os import PathLike, fspath

from visar.store.protocol import Store


def default_location() -> str:
    """Return ``VISAR_INDEX``, or a folder under the user's data directory."""
    from platformdirs import user_data_path

    return os.environ.get("VISAR_INDEX") or str(user_data_path("visar") / "index")


def open_store(location: str | PathLike[str] | None = None, *, create: bool = True) -> Store:
    """Open the index at a location, or make one there unless ``create`` is false.

    A folder is kept by SQLite; an address such as ``s3://bucket/prefix`` by LanceDB, which
    ``pip install 'visar[cloud]'`` brings. Without a location it is that of
    :func:`default_location`.

    Raises
    ------
    NotAnIndex
        If there is no index that this version can read.
    """
    place = fspath(location or default_location())
    if "://" in place:
        from visar.store.lance.store import LanceStore

        return LanceStore.open(place, create=create)
    from visar.store.sqlite import SqliteStore

    return SqliteStore.open(place, create=create)
