"""Open data sets by name or path: files, folders, benchmarks and plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from urllib.parse import parse_qsl

from visar.errors import DatasetError
from visar.evaluation.datasets.beir import BeirDataset, BeirOptions, is_beir
from visar.evaluation.datasets.benchmarks import (
    LONGDOCURL,
    MMLONGBENCH,
    LongDocURL,
    QuestionFile,
    if_exists,
    own_questions,
    published_questions,
)
from visar.evaluation.datasets.entries import Entry, read_entries
from visar.evaluation.datasets.hub import (
    COLLECTION,
    LONGDOCURL_HUB,
    MMLONGBENCH_HUB,
    download,
    fetch,
)
from visar.evaluation.questions import Dataset
from visar.plugins import entry_points, failing_as, is_object_name, load

GROUP = "visar.datasets"
"""The entry point group of data sets: functions of an optional path that return a Dataset."""

# The folders in the collection have the names in the paper's tables.
_BENCHMARKS = (MMLONGBENCH, LONGDOCURL)
_NAMES = {
    "MMLongBench": MMLONGBENCH,
    "MMLongBench-Doc": MMLONGBENCH,
    "LongDocURL": LONGDOCURL,
}
_HUB_NAMES = {
    MMLONGBENCH_HUB: MMLONGBENCH,
    LONGDOCURL_HUB: LONGDOCURL,
    **{f"{COLLECTION}/{benchmark}": benchmark for benchmark in _BENCHMARKS},
}
_ONLY_IN_LONGDOCURL = {"doc_no", "start_end_idx", "total_pages", "detailed_evidences"}
_SAMPLES = "samples.json"
_BEIR = "beir:"
# If both files exist, they have the same questions.
_PREFERRED_LINES = ("LongDocURL.jsonl", "LongDocURL_public.jsonl")


def open_dataset(dataset: str | Path | Dataset, *, data: Path | str | None = None) -> Dataset:
    """Open a benchmark or custom questions, and check all entries.

    Raises DatasetError if the data set doesn't exist or is invalid, and InvalidOption if a plugin
    can't be imported.

    Parameters
    ----------
    dataset
        One of: a file of questions or the folder of a data set; a benchmark's name with its folder
        in ``data``; a benchmark's name on the Hugging Face hub (downloaded unless ``data`` is
        given); ``vidore/NAME``, ``beir:OWNER/NAME`` or ``beir:FOLDER``, with options such as
        ``?language=english&grade=2&split=test``; an entry point in the group ``visar.datasets``;
        or ``module:function``. Existing paths take precedence over names. A Dataset is returned
        unchanged.
    data
        Folder of a benchmark.
    """
    if isinstance(dataset, Dataset):
        return dataset
    name, folder = str(dataset), None if data is None else Path(data)
    path = if_exists(Path(dataset))
    base, _, options = name.partition("?")
    if path is None and _is_beir(base, folder):
        return _open_beir(base.removeprefix(_BEIR), folder, options)
    if path is not None and folder is None:
        return _open_folder(path, None) if path.is_dir() else _open_file(path, None)
    plugin = entry_points(GROUP).get(name) or (name if is_object_name(name) else None)
    if plugin is not None and _same_name(name, _NAMES) is None:
        return _open_plugin(plugin, name, folder)
    return _open_by_name(name, folder)


def dataset_names() -> list[str]:
    """Return the names that ``open_dataset`` supports, including those of plugins."""
    return [*_NAMES, *_HUB_NAMES, *entry_points(GROUP)]


def _open_plugin(plugin: EntryPoint | str, name: str, folder: Path | None) -> Dataset:
    with failing_as(DatasetError, f"Can't open the data set {name}", "."):
        opened = load(plugin)(folder)
    if not isinstance(opened, Dataset):
        raise DatasetError(
            f"{name} returned a {type(opened).__name__}, which isn't a data set: it must have "
            "name, questions() and path(document)."
        )
    return opened


def _is_beir(base: str, folder: Path | None) -> bool:
    """Return whether a name or folder refers to a data set in BEIR's layout."""
    data = folder or if_exists(Path(base))
    is_known = base.startswith(_BEIR) or base.casefold().startswith("vidore/")
    return is_known or (folder is None and data is not None and data.is_dir() and is_beir(data))


def _open_beir(base: str, folder: Path | None, query: str) -> Dataset:
    values = dict(parse_qsl(query, keep_blank_values=True))
    unknown = values.keys() - {"grade", "language", "split"}
    grade = values.get("grade", "1")
    if unknown or not grade.isdecimal():
        raise DatasetError(
            f"Invalid options in {base}?{query}: use grade=NUMBER, language=NAME and split=NAME, "
            "joined by &."
        )
    options = BeirOptions(int(grade), values.get("language"), values.get("split", "test"))
    data = folder or if_exists(Path(base))
    if data is None and base.count("/") != 1:
        raise DatasetError(f"{base} is neither a local folder nor OWNER/NAME on the hub.")
    if data is None:
        prefix = [] if options.language is None else [f"{options.language}-*"]
        data = fetch(base, [*prefix, "corpus*", "queries*", "qrels*", "data/*"])
        return BeirDataset(data, base.rpartition("/")[2], options)
    # A name given together with a folder stays the data set's name.
    named = Path(base) if if_exists(Path(base)) is None else data.absolute()
    return BeirDataset(data, named.name, options)


