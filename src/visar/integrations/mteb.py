"""A search model for mteb: any encoder and method of ViSAR on retrieval tasks of page images."""

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

from visar.core import PageVectors, Selection
from visar.core.vectors import Float64, Integers
from visar.documents import ReadOptions
from visar.encoders.protocol import Encoder
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
    """A search model as ``mteb.evaluate`` takes it.

    Parameters
    ----------
    encoder
        Name of an encoder, or an encoder.
    method
        Method that chooses the pages of a query. Without a number of pages of its own, such as
        ``top-k``, it returns as many as the task asks for.
    cut
        Whether only the chosen pages are returned, so that scores tell how good the choice is;
        otherwise all pages, in the order that the method chooses from.
    device
        Device of the encoder.
    options
        How page images are read, for encoders that read words.

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
        """Name and revision, which mteb keeps results under."""
        encoder = re.sub(r"[^\w.+-]+", "-", self._encoder.name).strip("-")
        rule = self._method.name if self._cut else f"{self._method.name}-ranking"
        return ModelMeta(
            loader=None,
            name=f"visar/{encoder}-{rule}",
            revision=self._encoder.version,
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
                    f"The document {row['id']!r} of the corpus has no image: ViSAR searches tasks "
                    "of page images."
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
        """Return the scores of the pages that the method chooses for each query.

        With ``top_ranked``, pages are chosen from these.
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
                pages = DocumentPages(PageVectors([self._pages[place] for place in positions]))
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
        """Return pages, best first, and scores that keep this order."""
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
        return chosen, _falling(scores[chosen])


def _falling(scores: Float64) -> list[float]:
    """Return scores lowered where they do not fall: mteb would break ties by the names of pages.

    They stay different as 32-bit numbers, which mteb's measures compare.
    """
    falling = scores.astype(np.float32)
    for place in range(1, len(falling)):
        limit = np.nextafter(falling[place - 1], np.float32(-np.inf))
        falling[place] = min(falling[place], limit)
    return [float(score) for score in falling]


def _close(index: Index, folder: Path) -> None:
    index.close()
    shutil.rmtree(folder, ignore_errors=True)
