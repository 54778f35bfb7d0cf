"""The name of the distribution: the package ``visar`` on PyPI is somebody else's."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.repository import ROOT, tracked_files
from visar._version import DISTRIBUTION
from visar.errors import MissingExtra, install_hint

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = "|".join(map(re.escape, PROJECT["optional-dependencies"]))
# The name alone, not the beginning of visar-rag, visar/ or visar.something.
STRANGER = r"visar(?:\[[^\]]*\])?(?![\w\[/-]|\.\w)"
INSTALLED = re.compile(
    # A command that installs packages, or runs one that it gets: with options before the name.
    r"\b(?:(?:pip3?|pipx|uv|uv tool) (?:install|add|download)|uvx|pipx run)"
    rf"(?: +-\S+)* +['\"]?{STRANGER}"
    # An extra of it, in a table or a list of dependencies.
    rf"|(?<![\w.-])visar\[(?:{EXTRAS})[\],]"
)


def test_no_file_tells_anyone_to_install_the_package_of_a_stranger() -> None:
    found = []
    for path in tracked_files():
        if path.name == "CHANGELOG.md":  # which tells what things were called
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture, or an array
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in INSTALLED.finditer(text)]
    assert not found


@pytest.mark.parametrize("extras", ["", "[ocr]", "[eval,colpali]"])
@pytest.mark.parametrize(
    "command",
    [
        "pip install {}",
        "pip install '{}'",
        'pip install "{}"',
        "visrag/bin/pip install '{}' && x",
        "pip install --upgrade {}, or",
        "uv pip install '{}'",
        "uv tool install {}",
        "uvx {} ask",
        "uvx --from '{}' visar ask",
        "pipx run {}",
    ],
)
def test_the_check_sees_every_spelling(command: str, extras: str) -> None:
    assert INSTALLED.search(command.format(f"visar{extras}"))
    assert not INSTALLED.search(command.format(f"{DISTRIBUTION}{extras}"))


def test_the_check_sees_extras_without_a_command() -> None:
    for extra in PROJECT["optional-dependencies"]:
        assert INSTALLED.search(f"needs `visar[{extra}]`")
        assert not INSTALLED.search(f"needs `{DISTRIBUTION}[{extra}]`")
    assert not INSTALLED.search("sum(visar[q] for q in visar)")


def test_the_project_has_the_name_that_messages_give() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert set(PROJECT["scripts"]) == {"visar", DISTRIBUTION}
    assert str(MissingExtra("OCR", "ocr")).endswith(install_hint("ocr"))
    within = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    assert [one for one in within if re.match(r"visar\b(?!-rag\[)", one)] == []


def test_every_extra_that_is_named_exists() -> None:
    named = {
        extra
        for path in tracked_files()
        if path.suffix in (".md", ".py", ".yaml", ".ipynb", ".toml")
        for listed in re.findall(rf"{DISTRIBUTION}\[([a-z,-]+)\]", path.read_text("utf-8"))
        for extra in listed.split(",")
    }
    assert named <= set(PROJECT["optional-dependencies"])
