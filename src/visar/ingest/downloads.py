"""Documents at web addresses: downloaded to a temporary file, within limits."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeGuard
from urllib.parse import unquote

from visar._version import __version__
from visar.documents.finding import DOCUMENT_SUFFIXES, detect_kind, unsupported_error
from visar.documents.options import Limits
from visar.errors import DocumentError
from visar.network import network_reason
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

    from visar.ingest.pipeline import Progress

_SECONDS_TO_CONNECT = 10.0
_SECONDS_TO_ANSWER = 60.0
_MAX_REDIRECTS = 5
_CHUNK = 1 << 16
_MAX_NAME_BYTES = 200
_OFFICE = "application/vnd.openxmlformats-officedocument"
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument"
_SUFFIXES = {
    "application/pdf": ".pdf",
    "text/html": ".html",
    "application/xhtml+xml": ".xhtml",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "message/rfc822": ".eml",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/tiff": ".tiff",
    "image/webp": ".webp",
    "application/rtf": ".rtf",
    "application/msword": ".doc",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    f"{_OFFICE}.wordprocessingml.document": ".docx",
    f"{_OFFICE}.spreadsheetml.sheet": ".xlsx",
    f"{_OFFICE}.presentationml.presentation": ".pptx",
    f"{_OPEN_DOCUMENT}.text": ".odt",
    f"{_OPEN_DOCUMENT}.spreadsheet": ".ods",
    f"{_OPEN_DOCUMENT}.presentation": ".odp",
}
# Formats that expand a chunk a thousandfold at most; others could fill the memory.
_CONTENT_ENCODINGS = {"", "identity", "gzip", "x-gzip", "deflate"}


def is_web_url(path: str | os.PathLike[str]) -> TypeGuard[str]:
    """Return whether a path is a web address. A `Path` never is."""
    return isinstance(path, str) and path.lower().startswith(("http://", "https://"))


def url_source(url: str) -> str:
    """Return a web address as the index stores it: without user, password and fragment.

    >>> url_source("https://me:secret@example.com/report.pdf?year=2024#page=3")
    'https://example.com/report.pdf?year=2024'
    """
    return re.sub(r"^(\w+://)[^/?#]*@", r"\1", url.partition("#")[0])


def url_name(url: str) -> str:
    """Return the last part of a web address, to name its document before it is downloaded.

    >>> url_name("https://example.com/annual%20report.pdf?year=2024")
    'annual report.pdf'
    """
    return clean_line(unquote(re.split("[?#]", url)[0]).rstrip("/").rpartition("/")[2])


def safe_name(address: str, suffix: str = "") -> str:
    """Return a file name for a download: the last part of its address, if that can be one.

    >>> safe_name("s3://bucket/2024/report.pdf"), safe_name("papers/1706.03762", ".pdf")
    ('report.pdf', '1706.03762.pdf')
    """
    name = PurePosixPath(address).name.lstrip(".") or "document"
    if PurePosixPath(name).suffix.lower() not in DOCUMENT_SUFFIXES:
        name += suffix
    if len(name.encode()) > _MAX_NAME_BYTES or not name.isprintable():
        return f"document{PurePosixPath(name).suffix[:8]}"
    return name


@contextlib.contextmanager
def download(url: str, limits: Limits, progress: Progress | None = None) -> Iterator[Path]:
    """Context manager: download a document, give the path of the file, and delete it at the end.

    The file has the name that the server gives it, or the last part of the address. A suffix is
    added by content type where the name has none. ``progress`` is called with the stage
    "downloading", the bytes received, and all bytes, or 0 if the server doesn't say how many.

    Raises DocumentError if the document can't be downloaded, is too large, or isn't supported.
    """
    import ssl

    import httpx2

    with tempfile.TemporaryDirectory(prefix="visar-") as folder:
        with _errors(url), httpx2.Client(
            follow_redirects=True,
            max_redirects=_MAX_REDIRECTS,
            headers={"User-Agent": f"visar/{__version__}", "Accept-Encoding": "gzip, deflate"},
            timeout=httpx2.Timeout(_SECONDS_TO_ANSWER, connect=_SECONDS_TO_CONNECT),
            verify=ssl.create_default_context(),
        ) as client, client.stream("GET", url) as response:  # fmt: skip
            _check(response)
            path = Path(folder) / _file_name(response)
            _save(response, path, limits, progress)
        yield path


@contextlib.contextmanager
def local_file(
    path: str | os.PathLike[str], limits: Limits, progress: Progress | None
) -> Iterator[tuple[str | os.PathLike[str], str | None]]:
    """Context manager: a path that can be read, and the source if it is a download."""
    if is_web_url(path):
        with download(path, limits, progress) as file:
            yield file, url_source(path)
    else:
        yield path, None


@contextlib.contextmanager
def _errors(url: str) -> Iterator[None]:
    """Raise DocumentError about a URL where the network or the server fails."""
    import httpx2

    try:
        yield
    except httpx2.TooManyRedirects as error:
        raise _failed(url, f"more than {_MAX_REDIRECTS} redirects") from error
    except httpx2.UnsupportedProtocol as error:
        raise _failed(url, "it redirects to an address that isn't http:// or https://") from error
    except httpx2.TimeoutException as error:
        raise _failed(url, "the server doesn't answer. Try again later") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, _DownloadError, OSError, ValueError) as error:
        raise _failed(url, network_reason(error)) from error


class _DownloadError(Exception):
    """The reason why a response isn't a document to download."""


