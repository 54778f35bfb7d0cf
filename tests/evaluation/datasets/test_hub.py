"""Benchmarks from the hub, downloaded only if no folder is given.

The hub is a local server with the part of its protocol that downloads need. Each test runs its own
process, because the hub's client reads its settings on import.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.evaluation.datasets.beir_sets import write_parquet
from tests.evaluation.datasets.layouts import LONGDOCURL, MMLONGBENCH, write_lines, write_samples
from visar.errors import DatasetError
from visar.evaluation.datasets.hub import unpack_longdocurl

REVISION = "0123456789abcdef0123456789abcdef01234567"
OPEN = """
import sys
from pathlib import Path
from visar.errors import DatasetError
from visar.evaluation.datasets import open_dataset
name, data = sys.argv[1:]
try:
    dataset = open_dataset(name, data=Path(data) if data else None)
    questions = dataset.questions()
    names = dict.fromkeys(question.document for question in questions)
    print(dataset.name, len(questions), *(name for name in names if dataset.path(name) is None))
except DatasetError as error:
    print(error)
print("requests" if "huggingface_hub" in sys.modules else "not requests")
"""


def open_in_process(home: Path, name: str, data: Path | str = "", **settings: str) -> list[str]:
    """Open a data set in another process with its own cache and settings; return its output."""
    environment = os.environ | {
        "HF_HOME": str(home / "hub"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
        **settings,
    }
    done = subprocess.run(
        [sys.executable, "-c", OPEN, name, str(data)],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def hub(folder: Path, *, cut: str = "") -> Iterator[tuple[str, list[str]]]:
    """Run a hub with one repository; yield its address and the list of downloaded files.

    The connection is closed in the middle of the file ``cut``.
    """
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    fetched: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        commit = REVISION

        def do_GET(self) -> None:
            if "/revision/" in self.path:
                # Resolve a branch to a commit, and a commit to itself.
                requests = self.path.rpartition("/revision/")[2].partition("?")[0]
                self.commit = requests if len(requests) == len(REVISION) else REVISION
                self.reply(json.dumps({"id": "a/b", "sha": self.commit, "siblings": []}).encode())
            elif "/tree/" in self.path:
                entries = [
                    {
                        "type": "file",
                        "path": name,
                        "size": path.stat().st_size,
                        "oid": hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest(),
                    }
                    for name, path in files.items()
                ]
                self.reply(json.dumps(entries).encode())
            elif (name := self.path.partition("/resolve/")[2].partition("/")[2]) in files:
                self.commit = self.path.partition("/resolve/")[2].partition("/")[0]
                if self.command == "GET":
                    fetched.append(name)
                self.reply(files[name].read_bytes(), broken=name == cut)
            else:
                self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def reply(self, content: bytes, *, broken: bool = False) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", self.commit)
            digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()
            self.send_header("ETag", f'"{digest}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[: len(content) // 2] if broken else content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fetched
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "name", ["MMLongBench", "yubo2333/MMLongBench-Doc", "Lillianwei/Mdocagent-dataset/MMLongBench"]
)
def test_a_given_folder_needs_no_network(tmp_path: Path, name: str) -> None:
    folder = write_samples(tmp_path / "data", MMLONGBENCH)
    assert open_in_process(tmp_path, name, folder) == ["MMLongBench 3 lost.pdf", "not requests"]


def test_a_folder_takes_precedence_over_a_repository(tmp_path: Path) -> None:
    write_samples(tmp_path / "yubo2333" / "MMLongBench-Doc", MMLONGBENCH)
    assert open_in_process(tmp_path, "yubo2333/MMLongBench-Doc") == [
        "MMLongBench 3 lost.pdf",
        "not requests",
    ]


@pytest.mark.parametrize("name", ["LongDocURL", "Lillianwei/Mdocagent-dataset", "nobody/nothing"])
def test_unknown_names_are_errors_without_a_request(tmp_path: Path, name: str) -> None:
    message, requests = open_in_process(tmp_path, name)
    assert "Lillianwei/Mdocagent-dataset/LongDocURL" in message
    assert requests == "not requests"


def test_the_error_without_a_network_says_what_to_do(tmp_path: Path) -> None:
    message, _ = open_in_process(tmp_path, "dengchao/LongDocURL", HF_HUB_OFFLINE="1")
    assert "dengchao/LongDocURL is not on this machine" in message
    assert "--data" in message


def test_mmlongbench_is_downloaded_once(tmp_path: Path) -> None:
    repository = write_samples(tmp_path / "repository", MMLONGBENCH)
    (repository / "samples.json").unlink()
    (repository / "data").mkdir()
    parquet.write_table(pa.Table.from_pylist(MMLONGBENCH), repository / "data" / "train-0.parquet")
    (repository / "README.md").write_text("Nobody needs this.")
    with hub(repository) as (address, fetched):
        for _ in range(2):
            found = open_in_process(tmp_path, "yubo2333/MMLongBench-Doc", HF_ENDPOINT=address)
            assert found == ["MMLongBench 3 lost.pdf", "requests"]
    assert sorted(fetched) == ["data/train-0.parquet", "documents/ferries.pdf"]


def test_one_benchmark_of_the_collection_is_downloaded(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_samples(repository / "MMLongBench", MMLONGBENCH)
    write_samples(repository / "LongDocURL", MMLONGBENCH[:1])
    name = "Lillianwei/Mdocagent-dataset/LongDocURL"
    with hub(repository) as (address, fetched):
        assert open_in_process(tmp_path, name, HF_ENDPOINT=address) == ["LongDocURL 1", "requests"]
    assert sorted(fetched) == ["LongDocURL/documents/ferries.pdf", "LongDocURL/samples.json"]


def longdocurl_repository(folder: Path) -> Path:
    """Write questions, and an archive with the PDF of the first document."""
    write_lines(folder / "LongDocURL_public.jsonl", LONGDOCURL)
    pdf = write_samples(folder.parent / "made", []) / "documents" / "ferries.pdf"
    with tarfile.open(folder / "pdf_files.tar.gz", "w:gz") as archive:
        archive.add(pdf, "pdfs/4000-4999/4000001.pdf")
    return folder


def test_the_archive_of_longdocurl_is_unpacked(tmp_path: Path) -> None:
    repository = longdocurl_repository(tmp_path / "repository")
    with hub(repository) as (address, _):
        found = open_in_process(tmp_path, "dengchao/LongDocURL", HF_ENDPOINT=address)
    assert found == ["LongDocURL 2 4000002", "requests"]
    assert len(list(tmp_path.glob("cache/visar/datasets/LongDocURL-*/pdfs/*/4000001.pdf"))) == 1


def test_an_interrupted_download_is_an_error(tmp_path: Path) -> None:
    repository = write_samples(tmp_path / "repository" / "MMLongBench", MMLONGBENCH).parent
    with hub(repository, cut="MMLongBench/samples.json") as (address, _):
        name = "Lillianwei/Mdocagent-dataset/MMLongBench"
        message, _ = open_in_process(tmp_path, name, HF_ENDPOINT=address)
    assert "can't be downloaded" in message


def test_a_damaged_archive_leaves_no_files(tmp_path: Path) -> None:
    repository = longdocurl_repository(tmp_path / "repository")
    archive = repository / "pdf_files.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(DatasetError, match="unpack"):
        unpack_longdocurl(repository, tmp_path / "target" / "LongDocURL")
    assert list((tmp_path / "target").iterdir()) == []


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    repository = longdocurl_repository(tmp_path / "repository")
    with tarfile.open(repository / "pdf_files.tar.gz", "w:gz") as archive:
        archive.add(repository / "LongDocURL_public.jsonl", "../../escaped.pdf")
    with pytest.raises(DatasetError, match="unpack"):
        unpack_longdocurl(repository, tmp_path / "target" / "LongDocURL")
    assert list(tmp_path.rglob("escaped.pdf")) == []


def test_vidore_is_downloaded_by_name(tmp_path: Path) -> None:
    repository = write_parquet(tmp_path / "repository")
    (repository / "pdfs").mkdir()
    (repository / "pdfs" / "report.pdf").write_text("Nobody needs this.")
    with hub(repository) as (address, fetched):
        found = open_in_process(tmp_path, "vidore/harbour?language=french", HF_ENDPOINT=address)
    assert found == ["harbour, french 1", "requests"]
    assert sorted(set(fetched)) == [
        "corpus/test-00000-of-00002.parquet",
        "corpus/test-00001-of-00002.parquet",
        "qrels/test-00000-of-00001.parquet",
        "queries/test-00000-of-00001.parquet",
    ]
