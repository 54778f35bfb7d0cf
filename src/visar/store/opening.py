"""Which store keeps an index, by its location."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from os import PathLike, fspath

from visar.errors import InvalidOption
from visar.store.protocol import Store

OPTIONS_VARIABLE = "VISAR_STORAGE_OPTIONS"
"""Holds storage options as ``KEY=VALUE``, with spaces between them, quoted as in a shell."""


def default_location() -> str:
    """Return ``VISAR_INDEX``, or a folder under the user's data directory."""
    from platformdirs import user_data_path

    return os.environ.get("VISAR_INDEX") or str(user_data_path("visar") / "index")


def parse_storage_options(given: Iterable[str]) -> dict[str, str]:
    """Read storage options that are written ``KEY=VALUE``.

    >>> parse_storage_options(["aws_region=eu-west-1", "allow_http=true"])
    {'aws_region': 'eu-west-1', 'allow_http': 'true'}
    """
    options = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not (key and sign):
            # The value may be a secret: it is not repeated.
            raise InvalidOption(f"A storage option is written KEY=VALUE, not {key!r}.")
        options[key.lower()] = value
    return options


def storage_options(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options of `OPTIONS_VARIABLE`, with those that are given in their place."""
    try:
        written = shlex.split(os.environ.get(OPTIONS_VARIABLE, ""))
    except ValueError as error:
        raise InvalidOption(f"{OPTIONS_VARIABLE} is not quoted as in a shell: {error}.") from error
    return parse_storage_options(written) | dict(given or {})


def open_store(
    location: str | PathLike[str] | None = None,
    *,
    create: bool = True,
    options: Mapping[str, str] | None = None,
) -> Store:
    """Open the index at a location, or make one there unless ``create`` is false.

    A folder is kept by SQLite; an address such as ``s3://bucket/prefix`` by LanceDB, which
    ``pip install 'visar-rag[cloud]'`` brings. Without a location it is that of
    `default_location`.

    ``options`` are for object storage, such as ``aws_access_key_id``, ``aws_endpoint``,
    ``allow_http``; what they leave out comes from the environment: ``VISAR_STORAGE_OPTIONS``, then
    ``AWS_ACCESS_KEY_ID`` and so on.

    Raises
    ------
    NotAnIndex
        If there is no index that this version can read.
    """
    place = fspath(location or default_location())
    given = storage_options(options)
    if "://" in place:
        from visar.store.lance.store import LanceStore

        return LanceStore.open(place, create=create, options=given)
    from visar.store.sqlite import SqliteStore

    store = SqliteStore.open(place, create=create)
    # Documents may come from object storage.
    store.storage_options = given
    return store
