"""Which store keeps an index, by its location."""

from __future__ import annotations

from os import PathLike, fspath

from visar.store.protocol import Store


def open_store(location: str | PathLike[str], *, create: bool = True) -> Store:
    """Open the index at a location, or make one there unless ``create`` is false.

    A folder is kept by SQLite; an address such as ``s3://bucket/prefix`` by LanceDB, which
    ``pip install 'visar[cloud]'`` brings.

    Raises
    ------
    NotAnIndex
        If there is no index that this version can read.
    """
    place = fspath(location)
    if "://" in place:
        from visar.store.lance.store import LanceStore

        return LanceStore.open(place, create=create)
    from visar.store.sqlite import SqliteStore

    return SqliteStore.open(place, create=create)
