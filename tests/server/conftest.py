"""A server whose index has a small document, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pikepdf
import pytest

from tests.conftest import write_pdf
from tests.server.service import client, serving
from visar.index import Index


def encrypt(path: Path, password: str) -> Path:
    """Write a copy of a PDF that needs a password, and return its path."""
    locked = path.with_name(f"locked-{path.name}")
    with pikepdf.open(path) as pdf:
        pdf.save(locked, encryption=pikepdf.Encryption(owner=password, user=password))
    return locked


@pytest.fixture(scope="session")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PDF with five pages, two of which are about the same topic."""
    return write_pdf(
        tmp_path_factory.mktemp("manual") / "manual.pdf",
        "Lantern manual.\nThis book is about the Aurora lantern.",
        "Warranty. The warranty of the Aurora lantern is seven years.\nKeep the bill.",
        "Cleaning. Wipe the glass with a dry cloth every month.",
        "Repairs. Repairs under the warranty of seven years are free.",
        "Contact. Write to the harbour office in Whitby.",
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, manual: Path) -> Iterator[Index]:
    with Index.open(tmp_path_factory.mktemp("server") / "index") as index:
        index.add(manual)
        yield index


@pytest.fixture(scope="module")
def address(index: Index) -> Iterator[str]:
    with serving(index) as address:
        yield address


@pytest.fixture(scope="module")
def http(address: str) -> Iterator[httpx2.Client]:
    with client(address) as http:
        yield http


@pytest.fixture(scope="module")
def document(index: Index) -> str:
    """Id of the manual."""
    return index.get("manual.pdf").id