def _failed(url: str, reason: str) -> DocumentError:
    shown = clean_line(url_source(url), 300)
    return DocumentError(shown, f"can't be downloaded: {reason.rstrip('.')}")


def _check(response: httpx2.Response) -> None:
    import httpx2

    status = response.status_code
    if not response.is_success:
        hint = {
            401: "Log in with a browser, download the file there, and add it",
            403: "Download the file with a browser, and add it",
            404: "Check the address",
            410: "Check the address",
        }.get(status, "Try again later" if status == 429 or status >= 500 else "")
        reason = f"{status} {httpx2.codes.get_reason_phrase(status)}".rstrip()
        raise _DownloadError(f"{reason}. {hint}" if hint else reason)
    encoding = response.headers.get("Content-Encoding", "").lower()
    if encoding not in _CONTENT_ENCODINGS:
        raise _DownloadError(f"the server compresses it with {clean_line(encoding, 20)}")


def _file_name(response: httpx2.Response) -> str:
    from email.message import Message

    header: Message = Message()
    header["Content-Disposition"] = response.headers.get("Content-Disposition", "")
    header["Content-Type"] = response.headers.get("Content-Type", "application/octet-stream")
    name = (header.get_filename() or "").replace("\\", "/")
    address = name or response.url.path.strip("/") or response.url.host
    return safe_name(address, _SUFFIXES.get(header.get_content_type(), ""))


def _save(response: httpx2.Response, path: Path, limits: Limits, progress: Progress | None) -> None:
    """Write the content of a response to a file, up to the limit."""
    too_large = _DownloadError(
        f"it is larger than the limit of {limits.max_bytes:,} bytes (Limits.max_bytes, "
        "visar add --max-megabytes)"
    )
    total = int(response.headers.get("Content-Length", 0))
    if total > limits.max_bytes:
        raise too_large
    if response.headers.get("Content-Encoding"):
        total = 0  # it counts compressed bytes
    received = 0
    with path.open("wb") as file:
        for chunk in response.iter_bytes(_CHUNK):
            if not received and detect_kind(chunk[:1024]) is None:
                raise unsupported_error(path.name)
            received += len(chunk)
            if received > limits.max_bytes:
                raise too_large
            file.write(chunk)
            if progress is not None:
                progress("downloading", received, total)