def _open_by_name(name: str, folder: Path | None) -> Dataset:
    if _same_name(name, [COLLECTION]):
        if folder is not None:
            return _open_folder(folder, None)
        choices = " or ".join(f"{COLLECTION}/{benchmark}" for benchmark in _BENCHMARKS)
        raise DatasetError(f"{COLLECTION} has several data sets: choose {choices}.")
    known = _same_name(name, [*_NAMES, *_HUB_NAMES])
    if known is None:
        raise DatasetError(
            f"No data set {name}: it isn't a file, folder, module:function or known name. Known "
            f"names: {', '.join(dataset_names())}."
        )
    benchmark = (_NAMES | _HUB_NAMES)[known]
    if folder is None and known in _NAMES:
        choices = " or ".join(hub for hub, held in _HUB_NAMES.items() if held == benchmark)
        raise DatasetError(
            f"No folder given for {name}: use --data {name}=FOLDER, or download it by its name on "
            f"the hub: {choices}."
        )
    return _open_folder(folder or download(known, benchmark), benchmark)


def _same_name(name: str, known: Iterable[str]) -> str | None:
    return next((other for other in known if other.casefold() == name.casefold()), None)


def _open_folder(folder: Path, benchmark: str | None) -> Dataset:
    if not folder.is_dir():
        raise DatasetError(f"{folder} isn't a folder: give the data set's folder.")
    if benchmark is None and is_beir(folder):
        return _open_beir(str(folder), folder, "")
    return _open_file(_file_of_questions(folder, benchmark), benchmark)


def _file_of_questions(folder: Path, benchmark: str | None) -> Path:
    direct = (folder / _SAMPLES, folder / "data" / _SAMPLES)
    collected = [folder / name / _SAMPLES for name in _BENCHMARKS if benchmark in (None, name)]
    lines = [folder / name for name in _PREFERRED_LINES if (folder / name).is_file()][:1]
    choices = (
        [file for file in direct if file.is_file()],
        [file for file in collected if file.is_file()],
        sorted((folder / "data").glob("train-*.parquet")),
        lines or sorted(folder.glob("*.jsonl")),
    )
    found = next((files for files in choices if files), [])
    if not found:
        raise DatasetError(
            f"No data set found in {folder}: it has no {_SAMPLES}, "
            f"{', '.join(f'{name}/{_SAMPLES}' for name in _BENCHMARKS)}, "
            "data/train-*.parquet or *.jsonl."
        )
    if len(found) > 1:
        raise DatasetError(
            f"{folder} has several data sets: give the path of one, "
            f"{' or '.join(str(file) for file in found)}."
        )
    return found[0]


def _open_file(file: Path, benchmark: str | None) -> Dataset:
    entries = read_entries(file)
    recognized = _recognized(file, entries, benchmark)
    if benchmark is not None and recognized != benchmark:
        raise DatasetError(
            f"{file} isn't from {benchmark}: it looks like {recognized or 'custom questions'}."
        )
    if recognized == MMLONGBENCH:
        # Parquet tables are in a folder next to the folder of documents.
        root = file.parent.parent if file.suffix == ".parquet" else file.parent
        # Some evidence is on page 0, which the paper counts as page 1.
        questions = published_questions(file, entries, raise_to_first=True)
        return QuestionFile(MMLONGBENCH, questions, root / "documents")
    if recognized == LONGDOCURL:
        # The authors number pages from 1, but the collection, which has this file, from 0.
        first_page = 0 if file.name == _SAMPLES else 1
        questions = published_questions(file, entries, first_page=first_page)
        counts = {
            str(one.values.get("doc_no")): count
            for one in entries
            if (count := one.values.get("total_pages")) is not None
        }
        return LongDocURL(LONGDOCURL, questions, file.parent, counts)
    return QuestionFile(file.stem, own_questions(file, entries), file.parent)


def _recognized(file: Path, entries: Sequence[Entry], benchmark: str | None) -> str | None:
    """Return the benchmark of a file; None for custom questions."""
    keys = {key for entry in entries for key in entry.values}
    if "document" in keys:
        return None
    if keys & _ONLY_IN_LONGDOCURL:
        return LONGDOCURL
    if "doc_id" not in keys:
        return None
    # In the collection both may have the same fields, so the folder's name decides.
    by_folder = _same_name(file.absolute().parent.name, _BENCHMARKS)
    return benchmark or by_folder or MMLONGBENCH
