"""Tests of the pages that all adapters return."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from PIL import Image

from tests.integrations.conftest import QUESTION
from visar.client import Client
from visar.errors import InvalidOption, StoreError
from visar.index import Index
from visar.integrations.pages import open_library, retrieve
from visar.library import Library


def test_a_page_has_text_image_and_metadata(any_library: Library) -> None:
    page = retrieve(any_library, QUESTION, dpi=72)[0]
    assert "warranty of the Aurora lantern is seven years.\nKeep the bill." in page.text
    with Image.open(io.BytesIO(page.load_png())) as image:
        assert (image.format, image.size) == ("PNG", (400, 500))
    assert json.loads(json.dumps(page.metadata)) == page.metadata
    told = page.metadata
    assert (told["name"], told["page"], told["method"]) == ("manual.pdf", 2, "visar")
    assert told["k"] <= told["k_star"] <= told["pages_searched"] == 5
    assert told["likelihood"] in ("likely", "possible", "unlikely")
    assert all(len(box) == 4 for box in told["boxes"])


def test_a_library_is_opened_by_location_or_address(index: Index, client: Client) -> None:
    for known in (index, client):
        with open_library(known.location) as opened:
            assert type(opened) is type(known)
            assert opened.documents() == known.documents()
    with pytest.raises(StoreError, match="nowhere"):
        open_library("nowhere")


def test_a_server_returns_the_same_pages_as_its_index(index: Index, client: Client) -> None:
    for k in (None, 3):
        here, there = retrieve(index, QUESTION, k), retrieve(client, QUESTION, k)
        assert here == there
        assert [page.load_png() for page in here] == [page.load_png() for page in there]


@pytest.mark.parametrize("k", [None, 1, 3, 5])
def test_pages_are_ordered_by_score(index: Index, k: int | None) -> None:
    """Frameworks fuse and sort pages by score."""
    pages = retrieve(index, QUESTION, k)
    scores = [page.score for page in pages]
    assert scores == sorted(scores, reverse=True)
    assert k is None or len(pages) == k
    assert len({page.id for page in pages}) == len(pages)


def test_options_of_a_search_are_passed_on(any_library: Library) -> None:
    beside = retrieve(any_library, QUESTION, search_kwargs={"max_k": 1, "neighbors": 1})
    assert [page.metadata["page"] for page in beside] == [2, 1, 3]


def test_k_must_be_positive(index: Index) -> None:
    with pytest.raises(InvalidOption, match="k"):
        retrieve(index, QUESTION, 0)


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("langchain_core", "visar.integrations.langchain", "langchain"),
        ("llama_index", "visar.integrations.llama_index", "llama-index"),
        ("haystack", "haystack_integrations.components.retrievers.visar", "haystack"),
    ],
)
def test_a_missing_framework_names_its_extra(package: str, module: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    error = ran.stderr.splitlines()[-1]
    assert "MissingExtra" in error
    assert f"pip install 'visar-rag[{extra}]'" in error
