"""Search model for mteb: evaluates encoders and methods of ViSAR on tasks with page images."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from visar._version import __version__
from visar.core import PageVectors, Selection
from visar.core.vectors import Float64, Integers
from visar.documents import ReadOptions
from visar.encoders.encoder import Encoder
from visar.errors import EmptyQuestion, InvalidOption, extra_needed
from visar.evaluation.datasets import CORPUS_LIMITS
from visar.index import Index
from visar.models.loading import import_torchvision
from visar.results import EncoderRef
from visar.retrieval.calibration import find_calibration
from visar.retrieval.methods import DocumentPages, ScoredPages, get_method

with extra_needed("The search model for mteb", "mteb"):
    if find_spec("torchvision") is not None:
        import_torchvision()  # mteb imports it too
    from mteb.models import ModelMeta


class VisarSearch:
    """A search model for ``mteb.evaluate``.

    Parameters
    ----------
    encoder
        Name of an encoder, or an encoder.
    method
        Method that chooses the pages of a query. Methods such as ``top-k`` return as many pages as
        the task requests.
    cut
        Whether to return only the chosen pages, to evaluate the choice; otherwise all pages are
        returned in the method's ranking.
    device
        Device of the encoder.
    options
        Options for reading page images, for encoders that read words.

    >>> import mteb  # doctest: +SKIP
    >>> tasks = mteb.get_tasks(["Vidore3HrRetrieval"])  # doctest: +SKIP
    >>> mteb.evaluate(VisarSearch("colpali"), tasks)  # doctest: +SKIP
    """

    def __init__(
        self,
        encoder: str | Encoder = "embedded",
        *,
        method: str = "visar",
        cut: bool = True,
        device: str = "auto",
        options: ReadOptions | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="visar-mteb-"))
        self._index = Index.open(self._folder / "index", device=device, reader="none")
        weakref.finalize(self, _close, self._index, self._folder)
        self._encoder = self._index.encoder(encoder)
        self._method = get_method(method)
        self._cut = cut
        self._options = options or ReadOptions(limits=CORPUS_LIMITS)
        self._ids: list[str] = []
        self._pages: list[Any] = []

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Name and revision that mteb stores results under."""
        encoder = re.sub(r"[^\w.+-]+", "-", self._encoder.name).strip("-")
        rule = self._method.name if self._cut else f"{self._method.name}-ranking"
        return ModelMeta(
            loader=None,
            name=f"visar/{encoder}-{rule}",
            revision=f"{self._encoder.version}-visar-{__version__}",
            release_date=None,
            languages=None,
            n_parameters=None,
            memory_usage_mb=None,
            max_tokens=None,
            embed_dim=self._encoder.dimension,
            license=None,
            open_weights=None,
            public_training_code=None,
            public_training_data=None,
            framework=[],
            similarity_fn_name=None,
            use_instructions=False,
            training_datasets=None,
            modalities=["text", "image"],
            model_type=["late-interaction"],
        )

    def index(self, corpus: Iterable[Mapping[str, Any]], **_: Any) -> None:
        """Encode the page images of a corpus.

        Raises InvalidOption if a document has no image.
        """
        self._ids = []
        folder = Path(tempfile.mkdtemp(prefix="corpus-", dir=self._folder))
        for position, row in enumerate(corpus):
            image = row.get("image")
            if image is None:
                raise InvalidOption(
                    f"The document {row['id']!r} of the corpus has no image. Use a task with page "
                    "images."
                )
            image.convert("RGB").save(folder / f"{position:07}.png")
            self._ids.append(str(row["id"]))
        if not self._ids:
            raise InvalidOption("The corpus is empty.")
        document = self._index.add(folder, encoder=self._encoder, options=self._options)
        stored = self._index.vectors(document.id, encoder=self._encoder)
        self._pages = [stored.page(number).vectors for number in range(1, len(self._ids) + 1)]

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the chosen pages of each query with their scores.

        ``top_ranked`` limits the pages to choose from.
        """
        whole = DocumentPages(PageVectors(self._pages))
        numbers = {identity: number for number, identity in enumerate(self._ids)}
        calibration = find_calibration(EncoderRef.of(self._encoder))
        found: dict[str, dict[str, float]] = {}
        for row in queries:
            identity = str(row["id"])
            positions = list(range(len(self._ids)))
            pages = whole
            if top_ranked is not None:
                positions = [numbers[document] for document in top_ranked[row["id"]]]
                pages = DocumentPages(
                    PageVectors([self._pages[position] for position in positions])
                )
            try:
                query = self._index.encode_question(row["text"], encoder=self._encoder)
            except EmptyQuestion:
                found[identity] = {}
                continue
            chosen, scores = self._choose(ScoredPages(query, pages, calibration=calibration), top_k)
            found[identity] = {
                self._ids[positions[page]]: score
                for page, score in zip(chosen.tolist(), scores, strict=True)
            }
        return found

    def _choose(self, pages: ScoredPages, top_k: int) -> tuple[Integers, list[float]]:
        """Return pages, best first, and strictly decreasing scores."""
        method = self._method
        if not method.adaptive:
            method = method.with_options(k=top_k)
        result = method.choose(pages)
        if isinstance(result, Selection):
            scores, ranking = result.scores, result.ranking
        else:
            scores = pages.late_interaction
            ranking = np.argsort(-scores, kind="stable")
        chosen = (result.pages if self._cut else ranking)[:top_k]
        return chosen, _strictly_decreasing(scores[chosen])


def _strictly_decreasing(scores: Float64) -> list[float]:
    """Return scores lowered where necessary to decrease: mteb breaks ties by page name.

    They differ in float32, which mteb's metrics use.
    """
    lowered = scores.astype(np.float32)
    for position in range(1, len(lowered)):
        limit = np.nextafter(lowered[position - 1], np.float32(-np.inf))
        lowered[position] = min(lowered[position], limit)
    return [float(score) for score in lowered]


def _close(index: Index, folder: Path) -> None:
    index.close()
    shutil.rmtree(folder, ignore_errors=True)
