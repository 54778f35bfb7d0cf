"""From a name or a path to a data set: what lies there is recognised by its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visar.errors import DatasetError
from visar.evaluation.datasets.hub import COLLECTION, LONGDOCURL_HUB, MMLONGBENCH_HUB, download
from visar.evaluation.datasets.jsonl import OwnQuestions
from visar.evaluation.datasets.locating import existing
from visar.evaluation.datasets.longdocurl import LongDocURL
from visar.evaluation.datasets.mmlongbench import MMLongBench
from visar.evaluation.datasets.reading import Entry, Problems, read_entries
from visar.evaluation.questions import Dataset

# The benchmarks' folders in the collection have the names that the paper's tables use.
_BENCHMARKS = (MMLongBench.name, LongDocURL.name)
_NAMES = {
    "MMLongBench": MMLongBench.name,
    "MMLongBench-Doc": MMLongBench.name,
    "LongDocURL": LongDocURL.name,
}
_HUB_NAMES = {
    MMLONGBENCH_HUB: MMLongBench.name,
    LONGDOCURL_HUB: LongDocURL.name,
    **{f"{COLLECTION}/{benchmark}": benchmark for benchmark in _BENCHMARKS},
}
_ONLY_IN_LONGDOCURL = {"doc_no", "start_end_idx", "total_pages", "detailed_evidences"}
# Where both are published side by side, they hold the same questions.
_PREFERRED_LINES = ("LongDocURL.jsonl", "LongDocURL_public.jsonl")


def open_dataset(name_or_path: str | Path, *, data: Path | None = None) -> Dataset:
    """Open a benchmark, or questions of one's own, and check every entry.

    Parameters
    ----------
    name_or_path
        A file of questions or a data set's folder, whose layout is recognised by its files; or a
        benchmark's name: ``MMLongBench`` or ``LongDocURL`` with ``data``, or a name at the Hugging
        Face hub (``yubo2333/MMLongBench-Doc``, ``dengchao/LongDocURL``,
        ``Lillianwei/Mdocagent-dataset/MMLongBench``,
        ``Lillianwei/Mdocagent-dataset/LongDocURL``), which is downloaded unless ``data`` is given.
        A path that exists is taken as a path.
    data
        The folder of the named benchmark on this machine. With it, nothing is downloaded.
    """
    name = str(name_or_path)
    if data is not None:
        return _open_folder(Path(data), _benchmark(name))
    path = existing(Path(name_or_path))
    if path is None:
        return _open_by_name(name)
    return _open_folder(path, None) if path.is_dir() else _open_file(path, None)


def _open_by_name(name: str) -> Dataset:
    hub_name = _same_name(name, [*_HUB_NAMES, COLLECTION])
    if hub_name == COLLECTION:
        choices = " or ".join(f"{COLLECTION}/{benchmark}" for benchmark in _BENCHMARKS)
        raise DatasetError(f"{COLLECTION} holds several data sets: name one, {choices}.")
    if hub_name is not None:
        benchmark = _HUB_NAMES[hub_name]
        return _open_folder(download(hub_name, benchmark), benchmark)
    if benchmark_name := _same_name(name, _NAMES):
        benchmark = _NAMES[benchmark_name]
        choices = " or ".join(hub for hub, held in _HUB_NAMES.items() if held == benchmark)
        raise DatasetError(
            f"Where is {name}? Give its folder on this machine with --data, or have it "
            f"downloaded by its name at the hub: {choices}."
        )
    raise _unknown(name)


def _benchmark(name: str) -> str | None:
    """The benchmark a name stands for; None for the collection, which holds several."""
    if found := _same_name(name, _NAMES):
        return _NAMES[found]
    if found := _same_name(name, _HUB_NAMES):
        return _HUB_NAMES[found]
    if _same_name(name, [COLLECTION]):
        return None
    raise DatasetError(
        f"{name} is no benchmark that --data could be the folder of. Known are "
        f"{', '.join([*_NAMES, *_HUB_NAMES])}. Open questions of your own by their path alone."
    )


def _unknown(name: str) -> DatasetError:
    return DatasetError(
        f"{name} is neither a file or folder on this machine nor the name of a benchmark: "
        f"{', '.join([*_NAMES, *_HUB_NAMES])}."
    )


def _same_name(name: str, known: Sequence[str] | dict[str, str]) -> str | None:
    return next((other for other in known if other.casefold() == name.casefold()), None)


def _open_folder(folder: Path, benchmark: str | None) -> Dataset:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder: give that of the data set.")
    return _open_file(_file_of_questions(folder, benchmark), benchmark)


def _file_of_questions(folder: Path, benchmark: str | None) -> Path:
    direct = (folder / "samples.json", folder / "data" / "samples.json")
    collected = [
        folder / name / "samples.json"
        for name in _BENCHMARKS
        if benchmark in (None, name) and (folder / name / "samples.json").is_file()
    ]
    lines = [folder / name for name in _PREFERRED_LINES if (folder / name).is_file()][:1]
    choices = (
        [file for file in direct if file.is_file()],
        collected,
        sorted((folder / "data").glob("train-*.parquet")),
        lines or sorted(folder.glob("*.jsonl")),
    )
    found = next((files for files in choices if files), [])
    if not found:
        raise DatasetError(
            f"{folder} holds no data set that is known here: no samples.json, no "
            f"{' or '.join(f'{name}/samples.json' for name in _BENCHMARKS)}, no "
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
    if recognised == MMLongBench.name:
        return MMLongBench(entries, problems, _root(file) / "documents")
    if recognised == LongDocURL.name:
        return LongDocURL(entries, problems, file.parent)
    return OwnQuestions(file.stem, entries, problems, file.parent)


def _recognised(file: Path, entries: Sequence[Entry], benchmark: str | None) -> str | None:
    """The benchmark that a file is of; None for questions of one's own."""
    keys = {key for entry in entries for key in entry.values}
    if "document" in keys:
        return None
    if keys & _ONLY_IN_LONGDOCURL:
        return LongDocURL.name
    if "doc_id" not in keys:
        return None
    # In the collection both may have the same fields; then the folder says which it is.
    by_folder = _same_name(file.absolute().parent.name, _BENCHMARKS)
    return benchmark or by_folder or MMLongBench.name


def _root(file: Path) -> Path:
    """The folder that holds the documents' folder: a table lies in a folder of its own."""
    return file.parent.parent if file.suffix == ".parquet" else file.parent
