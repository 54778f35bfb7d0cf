"""What is added: files and folders of this machine, and objects in object storage."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from visar.documents import Limits, find_documents
from visar.documents.finding import DOCUMENT_SUFFIXES, natural_key
from visar.errors import DocumentError, InvalidOption, MissingExtra
from visar.ingest.sources import file_source
from visar.results import Document, EncoderRef, Refusal
from visar.text import clean_line

# An object is taken for the one that was added if it is older than the addition by so much: longer
# than a download takes, and than clocks are apart.
_SETTLED = timedelta(hours=1)
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Input:
    """A document to be added."""

    place: str
    """The path of a file or of a folder of page images, or the address of an object."""
    size: int = 0
    """Of an object, in bytes."""
    modified: datetime | None = None
    """When the object was written."""

    @property
    def is_object(self) -> bool:
        """Whether it lies in object storage."""
        return is_address(self.place)

    @property
    def source(self) -> str:
        """Where the index says that the document comes from."""
        return self.place if self.is_object else file_source(self.place)

    def is_stored(self, document: Document | None, encoder: EncoderRef) -> bool:
        """Whether a document of the same source is this object, so that it need not be read."""
        return (
            self.modified is not None
            and document is not None
            and document.has(encoder)
            and document.size == self.size
            and self.modified + _SETTLED < document.added
        )

    @contextlib.contextmanager
    def local(self, limits: Limits, options: Mapping[str, str]) -> Iterator[Path]:
        """Give a path where it can be read: its own, or that of a download, removed afterwards.

        Raises DocumentError if it is too large or cannot be downloaded.
        """
        if not self.is_object:
            yield Path(self.place)
            return
        if self.size > limits.max_bytes:
            raise DocumentError(
                clean_line(self.place),
                f"has {self.size:,} bytes, more than the limit of {limits.max_bytes:,} "
                "(Limits.max_bytes)",
            )
        with tempfile.TemporaryDirectory(prefix="visar-") as folder:
            path = Path(folder) / _file_name(self.place)
            with _refusals(self.place):
                files, key = filesystem(self.place, options)
                with files.open_input_stream(key) as stream, path.open("wb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
            yield path


def is_address(place: str | os.PathLike[str]) -> bool:
    """Whether a place is the address of objects, such as ``s3://bucket/prefix``."""
    return isinstance(place, str) and "://" in place


def find_inputs(
    places: Iterable[str | os.PathLike[str]], options: Mapping[str, str]
) -> tuple[list[Input], list[Refusal]]:
    """Expand folders and prefixes to the documents in them; say what cannot be used, and why.

    Files are found as `visar.documents.find_documents` does. Of the objects under a prefix
    those with the suffix of a known kind are documents, each image one of its own; hidden ones are
    passed over. ``options`` are those of the storage.
    """
    found: dict[str, Input] = {}
    refused: list[Refusal] = []
    for place in places:
        if is_address(place):
            try:
                inputs = _objects(str(place), options)
            except DocumentError as error:
                refused.append(Refusal(str(place), str(error)))
                continue
        else:
            documents = find_documents([place])
            inputs = [Input(str(path)) for path in documents.paths]
            refused += [Refusal(str(path), reason) for path, reason in documents.refused]
        found |= {one.place: one for one in inputs}
    return list(found.values()), refused


def _objects(address: str, options: Mapping[str, str]) -> list[Input]:
    scheme = address.partition("://")[0]
    with _refusals(address):
        files, key = filesystem(address, options)
        from pyarrow.fs import FileSelector, FileType

        given = files.get_file_info(key)
        if given.type == FileType.File:
            listed = [given]
        else:
            listed = files.get_file_info(FileSelector(key, recursive=True, allow_not_found=True))
    inputs = [
        Input(f"{scheme}://{info.path}", info.size, info.mtime or datetime.now(UTC))
        for info in listed
        if info.type == FileType.File and (info is given or _is_document(info.path, key))
    ]
    if not inputs:
        raise DocumentError(clean_line(address), "does not exist, or has no documents")
    return sorted(inputs, key=lambda one: (natural_key(one.place), one.place))


def _is_document(path: str, prefix: str) -> bool:
    key = PurePosixPath(path)
    below = key.relative_to(prefix).parts
    hidden = any(part.startswith((".", "~$")) for part in below)
    return key.suffix.lower() in DOCUMENT_SUFFIXES and not hidden


def filesystem(address: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """Open the storage of an address; return pyarrow's file system, and the key in it.

    ``options`` are named as LanceDB names them; what they leave out comes from the environment.
    """
    try:
        from pyarrow import fs
    except ImportError as error:
        raise MissingExtra("Object storage", "cloud") from error
    scheme, _, key = address.partition("://")
    given = {name.removeprefix("aws_").removeprefix("azure_storage_"): value
             for name, value in options.items()}  # fmt: skip
    if scheme == "s3":
        endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL")
        files = fs.S3FileSystem(
            access_key=given.get("access_key_id"),
            secret_key=given.get("secret_access_key"),
            session_token=given.get("session_token"),
            region=given.get("region") or os.environ.get("AWS_REGION"),
            endpoint_override=endpoint,
        )
    elif scheme in ("gs", "gcs"):
        files = fs.GcsFileSystem()
    elif scheme == "az":
        account = given.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        files = fs.AzureFileSystem(account, account_key=given.get("account_key"))
    else:
        raise InvalidOption(f"{clean_line(address)} is no address of s3://, gs:// or az://.")
    return files, key.rstrip("/")


@contextlib.contextmanager
def _refusals(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DocumentError(clean_line(address), f"cannot be read: {error}") from error


def _file_name(address: str) -> str:
    """A file name for a download: the last part of the key, if it can be one."""
    name = PurePosixPath(address).name
    if len(name.encode()) > _LONGEST_NAME or not name.isprintable():
        return f"document{PurePosixPath(name).suffix[:8]}"
    return name
