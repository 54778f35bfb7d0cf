"""The site builds without a broken link, and its tutorial and worked example do what they show."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from tests.docs.shown import assert_shown, commands, read
from tests.programs import run_shown

ROOT = Path(__file__).parents[2]
TUTORIAL, METHOD = read("tutorial.md"), read("method.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """Where a reader tries the pages: the report under the name they give it, in an index."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(report, folder / "annual-report.pdf")
    return folder


class Page(HTMLParser):
    """The addresses that a page names, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "base":
                self.names.append(value)
            if name == "id" and value:
                self.anchors.add(value)


def test_the_site_has_no_broken_link(tmp_path: Path) -> None:
    """Neither to a page nor to a heading, also in what is made from docstrings."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "site"
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 20
    for path, page in pages.items():
        for name in page.names:
            link = urlsplit(name)
            if link.scheme or link.netloc:
                continue
            target = (path.parent / unquote(link.path)).resolve() if link.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)} names {name}"
            if link.fragment and target in pages and not link.fragment.startswith("__"):
                anchors = pages[target].anchors
                assert unquote(link.fragment) in anchors, f"{path.relative_to(site)}: {name}"


def test_the_tutorial_runs(folder: Path) -> None:
    found = commands(TUTORIAL)
    assert len(found) > 4
    for command, shown in found:
        ran = run_shown(command, folder, COLUMNS="100")
        assert ran.returncode == 0, (command, ran.stderr)
        assert_shown(shown, ran.stdout)
    assert list((folder / "pages").glob("*.png"))
    assert (folder / "why.html").exists()


def test_the_worked_example_has_the_numbers_it_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block prints what stands below it.

    Processors multiply 8-bit numbers differently, and so the vectors of the model differ enough to
    move a page across the border between active and inactive.
    """
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", METHOD, flags=re.S)
    assert len(blocks) > 5
    with np.printoptions():  # which the page sets
        for code, shown in blocks:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)  # noqa: S102
            number = r"-?\d+\.?\d*"
            printed, told = (re.findall(number, text) for text in (out.getvalue(), shown))
            assert re.sub(number, "", out.getvalue()).split() == re.sub(number, "", shown).split()
            np.testing.assert_allclose(
                np.array(printed, float), np.array(told, float), rtol=0.3, atol=0.1
            )


def test_the_menu_names_each_page_once() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r": (\S+\.md)$", menu, flags=re.M)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(named) == sorted(pages)
