"""Adding many documents: files, folders, objects in object storage, and web addresses.

They are added in this process, or on a Ray cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from visar.documents import Limits, ReadOptions, find_documents
from visar.documents.finding import DOCUMENT_SUFFIXES, natural_key
from visar.encoders.encoder import Encoder
from visar.errors import DocumentError, InvalidOption, MissingExtra
from visar.ingest.downloads import download, is_web_url, safe_name, url_source
from visar.ingest.pipeline import Progress, add_document, update_metadata
from visar.ingest.sources import file_source
from visar.results import Additions, Document, EncoderRef, Refusal
from visar.store import Store
from visar.text import clean_line

# An object counts as unchanged if it was written this long before the addition, which allows for
# long downloads and clock differences.
_MIN_AGE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Input:
    """A document to add."""

    path: str
    """Path of a file or of a folder of page images, URL of an object, or web address."""
    size: int = 0
    """Size of an object in bytes."""
    modified: datetime | None = None
    """Modification time of an object."""

    @property
    def is_object(self) -> bool:
        """True for an object in object storage or on the web."""
        return is_url(self.path)

    @property
    def source(self) -> str:
        """Source of the document in the index."""
        if is_web_url(self.path):
            return url_source(self.path)
        return self.path if self.is_object else file_source(self.path)

    def is_stored(self, document: Document | None, encoder: EncoderRef) -> bool:
        """Return whether a stored document with the same source is this object, unchanged."""
        return (
            self.modified is not None
            and document is not None
            and document.has(encoder)
            and document.size == self.size
            and self.modified + _MIN_AGE < document.added
        )

    @contextlib.contextmanager
    def local(
        self, limits: Limits, options: Mapping[str, str], progress: Progress | None = None
    ) -> Iterator[Path]:
        """Context manager: a local path of the document, which may be a temporary download.

        Raises DocumentError if the object is too large or can't be downloaded.
        """
        if not self.is_object:
            yield Path(self.path)
            return
        if is_web_url(self.path):
            with download(self.path, limits, progress) as path:
                yield path
            return
        if self.size > limits.max_bytes:
            raise DocumentError(
                clean_line(self.path),
                f"has {self.size:,} bytes, but the limit is {limits.max_bytes:,} "
                "(Limits.max_bytes)",
            )
        with tempfile.TemporaryDirectory(prefix="visar-") as folder:
            path = Path(folder) / safe_name(self.path)
            with _storage_errors(self.path):
                files, key = filesystem(self.path, options)
                with files.open_input_stream(key) as stream, path.open("wb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
            yield path


def is_url(path: str | PathLike[str]) -> bool:
    """Return whether a path is a URL of objects, such as ``s3://bucket/prefix``."""
    return isinstance(path, str) and "://" in path


def find_inputs(
    paths: Iterable[str | PathLike[str]], options: Mapping[str, str]
) -> tuple[list[Input], list[Refusal], list[str]]:
    """Expand folders and prefixes to documents.

    Returns the documents, the paths that can't be used, and the skipped files, whose suffix isn't
    supported. Files are found by `visar.documents.find_documents`. A web address is one document.
    In object storage, each object with a supported suffix is a document; hidden objects are
    ignored. ``options`` are storage options.
    """
    by_path: dict[str, Input] = {}
    refused: list[Refusal] = []
    skipped: list[str] = []
    for path in paths:
        if is_web_url(path):
            inputs = [Input(path)]
        elif is_url(path):
            try:
                inputs, others = _objects(str(path), options)
                skipped += others
            except DocumentError as error:
                refused.append(Refusal(str(path), str(error)))
                continue
        else:
            documents = find_documents([path])
            inputs = [Input(str(path)) for path in documents.paths]
            refused += [Refusal(str(path), reason) for path, reason in documents.refused]
            skipped += map(str, documents.skipped)
        by_path |= {one.path: one for one in inputs}
    return list(by_path.values()), refused, [one for one in skipped if one not in by_path]


def _objects(url: str, options: Mapping[str, str]) -> tuple[list[Input], list[str]]:
    """Return the documents at a URL, and the objects that were skipped."""
    scheme = url.partition("://")[0]
    with _storage_errors(url):
        files, key = filesystem(url, options)
        from pyarrow.fs import FileSelector, FileType

        root = files.get_file_info(key)
        if root.type == FileType.File:
            infos = [root]
        else:
            infos = files.get_file_info(FileSelector(key, recursive=True, allow_not_found=True))
    inputs, skipped = [], []
    for info in infos:
        if info.type != FileType.File or (info is not root and _is_hidden(info.path, key)):
            continue
        path = f"{scheme}://{info.path}"
        if info is root or PurePosixPath(info.path).suffix.lower() in DOCUMENT_SUFFIXES:
            inputs.append(Input(path, info.size, info.mtime or datetime.now(UTC)))
        else:
            skipped.append(path)
    if not inputs:
        raise DocumentError(clean_line(url), "doesn't exist, or has no documents")
    return sorted(inputs, key=lambda one: (natural_key(one.path), one.path)), skipped


