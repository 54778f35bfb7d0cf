"""The embedded encoder, which encodes words offline on the CPU.

Each term of a page, except stop words, becomes a vector that combines three signals. The cosine of
two vectors is a weighted mean of the signals' cosines:

- the term in context: the mean of its word pieces' vectors;
- the surrounding topic: the mean over nearby tokens, added to the first signal;
- the word itself: a direction derived from its stem, which rewards exact matches.

``docs/encoders.md`` says how good it is.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding, Reads, unit_vectors
from visar.encoders.minilm import HIDDEN_DIMENSION, MiniLM, Tokens, quantized_model
from visar.encoders.terms import LEXICAL_DIMENSION, Term, find_terms, lexical_vectors
from visar.errors import EmptyQuestion
from visar.models.devices import free_memory
from visar.models.loading import Lazy

# Number of tokens on either side of a term that make up the surrounding topic.
TOPIC_TOKENS = 32
# Weight of the surrounding topic relative to the term's own vector.
TOPIC_WEIGHT = 0.5
# Weight of exact matches in the cosine of two vectors.
EXACT_MATCH_WEIGHT = 0.3


def _load() -> MiniLM:
    from platformdirs import user_cache_path

    return MiniLM(quantized_model(user_cache_path("visar")))


# Shared by all embedded encoders of a process.
_model = Lazy(_load)


class EmbeddedEncoder:
    """all-MiniLM-L6-v2 with an exact-match signal, loaded on first use.

    Threads run in parallel; only loading is locked.
    """

    name = "embedded"
    version = "minilm-terms-3"
    dimension = HIDDEN_DIMENSION + LEXICAL_DIMENSION
    reads: Reads = "words"
    weak_match = 0.46

    def load(self) -> None:
        """Load the model now instead of on first use."""
        _model.get()

    def release(self) -> None:
        """Free the memory of the model. It is reloaded on next use."""
        _model.drop()
        free_memory()

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any] = (),  # noqa: ARG002 - part of the protocol
    ) -> list[PageEmbedding]:
        """Encode the words of each page; images are ignored."""
        model = _model.get()
        texts: list[Tokens] = []

        def token_ids() -> Iterator[list[int]]:
            for page in pages:
                texts.append(model.tokenize([word.text for word in page.words]))
                yield texts[-1].ids

        states = model.token_vectors(token_ids())
        return [
            _embedding(page, texts[index], tokens)
            for index, (page, tokens) in enumerate(zip(pages, states, strict=True))
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as one vector per token.

        Stop words, word pieces and punctuation keep their vectors, because methods weight the
        vectors of a question relative to those that match every page.

        Raises
        ------
        EmptyQuestion
            If the question has no word or number.
        """
        model = _model.get()
        words = question.split()
        text = model.tokenize(words)
        terms, spans = _with_tokens(find_terms(words), text)
        if not terms:
            raise EmptyQuestion(
                f"The question {question[:80]!r} has no word or number to search for. "
                "Ask with at least one."
            )
        (tokens,) = model.token_vectors([text.ids])
        lexical = np.zeros((len(tokens), LEXICAL_DIMENSION), np.float32)
        for (first, last), vector in zip(spans, lexical_vectors(terms), strict=True):
            lexical[first:last] = vector
        return _join(tokens, [(token, token + 1) for token in range(len(tokens))], lexical)

    def question_spans(self, question: str) -> list[tuple[int, int]]:
        """Return the start and end in the question of each vector of `encode_query`."""
        words = list(re.finditer(r"\S+", question))
        positions = _model.get().tokenize([word.group() for word in words]).positions
        starts = [(word, words[word].start() + first) for word, first in positions]
        following = [*starts[1:], (-1, 0)]
        return [
            (start, after if next_word == word else words[word].end())
            for (word, start), (next_word, after) in zip(starts, following, strict=True)
        ]


def _embedding(page: Page, text: Tokens, tokens: NDArray[np.float32]) -> PageEmbedding:
    found = find_terms([word.text for word in page.words])
    terms, spans = _with_tokens([term for term in found if not term.is_stop_word], text)
    vectors = _join(tokens, spans, lexical_vectors(terms)).astype(np.float16)
    boxes = np.array([page.words[term.word].box for term in terms], np.float32).reshape(-1, 4)
    return PageEmbedding(vectors, boxes, np.array([term.word for term in terms], np.int32))


def _join(
    tokens: NDArray[np.float32], spans: Sequence[tuple[int, int]], lexical: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Combine the three signals of each span of tokens into a unit vector."""
    if not spans:
        return np.zeros((0, EmbeddedEncoder.dimension), np.float32)
    first, last = np.array(spans).T
    sums = np.zeros((len(tokens) + 1, HIDDEN_DIMENSION), np.float32)
    np.cumsum(unit_vectors(tokens), axis=0, out=sums[1:])
    own = unit_vectors(sums[last] - sums[first])
    around = unit_vectors(
        sums[np.minimum(last + TOPIC_TOKENS, len(tokens))]
        - sums[np.maximum(first - TOPIC_TOKENS, 0)]
    )
    meaning = unit_vectors(own + TOPIC_WEIGHT * around)
    parts = [math.sqrt(1 - EXACT_MATCH_WEIGHT) * meaning, math.sqrt(EXACT_MATCH_WEIGHT) * lexical]
    return unit_vectors(np.concatenate(parts, axis=1))


def _with_tokens(terms: Sequence[Term], text: Tokens) -> tuple[list[Term], list[tuple[int, int]]]:
    """Return the terms that have tokens, and the token span of each."""
    kept, spans = [], []
    for term in terms:
        first = bisect_left(text.positions, (term.word, term.start))
        last = bisect_left(text.positions, (term.word, term.end), lo=first)
        if first < last:
            kept.append(term)
            spans.append((first, last))
    return kept, spans
