"""The name of the distribution, since ``visar`` on PyPI is another project."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.repository import ROOT, tracked_files
from visar._version import DISTRIBUTION
from visar.errors import MissingExtra, install_hint

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = "|".join(map(re.escape, PROJECT["optional-dependencies"]))
# The name by itself, not the start of visar-rag, visar/ or visar.something.
OTHER_PROJECT = r"visar(?:\[[^\]]*\])?(?![\w\[/-]|\.\w)"
INSTALLED = re.compile(
    # A command that installs or runs packages, with options before the name.
    r"\b(?:(?:pip3?|pipx|uv|uv tool) (?:install|add|download)|uvx|pipx run)"
    rf"(?: +-\S+)* +['\"]?{OTHER_PROJECT}"
    # One of its extras, in a table or a list of dependencies.
    rf"|(?<![\w.-])visar\[(?:{EXTRAS})[\],]"
)


def test_no_file_tells_users_to_install_the_other_project() -> None:
    found = []
    for path in tracked_files():
        if path.name == "CHANGELOG.md":  # it mentions old names
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # an image or an array
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
def test_the_pattern_matches_every_spelling(command: str, extras: str) -> None:
    assert INSTALLED.search(command.format(f"visar{extras}"))
    assert not INSTALLED.search(command.format(f"{DISTRIBUTION}{extras}"))


def test_the_pattern_matches_extras_without_a_command() -> None:
    for extra in PROJECT["optional-dependencies"]:
        assert INSTALLED.search(f"needs `visar[{extra}]`")
        assert not INSTALLED.search(f"needs `{DISTRIBUTION}[{extra}]`")
    assert not INSTALLED.search("sum(visar[q] for q in visar)")


def test_messages_use_the_name_of_the_project() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert set(PROJECT["scripts"]) == {"visar", DISTRIBUTION}
    assert str(MissingExtra("OCR", "ocr")).endswith(install_hint("ocr"))
    required = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    assert [one for one in required if re.match(r"visar\b(?!-rag\[)", one)] == []


def test_every_mentioned_extra_exists() -> None:
    named = {
        extra
        for path in tracked_files()
        if path.suffix in (".md", ".py", ".yaml", ".ipynb", ".toml")
        for listed in re.findall(rf"{DISTRIBUTION}\[([a-z,-]+)\]", path.read_text("utf-8"))
        for extra in listed.split(",")
    }
    assert named <= set(PROJECT["optional-dependencies"])
