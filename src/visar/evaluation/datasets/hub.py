"""Benchmarks from the Hugging Face hub. Only ``download`` asks the network."""

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
"""Holds both benchmarks, each in a folder: the paper took them from here."""
_REVISIONS = {COLLECTION: "0dfdcc9a777ebf393653e4b7fc442aa89a8cfabc"}
"""Commits that the paper used; others are recorded as they are found."""
_COMMIT = re.compile(r"[0-9a-f]{40}")

# All that are known to be published, by how many questions they have.
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
    """Where the edition of a benchmark with so many questions is published; None if none has.

    >>> published_edition("MMLongBench", 1073), published_edition("MMLongBench", 229)
    ("Lillianwei/Mdocagent-dataset, the paper's", None)
    """
    return _EDITIONS.get((dataset, questions))


def download(name: str, benchmark: str) -> Path:
    """The folder of a benchmark, downloaded unless it is in the hub's cache on this machine.

    ``name`` is a repository, or the collection with the benchmark's folder after it.
    """
    in_collection = name not in _FILES
    repository = COLLECTION if in_collection else name
    folder = fetch(repository, [f"{benchmark}/*"] if in_collection else _FILES[name])
    if name == LONGDOCURL_HUB:
        return unpacked(folder, cache_folder() / f"LongDocURL-{folder.name}")
    return folder


def find_revision(path: Path) -> str | None:
    """Return the commit at the hub that a data set's file came from; None for other files.

    >>> find_revision(Path("hub/datasets--a--b/snapshots") / ("0" * 40) / "documents/a.pdf")[:4]
    '0000'
    """
    found = _COMMIT.search(str(path.absolute()))
    return found and found[0]


def fetch(repository: str, files: Sequence[str]) -> Path:
    """The folder of a data set at the hub with the files of some patterns, downloaded if needed."""
    with extra_needed("A benchmark of the Hugging Face hub", "eval"):
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
            f"The data set {repository} is open only to those who accepted its terms: accept them "
            "on its page, run `hf auth login`, and try again."
        ) from error
    except Exception as error:
        # The client passes on errors of the HTTP library it uses, which changes with its version.
        reason = str(error).strip().partition("\n")[0]
        raise DatasetError(
            f"The data set {repository} is not on this machine and cannot be had from the hub "
            f"({reason}). Download it where there is a network (`hf download --repo-type dataset "
            f"{repository}`), copy it here, and give its folder with --data."
        ) from error
    return Path(found)


def unpacked(folder: Path, target: Path) -> Path:
    """LongDocURL's questions and the PDFs of its archive, in a folder made the first time."""

    def unpack(beside: Path) -> None:
        with tarfile.open(folder / _PDFS_OF_LONGDOCURL) as archive:
            _extract(archive, beside)
        shutil.copyfile(folder / _QUESTIONS_OF_LONGDOCURL, beside / _QUESTIONS_OF_LONGDOCURL)

    try:
        return make_once(target, unpack)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise DatasetError(
            f"{folder / _PDFS_OF_LONGDOCURL} cannot be unpacked to {target}: {error}."
        ) from error


def make_once(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return a folder, which ``fill`` is given to write the first time."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when it is whole, so that nobody ever finds a part.
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(beside)
        beside.replace(target)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError) and target.is_dir():
            # Another process was faster.
            return target
        raise
    return target


def _extract(archive: tarfile.TarFile, target: Path) -> None:
    """Unpack plain files. Python's own filter against hostile archives is not in every 3.11."""
    for member in archive:
        if member.isdir():
            continue
        if not member.isfile() or leaves_folder(member.name):
            raise tarfile.TarError(f"{member.name!r} is no file within it")
        path = target / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None  # noqa: S101 - it is a file
        with content, path.open("wb") as file:
            shutil.copyfileobj(content, file)


def cache_folder() -> Path:
    """Where data sets are unpacked to."""
    from platformdirs import user_cache_path

    return user_cache_path("visar") / "datasets"
