"""The encoder everyone has: words in, vectors out, offline and on the CPU.

Every term of a page that is no stop word becomes a vector of three signals, joined so that the
cosine of two vectors is a weighted mean of theirs:

- what the term means where it stands: the mean of its word pieces' vectors;
- what is spoken of around it: the mean over the tokens near it, which is the vector the model
  was trained to compare, mixed into the first;
- which word it is: a direction drawn from its stem, so that an exact match counts.

``docs/embedded-encoder.md`` says what each of them is worth, and what else was tried.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.minilm import HIDDEN_DIMENSION, MiniLM, Tokens, quantised_model
from visar.encoders.protocol import PageEmbedding
from visar.encoders.terms import LEXICAL_DIMENSION, Term, find_terms, lexical_vectors
from visar.encoders.vectors import unit_vectors
from visar.errors import EmptyQuestion

# Tokens on either side of a term that say what is spoken of around it.
REACH = 32
# How much of that is mixed into the term's own vector.
SURROUNDINGS = 0.5
# The share of an exact match in the cosine of two vectors.
EXACT_MATCH = 0.3


class EmbeddedEncoder:
    """all-MiniLM-L6-v2 with an exact-match signal; see the module's text."""

    name = "embedded"
    version = "minilm-terms-3"
    dimension = HIDDEN_DIMENSION + LEXICAL_DIMENSION
    reads: Literal["words", "image"] = "words"
    weak_match = 0.46

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any] = (),  # noqa: ARG002 - for the encoders that look
    ) -> list[PageEmbedding]:
        """Encode the words of each page, which alone decide its vectors; images are not read."""
        texts = [self._model.tokenize([word.text for word in page.words]) for page in pages]
        states = self._model.token_vectors([text.ids for text in texts])
        return [_embedding(*page) for page in zip(pages, texts, states, strict=True)]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question: a vector for every token of it.

        Stop words, pieces and the question mark stay: the method weighs the query's vectors
        against each other, and what is found everywhere is the measure of what is not.
        """
        words = question.split()
        text = self._model.tokenize(words)
        (tokens,) = self._model.token_vectors([text.ids])
        lexical = np.zeros((len(tokens), LEXICAL_DIMENSION), np.float32)
        terms, spans = _with_tokens(find_terms(words), text)
        if not terms:
            raise EmptyQuestion(
                f"The question {question[:80]!r} has no word or number to look for. "
                "Ask with at least one."
            )
        for (first, last), vector in zip(spans, lexical_vectors(terms), strict=True):
            lexical[first:last] = vector
        return _join(tokens, [(token, token + 1) for token in range(len(tokens))], lexical)

    @functools.cached_property
    def _model(self) -> MiniLM:
        """Loaded when first used: name, version and dimension cost nothing."""
        from platformdirs import user_cache_path

        return MiniLM(quantised_model(user_cache_path("visar")))


def _embedding(page: Page, text: Tokens, tokens: NDArray[np.float32]) -> PageEmbedding:
    found = find_terms([word.text for word in page.words])
    terms, spans = _with_tokens([term for term in found if not term.is_stop_word], text)
    vectors = _join(tokens, spans, lexical_vectors(terms)).astype(np.float16)
    boxes = np.array([page.words[term.word].box for term in terms], np.float32).reshape(-1, 4)
    return PageEmbedding(vectors, boxes, np.array([term.word for term in terms], np.int32))


def _join(
    tokens: NDArray[np.float32], spans: Sequence[tuple[int, int]], lexical: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Join the three signals to a unit vector for each span of tokens."""
    if not spans:
        return np.zeros((0, EmbeddedEncoder.dimension), np.float32)
    first, last = np.array(spans).T
    sums = np.zeros((len(tokens) + 1, HIDDEN_DIMENSION), np.float32)
    np.cumsum(unit_vectors(tokens), axis=0, out=sums[1:])
    own = unit_vectors(sums[last] - sums[first])
    around = unit_vectors(
        sums[np.minimum(last + REACH, len(tokens))] - sums[np.maximum(first - REACH, 0)]
    )
    meaning = unit_vectors(own + SURROUNDINGS * around)
    shares = [math.sqrt(1 - EXACT_MATCH) * meaning, math.sqrt(EXACT_MATCH) * lexical]
    return unit_vectors(np.concatenate(shares, axis=1))


def _with_tokens(terms: Sequence[Term], text: Tokens) -> tuple[list[Term], list[tuple[int, int]]]:
    """Keep the terms the tokenizer made something of, each with its span of tokens."""
    kept, spans = [], []
    for term in terms:
        first = bisect_left(text.places, (term.word, term.start))
        last = bisect_left(text.places, (term.word, term.end), lo=first)
        if first < last:
            kept.append(term)
            spans.append((first, last))
    return kept, spans
