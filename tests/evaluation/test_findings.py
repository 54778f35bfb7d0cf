from __future__ import annotations

import json
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.evaluation.synthetic import DATASETS, write_records, write_run
from visar.errors import NotARun
from visar.evaluation.findings import (
    Findings,
    invalid_pages,
    questions_with_pages_outside,
    read_findings,
    skipped_documents,
)
from visar.evaluation.manifest import (
    Manifest,
    Skipped,
    describe_machine,
    finish,
    read_manifests,
    write_manifest,
)
from visar.evaluation.records import Asked, writer_name

ASKED = Asked("q1", "D", "a.pdf", 9, (2, 3), answerable=True)


def test_what_a_crashed_writer_left_is_passed_over(tmp_path: Path) -> None:
    whole = json.dumps(asdict(ASKED))
    (tmp_path / "asked.jsonl").write_text(f'{whole}\n{{"questi\n\n{whole}\n{whole[:30]}')
    findings = read_findings(tmp_path)
    assert findings.asked == (ASKED,)
    # The end may still be written; a broken line in the middle never will.
    assert findings.unreadable == ("asked.jsonl, line 2",)


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="holds no run"):
        read_findings(tmp_path)
    with pytest.raises(NotARun, match="is not a folder"):
        read_findings(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Invalid JSON"),
        ("[1]", "it must be an object"),
        ('{"skipped": {"missing": []}}', "skipped, missing must be an object"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str, said: str) -> None:
    write_records(tmp_path / "asked.jsonl", [ASKED])
    (tmp_path / "manifest.1.json").write_text(content)
    with pytest.raises(NotARun, match=rf"manifest\.1\.json is no manifest: {said}"):
        read_findings(tmp_path)


def test_a_manifest_comes_back_with_what_other_versions_know(tmp_path: Path) -> None:
    write_records(tmp_path / "asked.jsonl", [ASKED])
    (tmp_path / "manifest.a.json").write_text('{"visar": "2", "started": "2"}')
    (tmp_path / "manifest.b.json").write_text('{"visar": "1", "started": "1", "more": [1]}')
    assert read_findings(tmp_path).manifests == (
        {"visar": "1", "started": "1", "more": [1]},
        {"visar": "2", "started": "2"},
    )


def _write_manifests(folder: Path, share: int) -> None:
    for _ in range(20):
        manifest = Manifest(plan={"share": [share, 2]})
        writer = writer_name()
        write_manifest(folder, writer, manifest)
        skipped = Skipped(missing={"D": [f"{share}.pdf"]})
        write_manifest(folder, writer, finish(manifest, skipped, {}))


def test_calls_of_several_processes_do_not_lose_each_others_manifests(tmp_path: Path) -> None:
    context = get_context("spawn")
    writers = [context.Process(target=_write_manifests, args=(tmp_path, n)) for n in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_manifests(tmp_path)
    assert len(found) == 40
    assert all(manifest["finished"] for manifest in found)
    assert {manifest["skipped"]["missing"]["D"][0] for manifest in found} == {"1.pdf", "2.pdf"}


def test_a_machine_without_sysconf_has_an_unknown_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sysconf", raising=False)
    assert describe_machine()["memory_gib"] == "unknown"


def test_what_was_skipped_comes_from_the_manifests(tmp_path: Path) -> None:
    findings = read_findings(write_run(tmp_path, questions=5, generators=(), encoders=()))
    skipped = {"gone.pdf": "missing", "locked.pdf": "locked.pdf is encrypted"}
    assert skipped_documents(findings, "MMLongBench") == skipped
    assert skipped_documents(findings, "MMLongBench, corrected") == skipped
    assert skipped_documents(findings, DATASETS[-1]) == {}
    assert questions_with_pages_outside(findings, "MMLongBench") == ["q1"]
    assert invalid_pages(findings) == {"colpali": 2}


def test_a_manifest_that_says_nothing_of_it_is_no_obstacle() -> None:
    findings = Findings((ASKED,), manifests=({"visar": "1"},))
    assert skipped_documents(findings, "D") == {}
    assert questions_with_pages_outside(findings, "D") == []
    assert invalid_pages(findings) == {}
