"""Opening the store for a location."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from os import PathLike, fspath

from visar.errors import InvalidOption
from visar.store.store import Store

OPTIONS_VARIABLE = "VISAR_STORAGE_OPTIONS"
"""Environment variable with storage options: ``KEY=VALUE``, separated and quoted as in a shell."""


def default_location() -> str:
    """Return ``VISAR_INDEX``, or a folder in the user's data directory."""
    from platformdirs import user_data_path

    return os.environ.get("VISAR_INDEX") or str(user_data_path("visar") / "index")


def parse_storage_options(texts: Iterable[str]) -> dict[str, str]:
    """Parse storage options of the form ``KEY=VALUE``.

    >>> parse_storage_options(["aws_region=eu-west-1", "allow_http=true"])
    {'aws_region': 'eu-west-1', 'allow_http': 'true'}
    """
    options = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign):
            # Only the key is shown, because the value may be a secret.
            raise InvalidOption(f"Invalid storage option {key!r}: write KEY=VALUE.")
        options[key.lower()] = value
    return options


def storage_options(options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options of `OPTIONS_VARIABLE`, overridden by ``options``."""
    try:
        texts = shlex.split(os.environ.get(OPTIONS_VARIABLE, ""))
    except ValueError as error:
        raise InvalidOption(
            f"Can't read {OPTIONS_VARIABLE}: {error}. Quote its values as in a shell."
        ) from error
    return parse_storage_options(texts) | dict(options or {})


def open_store(
    location: str | PathLike[str] | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    options: Mapping[str, str] | None = None,
) -> Store:
    """Open the index at a location; create it if it is missing, unless ``create`` is false.

    A folder is opened with SQLite, a URL such as ``s3://bucket/prefix`` with LanceDB, which needs
    ``pip install 'visar-rag[cloud]'``. The default location is `default_location`.

    ``read_only`` guarantees that nothing is created or changed. A process that writes to the index
    must not also open it read-only, because SQLite shares its files within a process.

    ``options`` are for object storage, such as ``aws_access_key_id``, ``aws_endpoint`` and
    ``allow_http``. Other options come from the environment: ``VISAR_STORAGE_OPTIONS``, then
    ``AWS_ACCESS_KEY_ID`` and so on.

    Raises
    ------
    NotAnIndex
        If there is no index that this version can read.
    """
    location = fspath(location or default_location())
    options = storage_options(options)
    if "://" in location:
        from visar.store.lance.store import LanceStore

        return LanceStore.open(location, create=create, read_only=read_only, options=options)
    from visar.store.sqlite import SqliteStore

    store = SqliteStore.open(location, create=create, read_only=read_only)
    # Documents may come from object storage.
    store.storage_options = options
    return store
