"""A quick smoke test of an encoder or generator, with three pages and a question.

It checks a model's output against known values: the number of vectors, the grid of patches, vector
lengths, the ranking of three pages of the example report, and stored scores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from visar.core.selection import maxsim
from visar.documents.document import open_document
from visar.documents.options import ReadOptions
from visar.encoders.encoder import Encoder
from visar.encoders.names import parse_name
from visar.encoders.registry import available_encoders, get_encoder
from visar.errors import CheckpointError, InvalidOption, InvalidVectors, VisarError
from visar.generation import extractive
from visar.generation.answering import Budget, answer_from, page_text
from visar.generation.generator import Generator
from visar.generation.prompts import GivenPage, PromptName
from visar.generation.registry import available_generators, get_generator, is_served
from visar.models.checkpoints import is_checkpoint_name
from visar.models.protocols import identity_of
from visar.samples import REPORT

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.documents.page import Page

QUESTION = "How long is the warranty on the Aurora 4 lantern?"
PAGES = (10, 21, 34)
"""The page of the example report with the answer, and two unrelated pages."""
ANSWERS = ("seven", "7")
# Tolerance for the length of unit vectors in float16.
_LENGTH_TOLERANCE = 2e-3
# Tolerance for 8-bit products, which vary by processor.
_SCORE_TOLERANCE = 0.03
_MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Check:
    """The expected and actual value of a property of a model."""

    name: str
    expected: str
    found: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks of an encoder or a generator."""

    name: str
    kind: str
    """"encoder" or "generator"."""
    identity: str
    """The checkpoint with its commit, or the version."""
    checks: tuple[Check, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


# The known values of encoders for an A4 page at 144 dpi.
_REFERENCES: Mapping[str, Mapping[str, int | str]] = {
    "embedded": {"page: vectors": 210, "question: vectors": 12},
    "colpali": {"page: patches": 1024, "page: grid": "32 × 32", "page: vectors": 1030},
    "colqwen2.5": {"page: patches": 736, "page: grid": "32 × 23", "page: vectors": 747},
    # Twelve tiles and the whole page, with 64 patches each.
    "colmodernvbert": {"page: patches": 13 * 64},
    "visrag-ret": {"page: vectors": 1},
}
# The mean cosine of the question with each page.
_SCORES: Mapping[str, tuple[float, ...]] = {"embedded": (0.653, 0.280, 0.376)}


def open_model(
    name: str, *, base_url: str | None = None, device: str = "auto"
) -> Encoder | Generator:
    """Return an encoder or generator by name; a checkpoint is tried as both.

    Raises InvalidOption if the name is unknown or the generator has no model.
    """
    if name == extractive.NAME:
        raise InvalidOption("The generator 'extractive' has no model to verify: choose another.")
    known = name.partition("=")[0]
    generators = {info.name for info in available_generators()}
    if is_served(name) or known in generators:
        return get_generator(name, base_url=base_url, device=device)
    try:
        return get_encoder(name, device=device)
    except (CheckpointError, InvalidOption) as refused:
        if not is_checkpoint_name(name):
            encoders = {info.name for info in available_encoders()}
            names = ", ".join(sorted(encoders | generators - {extractive.NAME}))
            raise InvalidOption(
                f"No encoder or generator {name!r}. Choose {names}, or give a checkpoint."
            ) from refused
        try:
            return get_generator(name, device=device)
        except VisarError:
            raise refused from None


def verify(model: Encoder | Generator) -> Verification:
    """Run a model on pages of the example report and check its output."""
    started = time.perf_counter()
    if isinstance(model, Generator):
        kind, checks = "generator", tuple(_generator_checks(model))
    else:
        kind, checks = "encoder", tuple(_encoder_checks(model))
    return Verification(
        name=model.name,
        kind=kind,
        identity=identity_of(model),
        checks=checks,
        seconds=time.perf_counter() - started,
    )


def _sample_pages() -> tuple[list[Page], list[Image]]:
    with open_document(REPORT, ReadOptions(ocr="never")) as document:
        return [document.page(n) for n in PAGES], [document.image(n) for n in PAGES]


def _encoder_checks(encoder: Encoder) -> Iterator[Check]:
    name = parse_name(encoder.name).published
    pages, images = _sample_pages()
    given = images if encoder.reads == "image" else []
    found = encoder.encode_pages(pages, given)
    first = found[0]
    question = encoder.encode_query(QUESTION)
    invalid = [f"page {n}" for n, one in zip(PAGES, found, strict=True) if one.invalid]
    yield _expect("pages without vectors", "none", ", ".join(invalid) or "none")
    yield from _vector_checks("page", first.vectors, encoder.dimension, "float16")
    yield from _vector_checks("question", question, encoder.dimension, "float32")
    boxes = first.boxes[first.boxes.any(axis=1)]
    within = bool(len(boxes)) and bool((boxes >= 0).all() and (boxes <= 1).all())
    yield Check("page: boxes", "on the page", "on the page" if within else "elsewhere", within)
    rows, columns = (len(np.unique(boxes[:, side])) for side in (1, 0))
    sizes = {
        "page: vectors": len(first.vectors),
        "page: patches": len(boxes),
        "page: grid": f"{rows} × {columns}",
        "question: vectors": len(question),
    }
    reference = _REFERENCES.get(name, {})
    yield from (_expect(what, reference[what], sizes[what]) for what in sizes if what in reference)
    (again,) = encoder.encode_pages(pages[:1], given[:1])
    difference = _largest_difference(first.vectors, again.vectors)
    yield Check("same page again", "at most 0.01 apart", f"{difference:.4f}", difference <= 0.01)
    try:
        scores = maxsim(question, [page.vectors for page in found]) / len(question)
    except InvalidVectors as error:
        yield Check("closest page", str(PAGES[0]), str(error), ok=False)
        return
    yield _expect("closest page", PAGES[0], PAGES[int(np.argmax(scores))])
    for number, expected, score in zip(PAGES, _SCORES.get(name, ()), scores, strict=False):
        is_near = bool(abs(score - expected) <= _SCORE_TOLERANCE)
        yield Check(f"score of page {number}", f"{expected:.3f}", f"{score:.3f}", is_near)


def _vector_checks(what: str, vectors: Any, dimension: int, dtype: str) -> Iterator[Check]:
    yield _expect(f"{what}: dimensions", dimension, vectors.shape[-1])
    yield _expect(f"{what}: number format", dtype, vectors.dtype.name)
    is_finite = bool(len(vectors)) and bool(np.isfinite(vectors).all())
    yield Check(f"{what}: values", "finite", "finite" if is_finite else "not finite", is_finite)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1) if is_finite else [math.nan]
    furthest = max(lengths, key=lambda length: abs(length - 1))
    is_unit = bool(abs(furthest - 1) <= _LENGTH_TOLERANCE)
    yield Check(f"{what}: length", f"1 ± {_LENGTH_TOLERANCE:g}", f"{furthest:.4f}", is_unit)


