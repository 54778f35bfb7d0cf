from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import visar
from visar.documents.page import Page, Word
from visar.encoders.embedded import EmbeddedEncoder
from visar.errors import EmptyQuestion

HARBOUR = (
    "The harbour office keeps a log of every ship . In 1897 the pilot cutter Merganser "
    "foundered off the northern breakwater with the loss of 14 hands ."
)
KITCHEN = (
    "To make the dough , mix 500 g of flour with warm water and yeast . Let it rest for an hour "
    "under a cloth , then knead it again and shape round loaves ."
)
ACCOUNTS = (
    "Revenue rose by 4 % to 1,577 million euro . Capital expenditures were 212 million , most of "
    "it for the new plant ; depreciation stayed as it was ."
)


@pytest.fixture(scope="module")
def encoder() -> EmbeddedEncoder:
    return EmbeddedEncoder()


def page_of(text: str | list[str], number: int = 1) -> Page:
    """Return a page whose n-th word has a box that starts at n thousandths."""
    words = text.split() if isinstance(text, str) else text
    placed = (Word(w, (i / 1000, 0.1, (i + 1) / 1000, 0.2), 0) for i, w in enumerate(words))
    return Page(number, 595, 842, 0, tuple(placed), "text layer")


def output_of(code: str) -> str:
    """Run code in a new Python process and return its output."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def best_word(encoder: EmbeddedEncoder, question: str, page: Page) -> str:
    embedding = encoder.encode_pages([page])[0]
    match = (encoder.encode_query(question) @ embedding.vectors.T.astype(np.float32)).max(axis=0)
    return page.words[int(embedding.words[match.argmax()])].text


def test_a_page_has_a_unit_vector_for_each_term_except_stop_words(
    encoder: EmbeddedEncoder,
) -> None:
    (embedding,) = encoder.encode_pages([page_of("The late-stage loans , and (1,577) of them .")])
    assert embedding.vectors.shape == (4, encoder.dimension)
    assert embedding.vectors.dtype == np.float16
    lengths = np.linalg.norm(embedding.vectors.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-3)  # float16 rounds to 5e-4
    assert embedding.words.tolist() == [1, 1, 2, 5]


def test_every_vector_has_the_box_of_its_word(encoder: EmbeddedEncoder) -> None:
    page = page_of(f"{HARBOUR} {KITCHEN}")
    (embedding,) = encoder.encode_pages([page])
    expected = [page.words[word].box for word in embedding.words]
    np.testing.assert_allclose(embedding.boxes, expected, rtol=1e-6)
    assert embedding.boxes.dtype == np.float32
    assert embedding.words.dtype == np.int32


@pytest.mark.parametrize("word", ["Merganser", "breakwater", "1897", "flour", "expenditures"])
def test_a_word_matches_its_own_vector(encoder: EmbeddedEncoder, word: str) -> None:
    # Catches vectors that are shifted relative to their words, also across windows.
    filler = " ".join([ACCOUNTS.replace("expenditures", "costs")] * 9)
    page = page_of(f"{filler} {HARBOUR} {KITCHEN} {ACCOUNTS}")
    assert best_word(encoder, word, page) == word


def test_word_pieces_and_punctuation_do_not_shift_words(encoder: EmbeddedEncoder) -> None:
    words = ["“Antidisestablishmentarianism”", "—", "\x01", "", "日本語", "x" * 5000, "cutter."]
    (embedding,) = encoder.encode_pages([page_of(words)])
    assert embedding.words.tolist() == [0, 4, 4, 4, 5, 6]


def test_vectors_do_not_depend_on_the_batch(encoder: EmbeddedEncoder) -> None:
    pages = [page_of(text) for text in (HARBOUR, " ".join([KITCHEN] * 20), "", ACCOUNTS)]
    together = encoder.encode_pages(pages)
    reversed_order = encoder.encode_pages(pages[::-1])[::-1]
    for page, *batches in zip(pages, together, reversed_order, strict=True):
        (alone,) = encoder.encode_pages([page])
        for batch in batches:
            # Windows run one by one, so only the last bit of float16 may differ.
            np.testing.assert_allclose(batch.vectors, alone.vectors, atol=1e-3)
            np.testing.assert_array_equal(batch.words, alone.words)


@pytest.mark.parametrize("words", [[], ["."], ["the", "of"], ["😀", "—"], ["\x00\x01"], [" "]])
def test_a_page_without_terms_has_no_vectors(encoder: EmbeddedEncoder, words: list[str]) -> None:
    (embedding,) = encoder.encode_pages([page_of(words)])
    assert embedding.vectors.shape == (0, encoder.dimension)
    assert embedding.boxes.shape == (0, 4)
    assert embedding.words.shape == (0,)


def test_no_pages_give_no_embeddings(encoder: EmbeddedEncoder) -> None:
    assert encoder.encode_pages([]) == []


HOSTILE = [
    "a" * 100_000,
    "ab-" * 300,
    "😀" * 500 + "word",
    "漢字かな交じり文" * 50,
    "\x00\x07\x1bcontrol\x7f\u200b\ufeff",
    "e\u0301" * 300,
    "مرحبا بالعالم",
    "\U0001d400\U0001d401",
    "\ud800lone",
    "[CLS] [SEP] [PAD]",
    "two words\nand\ttabs",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_unusual_words_are_encoded(encoder: EmbeddedEncoder, text: str) -> None:
    (embedding,) = encoder.encode_pages([page_of(["harbour", text, "cutter"])])
    assert np.isfinite(embedding.vectors).all()
    assert embedding.words[0] == 0
    assert embedding.words[-1] == 2
    assert all(a <= b for a, b in pairwise(embedding.words.tolist()))


def test_the_end_of_a_long_page_is_read_in_its_context(encoder: EmbeddedEncoder) -> None:
    # The sentence is at the end of a page with several windows, and on a page of its own. Its inner
    # words have nearly the same vectors, which wouldn't be the case if a window ended inside it.
    long_page, short_page = page_of(" ".join([KITCHEN] * 30 + [HARBOUR])), page_of(HARBOUR)
    end, alone = encoder.encode_pages([long_page, short_page])
    cosines = np.sum(
        end.vectors[-len(alone.vectors) :].astype(np.float32) * alone.vectors.astype(np.float32),
        axis=1,
    )
    assert cosines.min() > 0.7


def test_a_question_has_unit_vectors_of_the_same_dimension(encoder: EmbeddedEncoder) -> None:
    query = encoder.encode_query("When did the cutter founder?")
    assert query.shape == (6, encoder.dimension)  # one for each token, including the question mark
    assert query.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(query, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("question", ["", "   ", "?!", "…", "😀", "\x00"])
def test_a_question_without_words_is_an_error(encoder: EmbeddedEncoder, question: str) -> None:
    with pytest.raises(EmptyQuestion, match="no word or number"):
        encoder.encode_query(question)


def test_a_question_may_consist_of_stop_words(encoder: EmbeddedEncoder) -> None:
    assert len(encoder.encode_query("What is it about?")) == 5


def test_every_piece_of_a_rare_word_has_the_exact_match_signal(encoder: EmbeddedEncoder) -> None:
    (embedding,) = encoder.encode_pages([page_of("The pilot cutter Merganser foundered")])
    query = encoder.encode_query("merganser")
    assert len(query) > 1
    matches = query @ embedding.vectors.T.astype(np.float32)
    assert (matches.argmax(axis=1) == embedding.words.tolist().index(3)).all()


def test_a_question_longer_than_a_window_is_encoded_completely(encoder: EmbeddedEncoder) -> None:
    assert len(encoder.encode_query("word " * 700)) == 700


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("Which boat sank near the port?", 0),
        ("How do I bake bread?", 1),
        ("How much did the firm invest?", 2),
        ("1,577", 2),
    ],
)
def test_the_right_page_comes_first(encoder: EmbeddedEncoder, question: str, page: int) -> None:
    pages = encoder.encode_pages([page_of(text) for text in (HARBOUR, KITCHEN, ACCOUNTS)])
    scores = visar.maxsim(encoder.encode_query(question), [p.vectors for p in pages])
    assert scores.argmax() == page


def test_importing_the_encoder_loads_no_model_library() -> None:
    code = (
        "import sys, visar.encoders.registry, visar.encoders.embedded;"
        "print(sorted({'onnx', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    assert output_of(code) == "[]"


def test_the_encoder_needs_no_network(encoder: EmbeddedEncoder) -> None:
    code = (
        "import socket\n"
        "def refuse(*_, **__): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from visar.encoders.registry import get_encoder\n"
        "print(get_encoder().encode_query('a question').shape)\n"
    )
    encoder.encode_query("fill the cache")
    assert output_of(code) == f"(2, {encoder.dimension})"
