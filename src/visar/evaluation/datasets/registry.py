"""Data sets by name or path: files and folders, benchmarks, entry points, ``module:function``."""

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
    existing,
    own_questions,
    page_counts,
    published_questions,
)
from visar.evaluation.datasets.entries import Entry, Problems, read_entries
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
"""The group of entry points: callables that take the data's path, or None, and give a Dataset."""

# The benchmarks' folders in the collection have the names that the paper's tables use.
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
# Where both are published side by side, they hold the same questions.
_PREFERRED_LINES = ("LongDocURL.jsonl", "LongDocURL_public.jsonl")


def open_dataset(dataset: str | Path | Dataset, *, data: Path | str | None = None) -> Dataset:
    """Open a benchmark or questions of one's own, and check every entry.

    Parameters
    ----------
    dataset
        A file of questions or a data set's folder, whose layout is recognised by its files; or a
        name: ``MMLongBench`` or ``LongDocURL`` with ``data``, a name at the Hugging Face hub
        (``yubo2333/MMLongBench-Doc``, ``dengchao/LongDocURL``,
        ``Lillianwei/Mdocagent-dataset/MMLongBench``,
        ``Lillianwei/Mdocagent-dataset/LongDocURL``, and in the layout of BEIR ``vidore/NAME`` or
        ``beir:OWNER/NAME``), which is downloaded unless ``data`` is given, an entry point of the
        group ``visar.datasets``, or ``module:function``. Options follow a data set in the layout
        of BEIR: ``?language=english&grade=2&split=test``. A path that exists is taken as a path. A
        Dataset is returned as it is.
    data
        The folder of the named data set on this machine. With it, nothing is downloaded.

    Raises
    ------
    DatasetError
        If there is no such data set, or something in it is wrong.
    InvalidOption
        If what a package provides cannot be imported.
    """
    if isinstance(dataset, Dataset):
        return dataset
    name, folder = str(dataset), None if data is None else Path(data)
    path = existing(Path(dataset))
    place, _, options = name.partition("?")
    if path is None and _is_beir(place, folder):
        return _open_beir(place.removeprefix(_BEIR), folder, options)
    if path is not None and folder is None:
        return _open_folder(path, None) if path.is_dir() else _open_file(path, None)
    plugin = entry_points(GROUP).get(name) or (name if is_object_name(name) else None)
    if plugin is not None and _same_name(name, _NAMES) is None:
        return _open_plugin(plugin, name, folder)
    return _open_by_name(name, folder)


def dataset_names() -> list[str]:
    """The names that ``open_dataset`` knows, with those of installed packages."""
    return [*_NAMES, *_HUB_NAMES, *entry_points(GROUP)]


def _open_plugin(plugin: EntryPoint | str, name: str, folder: Path | None) -> Dataset:
    with failing_as(DatasetError, f"The data set {name} cannot be opened", "."):
        opened = load(plugin)(folder)
    if not isinstance(opened, Dataset):
        raise DatasetError(
            f"{name} gave an object of type {type(opened).__name__}, which is no data set: it "
            "needs name, questions() and path(document)."
        )
    return opened


def _is_beir(place: str, folder: Path | None) -> bool:
    """True if a name is of a data set in the layout of BEIR, by its form or its folder."""
    data = folder or existing(Path(place))
    is_known = place.startswith(_BEIR) or place.casefold().startswith("vidore/")
    return is_known or (folder is None and data is not None and data.is_dir() and is_beir(data))


def _open_beir(place: str, folder: Path | None, written: str) -> Dataset:
    values = dict(parse_qsl(written, keep_blank_values=True))
    unknown = values.keys() - {"grade", "language", "split"}
    grade = values.get("grade", "1")
    if unknown or not grade.isdecimal():
        raise DatasetError(
            f"{place}?{written}: the options are grade=NUMBER, language=NAME and split=NAME, "
            "joined by &."
        )
    options = BeirOptions(int(grade), values.get("language"), values.get("split", "test"))
    data = folder or existing(Path(place))
    if data is None and place.count("/") != 1:
        raise DatasetError(f"{place} is neither a folder here nor OWNER/NAME at the hub.")
    if data is None:
        prefix = [] if options.language is None else [f"{options.language}-*"]
        data = fetch(place, [*prefix, "corpus*", "queries*", "qrels*", "data/*"])
        return BeirDataset(data, place.rpartition("/")[2], options)
    # Given with its folder, a name stays the data set's name.
    named = Path(place) if existing(Path(place)) is None else data.absolute()
    return BeirDataset(data, named.name, options)


