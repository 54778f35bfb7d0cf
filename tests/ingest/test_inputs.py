"""Test documents in object storage, and storage options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.conftest import FirstWord
from tests.storage import bucket as bucket
from visar.documents import Limits
from visar.errors import DocumentError, InvalidOption
from visar.ingest.batch import Batch, Input, filesystem, find_inputs
from visar.results import Document, EncoderRef, Refusal
from visar.store import Store, open_store, storage_options

TEXT = EncoderRef("text", "1", 4)


def put(address: str, content: bytes) -> None:
    files, key = filesystem(address, {})
    with files.open_output_stream(key) as stream:
        stream.write(content)


def add(store: Store, *places: str) -> list[tuple[str, Document | Refusal]]:
    encoder, results = FirstWord(), list[tuple[str, Document | Refusal]]()
    Batch(store, encoder, encoder).add_all(places, each=lambda *one: results.append(one))
    return results


def test_prefix_is_expanded(bucket: str) -> None:
    for key in ("b10.pdf", "b2.pdf", "deep/er/c.PDF", "notes.txt", ".hidden/d.pdf", "~$e.docx"):
        put(f"{bucket}/prefix/{key}", b"%PDF-1.7")
    put(f"{bucket}/prefix/film.mp4", b"film")
    put(f"{bucket}/prefix/song.mp3", b"%PDF-1.7")
    places = [f"{bucket}/prefix/", f"{bucket}/prefix/song.mp3"]
    found, refused, skipped = find_inputs(places, {})
    keys = [one.path.removeprefix(f"{bucket}/prefix/") for one in found]
    # Named objects are documents, whatever their suffix.
    assert keys == ["b2.pdf", "b10.pdf", "deep/er/c.PDF", "notes.txt", "song.mp3"]
    assert skipped == [f"{bucket}/prefix/film.mp4"]
    assert refused == []
    assert {one.size for one in found} == {8}


def test_missing_objects_are_refused(bucket: str) -> None:
    urls = [f"{bucket}/nothing", "s3://no-such-bucket/x"]
    found, refused, _ = find_inputs(urls, {})
    assert found == []
    assert [one.path for one in refused] == urls
    for one in refused:
        assert one.path in one.reason
    with pytest.raises(InvalidOption, match=r"ftp://host/file\.pdf"):
        find_inputs(["ftp://host/file.pdf"], {})


def test_object_is_added_and_replaced(
    bucket: str, store: Store, make_pdf: Callable[..., Path]
) -> None:
    address = f"{bucket}/added/some report.pdf"
    put(address, make_pdf("one.pdf", "Alpha.", "Beta.").read_bytes())
    ((_, added),) = add(store, f"{bucket}/added")
    assert isinstance(added, Document)
    assert (added.name, added.source, added.pages) == ("some report.pdf", address, 2)
    assert store.original(added.id) is not None
    put(address, make_pdf("two.pdf", "Gamma.").read_bytes())
    add(store, address)
    assert [one.pages for one in store.documents()] == [1]
    # A copy at another key is the same document, and keeps its first name.
    put(f"{bucket}/added/z.pdf", make_pdf("two.pdf", "Gamma.").read_bytes())
    add(store, f"{bucket}/added/z.pdf")
    assert [one.name for one in store.documents()] == ["some report.pdf"]
    put(f"{bucket}/added/broken.pdf", b"not a PDF")
    results = dict(add(store, f"{bucket}/added"))
    assert [type(one) for one in results.values()] == [Refusal, Document, Document]


def test_large_object_is_not_downloaded(bucket: str) -> None:
    item = Input(f"{bucket}/missing.pdf", size=2_000)
    with (
        pytest.raises(DocumentError, match=r"2,000.*1,000"),
        item.local(Limits(max_bytes=1_000), {}),
    ):
        pass


def test_unchanged_object_is_not_read_again() -> None:
    now = datetime.now(UTC)
    known = Document("id", "a.pdf", 1, 8, now, (TEXT,), "s3://b/a.pdf")
    item = Input("s3://b/a.pdf", 8, now - timedelta(hours=2))
    assert item.is_stored(known, TEXT)
    # Not if it was written during the addition, has another size, or lacks these vectors.
    assert not replace(item, modified=now - timedelta(minutes=10)).is_stored(known, TEXT)
    assert not replace(item, size=9).is_stored(known, TEXT)
    assert not item.is_stored(known, EncoderRef("text", "2", 4))
    assert not item.is_stored(None, TEXT)


def test_storage_options_of_the_command_line_and_the_environment(
    bucket: str, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    put(f"{bucket}/options/a.pdf", make_pdf("a.pdf", "Alpha.").read_bytes())
    options = {
        "aws_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    clean["HOME"] = str(tmp_path)

    def run(*words: str, **variables: str) -> Any:
        command = [
            sys.executable,
            "-m",
            "visar",
            *words,
            "--json",
            "--index",
            f"{bucket}/by-option",
        ]
        ran = subprocess.run(
            command, env=clean | variables, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    typed = [
        part for key, value in options.items() for part in ("--storage-option", f"{key}={value}")
    ]
    encoder = "tests.ingest.conftest:FirstWord"
    added = run("add", f"{bucket}/options", "--encoder", encoder, *typed)
    assert [one["source"] for one in added["added"]] == [f"{bucket}/options/a.pdf"]
    variable = " ".join(f"{key}={value}" for key, value in options.items())
    assert [one["name"] for one in run("list", VISAR_STORAGE_OPTIONS=variable)] == ["a.pdf"]


def test_arguments_override_storage_options_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VISAR_STORAGE_OPTIONS", "aws_region=a 'path=with space'")
    assert storage_options({"aws_region": "b"}) == {"aws_region": "b", "path": "with space"}
    for invalid in ("secret", "'unfinished"):
        monkeypatch.setenv("VISAR_STORAGE_OPTIONS", invalid)
        with pytest.raises(InvalidOption):
            open_store("s3://bucket/index")
