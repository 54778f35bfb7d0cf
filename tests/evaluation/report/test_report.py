from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tests.evaluation.synthetic import PRIVATE, write_records, write_run
from visar.errors import MissingExtra, NotARun
from visar.evaluation.frames import read_results
from visar.evaluation.methods import METHODS
from visar.evaluation.records import RetrievalRecord, read_lines
from visar.evaluation.report import (
    InvalidPages,
    introduce,
    make_figures,
    make_tables,
    write_report,
)

AUTHORS = {"as_authors": True, "generators": ["g"], "prompt": "paper", "judges": ["paper"]}
FIGURES = {
    "figure-s1",
    "figure-s2",
    "figure-s3",
    "figure-s4",
    "figure-s5",
    "figure-s6",
    "figure-fixed-k",
    "figure-4",
    "figure-s12",
    "figure-s11",
    "figure-5-1-mmlongbench-dense",
    "figure-5-2-mmlongbench-sparse",
}
OF_SWEEPS = {"figure-s7", "figure-s8", "figure-s9", "figure-s9-quartiles"}
OF_ANSWERS = {
    "figure-budget-extractive-rules",
    "figure-4-budgets",
    "figure-s10",
    "figure-s10-sizes",
    "figure-s14-extractive-rules",
    "figure-s14-bins-extractive-rules",
}
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """A parser that collects unclosed tags, ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            elif name in ("src", "href", "xlink:href"):
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(
        tmp_path_factory.mktemp("run"),
        questions=12,
        datasets=("MMLongBench", "Own <papers> & more", "報告", "文書"),
        encoders=("embedded",),
        generators=("extractive",),
    )
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with only retrieval, without sweeps."""
    return write_run(
        tmp_path_factory.mktemp("small"),
        questions=10,
        datasets=("MMLongBench",),
        encoders=("embedded",),
        generators=(),
        groups=("main",),
    )


@pytest.fixture
def asked(small: Path, tmp_path: Path) -> Path:
    """A run that only has questions."""
    shutil.copy(small / "asked.jsonl", tmp_path)
    return tmp_path


def test_the_page_is_well_formed_and_loads_nothing(html: str) -> None:
    page = Page(html)
    assert page.wrong == []
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base"}
    twice = [one for one, count in page.ids.items() if count > 1]
    assert twice == []
    targets = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert targets <= page.ids.keys()
    # The only sources left are the matrices' pixels, which are embedded in the page.
    others = [link for link in page.links if not link.startswith("#")]
    assert all(link.startswith("data:image/png;base64,") for link in others)
    within = set(re.findall(r"url\(#([^)]*)\)", html))
    assert within
    assert within <= page.ids.keys()
    assert "@import" not in html


