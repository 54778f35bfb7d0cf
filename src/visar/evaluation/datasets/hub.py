"""Benchmarks from the Hugging Face hub. Only ``download`` and ``fetch`` use the network."""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from visar.errors import DatasetError, extra_needed
from visar.evaluation.datasets.entries import leaves_folder

MMLONGBENCH_HUB = "yubo2333/MMLongBench-Doc"
LONGDOCURL_HUB = "dengchao/LongDocURL"
COLLECTION = "Lillianwei/Mdocagent-dataset"
"""A repository with both benchmarks, each in a folder, which the paper used."""
_REVISIONS = {COLLECTION: "0dfdcc9a777ebf393653e4b7fc442aa89a8cfabc"}
"""The commits that the paper used. Other repositories aren't pinned; runs record their commits."""
_COMMIT = re.compile(r"[0-9a-f]{40}")

# Known published editions, by their number of questions.
_EDITIONS = {
    ("MMLongBench", 1091): MMLONGBENCH_HUB,
    ("MMLongBench", 1082): "the authors' repository mayubo2333/MMLongBench-Doc",
    ("MMLongBench", 1073): f"{COLLECTION}, the paper's",
    ("LongDocURL", 2325): f"{LONGDOCURL_HUB} or {COLLECTION}, the paper's",
}

_QUESTIONS_OF_LONGDOCURL = "LongDocURL_public.jsonl"
_PDFS_OF_LONGDOCURL = "pdf_files.tar.gz"
_FILES = {
    MMLONGBENCH_HUB: ["data/*.parquet", "documents/*"],
    LONGDOCURL_HUB: [_QUESTIONS_OF_LONGDOCURL, _PDFS_OF_LONGDOCURL],
}


def published_edition(dataset: str, questions: int) -> str | None:
    """Return where the edition of a benchmark with this number of questions was published.

    >>> published_edition("MMLongBench", 1073), published_edition("MMLongBench", 229)
    ("Lillianwei/Mdocagent-dataset, the paper's", None)
    """
    return _EDITIONS.get((dataset, questions))


def download(name: str, benchmark: str) -> Path:
    """Return the folder of a benchmark, downloading it unless it is in the hub's cache.

    ``name`` is a repository, or the collection followed by the benchmark's folder.
    """
    in_collection = name not in _FILES
    repository = COLLECTION if in_collection else name
    folder = fetch(repository, [f"{benchmark}/*"] if in_collection else _FILES[name])
    if name == LONGDOCURL_HUB:
        return unpack_longdocurl(folder, cache_folder() / f"LongDocURL-{folder.name}")
    return folder


def find_revision(path: Path) -> str | None:
    """Return the hub commit that a data set's file came from; None for other files.

    >>> find_revision(Path("hub/datasets--a--b/snapshots") / ("0" * 40) / "documents/a.pdf")[:4]
    '0000'
    """
    found = _COMMIT.search(str(path.absolute()))
    return found and found[0]


def fetch(repository: str, files: Sequence[str]) -> Path:
    """Return the folder of a data set on the hub, downloading files that match the patterns."""
    with extra_needed("A benchmark from the Hugging Face hub", "eval"):
        from huggingface_hub import errors, snapshot_download
    try:
        found = snapshot_download(
            repository,
            repo_type="dataset",
            revision=_REVISIONS.get(repository),
            allow_patterns=list(files),
        )
    except errors.GatedRepoError as error:
        raise DatasetError(
            f"The data set {repository} is gated: accept its terms on its page, run "
            "`hf auth login`, and try again."
        ) from error
    except Exception as error:
        # The HTTP client and its exceptions change between hub versions.
        reason = str(error).strip().partition("\n")[0]
        raise DatasetError(
            f"The data set {repository} is not on this machine and can't be downloaded ({reason}). "
            f"Download it on a machine with a network (`hf download --repo-type dataset "
            f"{repository}`), copy it here, and pass its folder with --data."
        ) from error
    return Path(found)


def unpack_longdocurl(folder: Path, target: Path) -> Path:
    """Return a folder with LongDocURL's questions and unpacked PDFs, created on first use."""

    def unpack(beside: Path) -> None:
        with tarfile.open(folder / _PDFS_OF_LONGDOCURL) as archive:
            _extract(archive, beside)
        shutil.copyfile(folder / _QUESTIONS_OF_LONGDOCURL, beside / _QUESTIONS_OF_LONGDOCURL)

    try:
        return create_once(target, unpack)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise DatasetError(
            f"Can't unpack {folder / _PDFS_OF_LONGDOCURL} to {target}: {error}."
        ) from error


def create_once(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return a folder, creating it with ``fill`` on first use."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Rename the folder when complete, so that no process sees an incomplete one.
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(beside)
        beside.replace(target)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError) and target.is_dir():
            # Another process created it first.
            return target
        raise
    return target


def _extract(archive: tarfile.TarFile, target: Path) -> None:
    """Unpack regular files only. Python's filter for unsafe archives isn't in all 3.11 versions."""
    for member in archive:
        if member.isdir():
            continue
        if not member.isfile() or leaves_folder(member.name):
            raise tarfile.TarError(f"{member.name!r} isn't a regular file inside the archive")
        path = target / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None  # noqa: S101 - checked by isfile()
        with content, path.open("wb") as file:
            shutil.copyfileobj(content, file)


def cache_folder() -> Path:
    """Return the folder for unpacked data sets."""
    from platformdirs import user_cache_path

    return user_cache_path("visar") / "datasets"
