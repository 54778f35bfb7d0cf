"""``visar search --image``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from tests.encoders.samples import picture

Make = Callable[[str], Path]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder of four pictures, each a page."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for number in range(1, 5):
        picture(number, 120, 160).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("family", ["colsmol", "colqwen2.5"])
def test_a_picture_of_a_page_finds_it(
    visar: Visar, checkpoint: Make, family: str, pages: Path
) -> None:
    """Also with random weights: what is the same has the same vectors."""
    name = str(checkpoint(family))
    options = ("--encoder", name, "--device", "cpu", "--json", "--quiet")
    for number in (3, 1):
        ran = visar("search", pages, "--image", pages / f"{number}.png", *options)
        assert ran.code == 0, ran.err
        found = json.loads(ran.out)
        assert found["pages"][0]["page"] == number
        assert found["query"]["question"] == ""
    # Without files: what is in the index.
    assert json.loads(visar("search", "--image", pages / "2.png", *options).out)["k"] >= 1


def test_text_encoders_refuse_images_and_name_visual_ones(visar: Visar, pages: Path) -> None:
    ran = visar("search", pages, "--image", pages / "1.png")
    assert ran.code == 2
    assert "embedded" in ran.err
    assert "colsmol-256m" in ran.err
    assert "pages" not in visar("list").out, "nothing was added for it"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["What is this?", "--image", "1.png"], "--image"),
        (["--image", "1.png", "--server", "http://127.0.0.1:1"], "--image"),
        (["--image", "no.png"], "no.png"),
        (["--image", "text.png"], "text.png"),
        ([], "visar ask"),
    ],
)
def test_errors_name_the_option_or_file(
    visar: Visar,
    checkpoint: Make,
    pages: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    (pages / "text.png").write_text("no picture")
    monkeypatch.chdir(pages)
    visar("add", "1.png")
    ran = visar("search", *arguments, "--encoder", checkpoint("colsmol"))
    assert ran.code == 2
    assert expected in ran.err
    assert "Traceback" not in ran.err