def test_figures_are_files_that_parse(folder: Path) -> None:
    found = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert found == FIGURES | OF_SWEEPS | OF_ANSWERS
    for path in (folder / "figures").glob("*.svg"):
        root = ET.parse(path).getroot()  # noqa: S314 - written by the report itself
        assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_markdown_shows_every_figure_and_table(folder: Path) -> None:
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(figures/([^)]*)\.svg\)", markdown)
    assert set(linked) == FIGURES | OF_SWEEPS | OF_ANSWERS
    content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert markdown.count("\n| --- ") == len(content["tables"])
    assert all(one["title"].startswith("Figure") for one in content["figures"])
    assert len({one["title"] for one in content["figures"]}) == len(content["figures"])
    for table in content["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_the_report_has_no_text_of_questions_or_answers(folder: Path, html: str) -> None:
    markdown, content = ((folder / name).read_text() for name in ("report.md", "report.json"))
    assert (folder / "answered.jsonl").read_text().count(PRIVATE) > 0
    assert PRIVATE not in html + markdown + content
    assert html.index("2026-01-02T03:04:05Z") > html.index('<h2 id="manifest">')


def test_values_from_data_are_escaped(folder: Path, html: str) -> None:
    assert "Own &lt;papers&gt; &amp; more" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<papers>" not in html
    markdown = (folder / "report.md").read_text()
    # The manifest is indented code, which isn't parsed as Markdown.
    outside = [line for line in markdown.splitlines() if not line.startswith("    ")]
    assert not any("<papers>" in line or "<script>" in line for line in outside)


def test_a_report_of_retrieval_is_deterministic(small: Path, tmp_path: Path) -> None:
    page = write_report(small, tmp_path / "one")
    write_report(small, tmp_path / "two")
    assert page == tmp_path / "one" / "report.html"
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert {path.stem for path in files if path.suffix == ".svg"} == FIGURES
    for path in files:
        same = (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()
        assert same, path
    html = page.read_text(encoding="utf-8")
    assert "No answers have been generated" in html
    assert not (small / "report.html").exists()


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("auto", "count as empty"),
        ("empty", "count as empty"),
        ("leave-out", "are left out, as in the paper"),
    ],
)
def test_the_report_explains_invalid_pages(
    small: Path, asked: Path, way: InvalidPages, sentence: str
) -> None:
    chosen, _ = read_lines(small, RetrievalRecord)
    broken = [replace(one, invalid_pages=1) for one in chosen if one.question == "q1"]
    write_records(asked / "retrieved.jsonl", [*chosen, *broken])
    page = write_report(asked, invalid_pages=way)
    assert sentence in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("plans", "sentence"),
    [
        ([{"as_authors": True}], "the paper's authors (--as-authors)."),
        ([{"as_authors": True}, {}], "Some calls of this run"),
        ([{}], "ViSAR's own definitions"),
        ([AUTHORS], "(--as-authors)."),
        # Without generators, prompt and judge don't matter.
        ([AUTHORS | {"generators": [], "prompt": "default"}], "(--as-authors)."),
        (
            [AUTHORS | {"prompt": "default", "judges": ["paper:openai:m", "rules"]}],
            "(--as-authors), but with the judge rules, the prompt default.",
        ),
    ],
)
def test_the_report_states_the_definitions(
    small: Path, plans: list[dict[str, Any]], sentence: str
) -> None:
    results = read_results(small)
    manifests = tuple({"plan": plan} for plan in plans)
    assert sentence in " ".join(introduce(replace(results, manifests=manifests)))


def test_the_report_counts_stale_and_missing_records(small: Path) -> None:
    results = read_results(small)
    assert "No records are stale or missing." in introduce(results)
    sentence = " ".join(introduce(replace(results, stale=3, missing=2)))
    assert "3 records are stale" in sentence
    assert "2 records are missing" in sentence
    again = " ".join(introduce(replace(results, stale=1)))
    assert "1 record is stale" in again
    assert "no record is missing" in again


def test_a_report_needs_only_questions(asked: Path) -> None:
    html = write_report(asked).read_text(encoding="utf-8")
    assert "No pages have been retrieved yet" in html
    assert "The run has no manifest" in html
    assert "<svg" not in html


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="No run in"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "copied"),
    [("matplotlib", "details"), ("matplotlib", "retrieved-embedded.jsonl"), ("jinja2", None)],
)
def test_the_error_without_a_package_names_the_extra(
    small: Path, asked: Path, monkeypatch: pytest.MonkeyPatch, package: str, copied: str | None
) -> None:
    if copied == "details":
        shutil.copytree(small / copied, asked / copied)
    elif copied:
        shutil.copy(small / copied, asked)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"visar-rag\[eval\]"):
        write_report(asked)
    assert not [*asked.glob("report.*")]


def test_a_damaged_detail_is_an_error_and_never_runs_code(asked: Path) -> None:
    file = asked / "details" / "one.npz"
    file.parent.mkdir()
    pickled = np.array([{}], dtype=object)
    np.savez(file, similarity=pickled, cost=pickled, k_star=1, id="x")
    for content in (file.read_bytes(), b"no archive", b""):
        file.write_bytes(content)
        with pytest.raises(NotARun, match=r"one\.npz"):
            write_report(asked)


@pytest.mark.parametrize("method", [*METHODS, "their:method"])
def test_a_report_works_with_any_single_method(small: Path, asked: Path, method: str) -> None:
    """Tables and figures that need other methods are omitted."""
    chosen = [one for one in read_lines(small, RetrievalRecord)[0] if one.question in ("q1", "q5")]
    alone = [replace(one, method=method) for one in chosen if one.method == "visar"]
    write_records(asked / "retrieved.jsonl", alone)
    results = read_results(asked)
    assert make_tables(results)[0].key == "questions"
    make_figures(results, ())