def _is_hidden(path: str, prefix: str) -> bool:
    parts = PurePosixPath(path).relative_to(prefix).parts
    return any(part.startswith((".", "~$")) for part in parts)


def filesystem(url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """Return pyarrow's file system for a URL, and the key in it.

    ``options`` have the same names as in LanceDB; missing options come from the environment.
    """
    try:
        from pyarrow import fs
    except ImportError as error:
        raise MissingExtra("Object storage", "cloud") from error
    scheme, _, key = url.partition("://")
    values = {name.removeprefix("aws_").removeprefix("azure_storage_"): value
              for name, value in options.items()}  # fmt: skip
    if scheme == "s3":
        endpoint = values.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL")
        files = fs.S3FileSystem(
            access_key=values.get("access_key_id"),
            secret_key=values.get("secret_access_key"),
            session_token=values.get("session_token"),
            region=values.get("region") or os.environ.get("AWS_REGION"),
            endpoint_override=endpoint,
        )
    elif scheme in ("gs", "gcs"):
        files = fs.GcsFileSystem()
    elif scheme == "az":
        account = values.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        files = fs.AzureFileSystem(account, account_key=values.get("account_key"))
    else:
        raise InvalidOption(
            f"Can't read {clean_line(url)}: supported URLs start with https://, http://, s3://, "
            "gs:// or az://."
        )
    return files, key.rstrip("/")


@contextlib.contextmanager
def _storage_errors(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DocumentError(clean_line(url), f"can't be read: {error}") from error


Result: TypeAlias = tuple[Input, Document | Refusal]
BeginProgress: TypeAlias = Callable[[str], Progress]
"""Function that is called with the path of each document, and returns its progress callback."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The store, encoder and options for adding documents."""

    store: Store
    encoder: Encoder
    encoder_name: str | Encoder
    """Name of the encoder, which other processes need to load it too."""
    device: str = "auto"
    options: ReadOptions = field(default_factory=ReadOptions)
    metadata: Mapping[str, Any] | None = None
    """Metadata for all documents, in addition to that of their files."""
    collection: str | None = None
    """Collection to add all documents to."""

    def add_all(
        self,
        paths: Iterable[str | PathLike[str]],
        progress: BeginProgress | None = None,
        each: Callable[[str, Document | Refusal], None] | None = None,
        *,
        ray: str | None = None,
    ) -> Additions:
        """Add files, folders and URLs; call ``each`` with every result as soon as it is known.

        ``ray`` is the address of a Ray cluster to use instead of this process.
        """
        added: list[Document] = []
        inputs, errors, skipped = find_inputs(paths, self.store.storage_options)
        refused: list[Refusal] = []
        results = self._add(inputs, progress, ray)
        for item, result in chain(((Input(one.path), one) for one in errors), results):
            if isinstance(result, Refusal):
                refused.append(result)
            else:
                added.append(result)
            if each is not None:
                each(item.path, result)
        return Additions(tuple(added), tuple(refused), tuple(skipped))

    def _add(
        self, inputs: Iterable[Input], progress: BeginProgress | None, ray: str | None
    ) -> Iterator[Result]:
        waiting: list[Input] = []
        for item, stored in self._look_up(inputs):
            if stored is None:
                waiting.append(item)
            else:
                metadata = self.metadata or {}
                yield item, update_metadata(self.store, stored, metadata, self.collection)
        if ray is None or not waiting:
            yield from self._add_each(waiting, progress)
            return
        from visar.ingest.ray_cluster import RayCluster

        # A download takes its time once: here, not for each task on a node.
        yield from self._add_each([item for item in waiting if is_web_url(item.path)], progress)
        with RayCluster(ray) as cluster:
            others = [item for item in waiting if not is_web_url(item.path)]
            yield from cluster.add(self, others, progress)

    def _look_up(self, inputs: Iterable[Input]) -> Iterator[tuple[Input, Document | None]]:
        """Yield each input, with its stored document if it is an unchanged object."""
        reference = EncoderRef.of(self.encoder)
        by_source: dict[str, Document] | None = None
        for item in inputs:
            if item.is_object and by_source is None:
                by_source = {document.source: document for document in self.store.documents()}
            stored = (by_source or {}).get(item.source) if item.is_object else None
            yield item, stored if item.is_stored(stored, reference) else None

    def add_locally(
        self, path: str | PathLike[str], progress: Progress | None = None, *, source: str
    ) -> Document:
        return add_document(
            self.store,
            path,
            self.encoder,
            self.options,
            progress,
            source=source,
            metadata=self.metadata,
            collection=self.collection,
        )

    def _add_each(
        self, inputs: Iterable[Input], progress: BeginProgress | None
    ) -> Iterator[Result]:
        for item in inputs:
            report = progress(item.path) if progress else None
            try:
                options = self.store.storage_options
                with item.local(self.options.limits, options, report) as path:
                    document = self.add_locally(path, report, source=item.source)
            except DocumentError as error:
                yield item, Refusal(item.path, str(error))
            else:
                yield item, document
