"""Tests of the files that ``visar explain`` writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.explain.browser import needs_chromium, opened
from tests.explain.quoted import PAGE, quoted_table
from visar.explain.report import _SCRIPTS, _static, _without_modules, html_report
from visar.index import Index

QUESTION = "How did capital expenditure change between 2020 and 2024?"
MARKUP = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def written(library: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report and the pictures of a question about the example."""
    folder = tmp_path_factory.mktemp("explain")
    arguments = ["--index", library.location, "--out", "report.html", "--png", "png"]
    ran = subprocess.run(
        [sys.executable, "-m", "visar", "explain", QUESTION, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ViSAR 3" in ran.stdout
    assert "report.html" in ran.stdout
    return folder


def data_of(report: Path) -> Any:
    (data,) = re.findall(r'id="data">(.*?)</script>', report.read_text("utf-8"), flags=re.S)
    return json.loads(data)


@needs_chromium
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_report_is_complete_and_makes_no_requests(
    written: Path, theme: Literal["light", "dark"]
) -> None:
    with opened(written / "report.html", theme) as seen:
        page = seen.page
        assert page.locator("h1").inner_text() == QUESTION
        assert page.title() == QUESTION
        assert (
            "from £21.4 million in 2020 to £47.5 million"
            in page.locator(".card").first.inner_text()
        )
        assert page.locator(".hit").count() == 3
        assert page.locator(".reasons rect.page").count() == 40
        assert page.locator(".reasons rect.page.chosen").count() == 3
        assert page.locator(".reasons .matrix canvas").count() == 1
        assert page.locator(".reasons polyline").count() == 1
        assert "3 of 40 pages" in page.locator("main").inner_text()
        # The pictures are there and drawn.
        assert page.evaluate("[...document.images].every((one) => one.naturalWidth > 500)")
        inked = (
            "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
        )
        heat = page.locator(".sheet canvas")
        assert heat.count() == 3
        everything = heat.first.evaluate(f"{inked}.data.filter((value) => value).length")
        assert everything > 1000
        # Two of the chosen pages are compared without a server.
        compared = page.locator(".pairs")
        compared.locator(".mini").nth(1).wait_for()
        assert "Page 36 with page 4" in compared.inner_text()
        assert compared.locator(".patch").count() > 3
        page.get_by_role("button", name="By page").click()
        assert page.locator(".marks .spot").count() == 3
        page.get_by_role("button", name="By rank").click()
        page.get_by_role("button", name="expenditure", exact=True).click()
        word = heat.first.evaluate(f"{inked}.data.filter((value) => value).length")
        assert word not in (0, everything)
        page.locator(".cite").first.click()
        assert page.evaluate("window.scrollY") > 500
        assert not seen.requests
        assert not [one for one in seen.complaints if "willReadFrequently" not in one]


@needs_chromium
def test_text_of_documents_is_never_markup(
    visar: Visar, make_pdf: Callable[..., Path], tmp_path: Path
) -> None:
    document = make_pdf("<b>bold<b>.pdf", f"The warranty is seven years.\n{MARKUP}", "The rest.")
    report = tmp_path / "report.html"
    ran = visar("explain", document, f"How long is the warranty {MARKUP}?", "--out", report)
    assert ran.code == 0, ran.err
    with opened(report) as seen:
        assert MARKUP in seen.page.locator("h1").inner_text()
        assert "<b>bold<b>.pdf" in seen.page.locator("main").inner_text().lower()
        assert seen.page.title() == f"How long is the warranty {MARKUP}?"
        assert seen.page.locator("script").count() == 2
        assert seen.page.locator("img[onerror]").count() == 0
        assert not seen.requests
        assert not seen.complaints


def test_a_report_has_no_local_paths(written: Path, library: Index) -> None:
    text = (written / "report.html").read_text("utf-8")
    assert library.location not in text
    assert library.documents()[0].source not in text
    # The last is what links of written answers are checked with.
    known = r"http-equiv|http://www\.w3\.org/2000/svg|/\^https\?:"
    assert "http" not in re.sub(known, "", text)


def test_scripts_are_concatenated() -> None:
    script = "".join(_without_modules(_static(name)) for name in _SCRIPTS)
    assert not re.search(r"^\s*(import|export)\b", script, flags=re.M)
    assert "</" not in script
    # Nothing may be declared twice in one script.
    declared = re.findall(r"^(?:function|const|let|class) (\w+)", script, flags=re.M)
    assert len(declared) == len(set(declared)) > 10


def test_pictures_show_the_chosen_pages(written: Path) -> None:
    names = sorted(path.name for path in (written / "png").iterdir())
    report = "harbour-light-annual-report-page"
    assert names == [
        f"01-{report}-36.png", f"02-{report}-4.png", f"03-{report}-21.png",
        "activity.png", "cost.png", "similarity.png",
    ]  # fmt: skip
    for name in ("activity", "cost", "similarity"):
        with Image.open(written / "png" / f"{name}.png") as picture:
            pixels = np.asarray(picture.convert("RGB"), int)
        assert min(picture.size) >= 600
        accent = (np.abs(pixels - [0xC2, 0x41, 0x0C]).sum(axis=2) < 20).mean()
        assert 0 < accent < 0.2
        # Nothing is cut off at the edges.
        edges = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert (edges == 255).all()


def test_json_has_the_answer_the_explanation_and_the_files(
    visar: Visar, library: Index, tmp_path: Path
) -> None:
    report = tmp_path / "new" / "report.html"
    ran = visar("explain", QUESTION, "--index", library.location, "--out", report, "--json")
    shown = json.loads(ran.out)
    assert shown["written"] == [str(report)]
    assert [hit["page"] for hit in shown["answer"]["search"]["pages"]] == [36, 4, 21]
    explanation = shown["explanation"]
    assert len(explanation["pages"]) == 40
    active = [one for one in explanation["pages"] if one["activity"]]
    assert np.shape(explanation["similarity"]) == (len(active), len(active))
    data = data_of(report)
    assert set(data) == {"answer", "explanation", "pictures", "pairs", "numbers"}
    similarity = data["explanation"].pop("similarity")
    np.testing.assert_allclose(similarity, explanation.pop("similarity"), rtol=0.01)
    assert data["explanation"] == explanation
    search = data["answer"]["search"]
    assert [hit["page"] for hit in search["pages"]] == [36, 4, 21]
    assert search["passages"] == data["answer"]["passages"]
    assert data["answer"]["generation"] is None


@needs_chromium
def test_a_quoted_table_is_cropped_from_its_page(library: Index, tmp_path: Path) -> None:
    table = quoted_table(library)
    answer = library.ask("What were dividends per share in 2024?")
    assert PAGE in [hit.page for hit in answer.pages]
    report = tmp_path / "report.html"
    explanation = library.explain(answer.search)
    quoting = replace(answer, passages=(table, replace(table, text="Another row")))
    report.write_text(html_report(library, quoting, explanation), "utf-8")
    with opened(report) as seen:
        # Rows of the same page are shown in one picture.
        assert seen.page.get_by_alt_text(f"{table.text}\nAnother row").is_visible()
        assert seen.page.locator(".cut").count() == 1
        assert seen.page.locator(".cut .spot").count() == 2
        assert (seen.requests, seen.complaints) == ([], [])
    # Without a picture of the page the text is quoted.
    quoting = replace(answer, passages=(replace(table, page=39),))
    report.write_text(html_report(library, quoting, explanation), "utf-8")
    with opened(report) as seen:
        assert "2024: 12.0" in seen.page.locator(".text").first.inner_text()


def test_other_methods_and_single_pages_can_be_explained(
    visar: Visar, make_pdf: Callable[..., Path], library: Index, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    command = ["explain", QUESTION, "--index", library.location, "--out", str(report)]
    assert visar(*command, "--method", "top-k", "--k", "2").code == 0
    summary = data_of(report)["answer"]["search"]["summary"]
    assert re.search("2 of 40 pages.*top-k", summary)
    single = make_pdf("single.pdf", "The warranty is seven years.")
    ran = visar("explain", single, "How long is the warranty?", "--out", report, "--png", tmp_path)
    assert ran.code == 0, ran.err
    assert (tmp_path / "cost.png").exists()


@needs_chromium
@pytest.mark.parametrize(("k", "is_first"), [("3", True), ("7", False)])
def test_the_frame_has_the_chosen_pages_only_if_they_rank_first(
    visar: Visar, library: Index, tmp_path: Path, k: str, is_first: bool
) -> None:
    """Late interaction ranks the same three pages first, then others."""
    report = tmp_path / "report.html"
    command = ["explain", QUESTION, "--index", library.location, "--out", str(report)]
    assert visar(*command, "--method", "top-k", "--k", k).code == 0
    with opened(report) as seen:
        caption = seen.page.locator(".reasons figcaption").first.inner_text()
        assert ("ViSAR" in caption) is not is_first
        assert seen.page.locator(".methods tr.used th").inner_text() == "Top 10"
        # 3 of the active pages either way.
        active = len(data_of(report)["explanation"]["similarity"])
        width = seen.page.locator(".matrix .spot").evaluate("(one) => one.style.width")
        assert float(width.rstrip("%")) == pytest.approx(100 * 3 / active, abs=0.01)


def test_a_file_that_cannot_be_written_is_reported(
    visar: Visar, library: Index, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for option in ("--out", "--png"):
        target = tmp_path / "file" / "below"
        ran = visar("explain", QUESTION, "--index", library.location, option, target)
        assert ran.code == 2
        assert str(target) in ran.err