def _open_by_name(name: str, folder: Path | None) -> Dataset:
    if _same_name(name, [COLLECTION]):
        if folder is not None:
            return _open_folder(folder, None)
        choices = " or ".join(f"{COLLECTION}/{benchmark}" for benchmark in _BENCHMARKS)
        raise DatasetError(f"{COLLECTION} holds several data sets: name one, {choices}.")
    known = _same_name(name, [*_NAMES, *_HUB_NAMES])
    if known is None:
        raise DatasetError(
            f"{name} is neither a file or folder on this machine, nor module:function, nor the "
            f"name of a data set: {', '.join(dataset_names())}."
        )
    benchmark = (_NAMES | _HUB_NAMES)[known]
    if folder is None and known in _NAMES:
        choices = " or ".join(hub for hub, held in _HUB_NAMES.items() if held == benchmark)
        raise DatasetError(
            f"Where is {name}? Give its folder on this machine with --data {name}=FOLDER, or have "
            f"it downloaded by its name at the hub: {choices}."
        )
    return _open_folder(folder or download(known, benchmark), benchmark)


def _same_name(name: str, known: Iterable[str]) -> str | None:
    return next((other for other in known if other.casefold() == name.casefold()), None)


def _open_folder(folder: Path, benchmark: str | None) -> Dataset:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder: give that of the data set.")
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
            f"{folder} holds no data set that is known here: no {_SAMPLES}, no "
            f"{' or '.join(f'{name}/{_SAMPLES}' for name in _BENCHMARKS)}, no "
            "data/train-*.parquet, no file of JSON lines (*.jsonl)."
        )
    if len(found) > 1:
        raise DatasetError(
            f"{folder} holds several data sets: give the path of one, "
            f"{' or '.join(str(file) for file in found)}."
        )
    return found[0]


def _open_file(file: Path, benchmark: str | None) -> Dataset:
    problems = Problems(str(file))
    entries = read_entries(file, problems)
    recognised = _recognised(file, entries, benchmark)
    if benchmark is not None and recognised != benchmark:
        raise DatasetError(f"{file} is not of {benchmark}: it looks like {recognised or 'others'}.")
    if recognised == MMLONGBENCH:
        # A table lies in a folder of its own, beside that of the documents.
        root = file.parent.parent if file.suffix == ".parquet" else file.parent
        # Some evidence is on a page 0. The paper counts it as page 1.
        questions = published_questions(entries, problems, raise_to_first=True)
        return QuestionFile(MMLONGBENCH, questions, root / "documents")
    if recognised == LONGDOCURL:
        # Its authors count pages from 1; the collection, which has this file, counts from 0.
        first_page = 0 if file.name == _SAMPLES else 1
        questions = published_questions(entries, problems, first_page=first_page)
        return LongDocURL(questions, page_counts(entries), file.parent)
    return QuestionFile(file.stem, own_questions(entries, problems), file.parent)


def _recognised(file: Path, entries: Sequence[Entry], benchmark: str | None) -> str | None:
    """The benchmark that a file is of; None for questions of one's own."""
    keys = {key for entry in entries for key in entry.values}
    if "document" in keys:
        return None
    if keys & _ONLY_IN_LONGDOCURL:
        return LONGDOCURL
    if "doc_id" not in keys:
        return None
    # In the collection both may have the same fields; then the folder says which it is.
    by_folder = _same_name(file.absolute().parent.name, _BENCHMARKS)
    return benchmark or by_folder or MMLONGBENCH