def _largest_difference(one: Any, other: Any) -> float:
    if one.shape != other.shape or not len(one):
        return math.inf
    return float(np.abs(one.astype(np.float32) - other.astype(np.float32)).max())


def _generator_checks(generator: Generator) -> Iterator[Check]:
    pages, images = _sample_pages()
    content = images[0] if generator.reads == "images" else page_text(pages[0])
    page = GivenPage(str(PAGES[0]), "example", PAGES[0], content)
    prompts: tuple[PromptName, ...] = ("default", "paper")
    for prompt in prompts:
        budget = Budget(answer_tokens=_MAX_TOKENS)
        answer = answer_from(QUESTION, [page], generator, budget, prompt=prompt)
        sent = answer.generation
        yield Check(f"{prompt}: reply", "not empty", _shorten(sent.raw), bool(sent.raw.strip()))
        is_right = any(word in answer.text.casefold() for word in ANSWERS)
        yield Check(f"{prompt}: answer", " or ".join(ANSWERS), _shorten(answer.text), is_right)
        counted = bool(sent.input_tokens) and bool(sent.output_tokens)
        tokens = f"{sent.input_tokens} in, {sent.output_tokens} out"
        yield Check(f"{prompt}: tokens", "counted", tokens, counted)
        fits = sent.note is None
        yield Check(f"{prompt}: prompt", "fits the context", sent.note or "fits the context", fits)
        yield Check(f"{prompt}: seconds", "any", f"{sent.seconds:.1f}", ok=True)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def _expect(name: str, expected: object, found: object) -> Check:
    return Check(name, str(expected), str(found), expected == found)
