"""Messages between a service and its clients: they round-trip, and invalid ones are errors."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from tests.encoders.samples import page_with, picture
from visar.core.vectors import as_query
from visar.documents.page import Page, TextSource, Word
from visar.encoders import remote
from visar.encoders.encoder import EncoderRef, PageEmbedding, check_embedding, unit_vectors
from visar.encoders.remote import Array, Description, EncodedPage, PagesReply, QueryReply, parse
from visar.encoders.service import unpack_pages
from visar.errors import InvalidVectors, MalformedMessage

SHARES = st.floats(0, 1)
WORDS = st.builds(
    Word, st.text(), st.tuples(SHARES, SHARES, SHARES, SHARES), st.integers(-(2**31), 2**31 - 1)
)
PAGES = st.builds(
    Page,
    number=st.integers(1, 10_000),
    width=st.floats(0.1, 20_000),
    height=st.floats(0.1, 20_000),
    rotation=st.sampled_from([0, 90, 180, 270]),
    words=st.lists(WORDS, max_size=8).map(tuple),
    text_source=st.sampled_from(get_args(TextSource)),
)
INVALID = (MalformedMessage, InvalidVectors)
WHO = EncoderRef("pixels", "1", 3)
DESCRIPTION = Description(
    name="pixels", version="1", dimension=3, reads="image", weak_match=0.25, max_body=1000
)


def unpack_embeddings(message: bytes) -> list[PageEmbedding]:
    """Unpack and check embeddings of pages with two words, as the client does."""
    found = [each.unpack() for each in parse(PagesReply, message).pages]
    for number, each in enumerate(found, 1):
        check_embedding(each, page_with("one two", number), 3, f"page {number}")
    return found


def unpack_query(message: bytes) -> Any:
    return as_query(parse(QueryReply, message).vectors.unpack(), 3)


RECEIVERS: list[Callable[[bytes], Any]] = [
    unpack_pages,
    unpack_query,
    unpack_embeddings,
    lambda message: parse(Description, message),
]


def send(pages: list[Page], *images: Image.Image) -> bytes:
    shown = images or [None] * len(pages)
    return remote.pack_pages([remote.pack_page(*each) for each in zip(pages, shown, strict=True)])


def embedding(count: int) -> PageEmbedding:
    rng = np.random.default_rng(0)
    return PageEmbedding(
        unit_vectors(rng.uniform(-0.5, 0.5, (count, 3))).astype(np.float16),
        rng.random((count, 4), np.float32),
        np.zeros(count, np.int32),
    )


def pages_reply(*found: PageEmbedding) -> bytes:
    pages = tuple(map(EncodedPage.of, found))
    return PagesReply(encoder=WHO, pages=pages).model_dump_json().encode()


def query_reply(vectors: Any) -> bytes:
    return QueryReply(encoder=WHO, vectors=Array.of(vectors, "float32")).model_dump_json().encode()


def as_json(array: Any) -> Any:
    """Pack any array, as the service never would."""
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": array.shape, "data": data}


@given(st.lists(PAGES, min_size=1, max_size=4))
def test_pages_round_trip(pages: list[Page]) -> None:
    assert unpack_pages(send(pages)) == (pages, [])


def test_words_with_lone_surrogates_can_be_sent() -> None:
    """Broken text layers contain them, and JSON can't."""
    (received,), _ = unpack_pages(send([page_with("a\ud800b")]))
    assert received.words[0].text == "a?b"


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
@settings(max_examples=30)
def test_images_round_trip(width: int, height: int, seed: int) -> None:
    images = [picture(seed, width, height), picture(seed + 1, height, width)]
    _, received = unpack_pages(send([page_with("a"), page_with("b", 2)], *images))
    assert [image.size for image in received] == [image.size for image in images]
    assert [image.tobytes() for image in received] == [image.tobytes() for image in images]


@given(
    st.lists(
        st.integers(0, 5).flatmap(
            lambda n: st.tuples(
                arrays.arrays(np.float32, (n, 3), elements=st.floats(0.25, 1, width=32)),
                arrays.arrays(np.float32, (n, 4), elements=st.floats(0, 1, width=32)),
                arrays.arrays(np.int32, (n,), elements=st.integers(-1, 1)),
            )
        ),
        min_size=1,
        max_size=3,
    )
)
def test_embeddings_round_trip(parts: list[tuple[Any, Any, Any]]) -> None:
    sent = [PageEmbedding(unit_vectors(v).astype(np.float16), *rest) for v, *rest in parts]
    for one, other in zip(sent, unpack_embeddings(pages_reply(*sent)), strict=True):
        for name in ("vectors", "boxes", "words"):
            here, there = getattr(one, name), getattr(other, name)
            assert (here.dtype, here.shape) == (there.dtype, there.shape)
            assert here.tobytes() == there.tobytes()


def test_question_vectors_round_trip() -> None:
    vectors = unit_vectors(np.random.default_rng(3).uniform(-0.5, 0.5, (5, 3)))
    # Not contiguous, like a slice of a model's output.
    received = unpack_query(query_reply(vectors[::2]))
    np.testing.assert_array_equal(received, vectors[::2], strict=True)


def test_descriptions_round_trip() -> None:
    assert parse(Description, DESCRIPTION.model_dump_json().encode()) == DESCRIPTION


@given(st.sampled_from(RECEIVERS), st.binary(max_size=300))
def test_garbage_is_an_error(receive: Callable[[bytes], Any], garbage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        receive(garbage)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
ARRAYS = (
    st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.uint8, np.bool_])
    .flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0)))
    .map(as_json)
)


@given(st.data())
@settings(max_examples=200)
def test_arbitrary_messages_never_crash_the_receiver(data: st.DataObject) -> None:
    """A message is either accepted or raises the documented errors."""
    messages = {
        RECEIVERS[0]: send([page_with("one two")], picture(1)),
        RECEIVERS[1]: query_reply(np.eye(2, 3)),
        RECEIVERS[2]: pages_reply(embedding(2)),
        RECEIVERS[3]: DESCRIPTION.model_dump_json().encode(),
    }
    receive = data.draw(st.sampled_from(list(messages)))
    values = json.loads(messages[receive])
    place = values
    while True:  # change one value at any depth
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON_VALUES | ARRAYS)
    with contextlib.suppress(*INVALID):
        receive(json.dumps(values).encode())


@given(st.data())
@settings(max_examples=50)
def test_messages_of_the_wrong_length_are_errors(data: st.DataObject) -> None:
    message = send([page_with("one two"), page_with("three", 2)], picture(1), picture(2))
    if data.draw(st.booleans()):
        broken = message[: data.draw(st.integers(0, len(message) - 1))]
    else:
        broken = message + data.draw(st.binary(min_size=1, max_size=20).filter(bytes.strip))
    with pytest.raises(MalformedMessage):
        unpack_pages(broken)


FOUR = base64.b64encode(bytes(4)).decode()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"dtype": "bfloat16"}, "dtype"),
        ({"dtype": "object"}, "dtype"),
        ({"shape": [2**40, 2**40]}, "shape"),
        ({"shape": [-1]}, "shape"),
        ({"shape": [1, 1, 1]}, "shape"),
        ({"shape": [1.0]}, "shape"),
        # Declared larger or smaller than the data is, which is not decoded.
        ({"shape": [2]}, "must have 8 bytes"),
        ({"shape": [0, 2**31 - 1]}, "must have 0 bytes"),
        ({"data": FOUR[:-1] + "A"}, "must have 4 bytes"),
        ({"data": FOUR[:-1] + "\n"}, "must have 4 bytes"),
        ({"data": "é" * 8}, "must have 4 bytes"),
        ({"data": 4}, "data"),
    ],
)
def test_arrays_are_checked(change: dict[str, Any], error: str) -> None:
    content = {"dtype": "float32", "shape": [1], "data": FOUR} | change
    with pytest.raises(MalformedMessage, match=error):
        parse(Array, json.dumps(content).encode()).unpack()


NAN, LONG = np.full((2, 3), np.nan, np.float16), np.full((2, 3), 0.7, np.float16)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"vectors": None}, r"pages\.0\.vectors"),
        ({"vectors": np.array(1, np.float16)}, r"vectors must be float16 of shape \(0, 3\)"),
        ({"vectors": np.zeros((2, 4), np.float16)}, r"float16 of shape \(2, 3\)"),
        ({"vectors": np.zeros((2, 3), np.float32)}, "must be float16"),
        ({"vectors": NAN}, "NaN or an infinity in vector 0 of page 1"),
        ({"vectors": np.full((2, 3), np.inf, np.float16)}, "NaN or an infinity"),
        ({"vectors": LONG}, "length of vector 0 of page 1 is 1.2"),
        ({"vectors": np.zeros((2, 3), np.float16)}, "length of vector 0 of page 1 is 0"),
        ({"boxes": np.full((2, 4), np.nan, np.float32)}, "page 1: boxes"),
        ({"boxes": np.full((2, 4), 1.5, np.float32)}, "page 1: boxes"),
        ({"boxes": np.zeros((3, 4), np.float32)}, r"shape \(2, 4\)"),
        ({"words": np.array([0, -2], np.int32)}, "page 1: words"),
        ({"words": np.array([0, 2], np.int32)}, "page 1: words"),
        ({"words": np.zeros(2, np.int64)}, r"pages\.0\.words\.dtype"),
        ({"invalid": "why"}, "page 1: it is invalid and has 2 vectors"),
        ({"invalid": 1}, r"pages\.0\.invalid"),
        *(({"invalid": reason}, "short line") for reason in ("because\n\x07", "b" * 1001, "")),
    ],
)
def test_embeddings_are_checked(changes: dict[str, Any], error: str) -> None:
    values = json.loads(pages_reply(embedding(2)))
    values["pages"][0] |= {
        key: as_json(value) if isinstance(value, np.ndarray) else value
        for key, value in changes.items()
    }
    with pytest.raises(INVALID, match=error):
        unpack_embeddings(json.dumps(values).encode())


@pytest.mark.parametrize("message", [b"[]", b"[" * 200_000, b'{"pages":NaN}', b""])
def test_messages_are_objects(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        unpack_embeddings(message)


def test_a_page_without_vectors_has_a_reason() -> None:
    empty = embedding(0)
    why = PageEmbedding(empty.vectors, empty.boxes, empty.words, "not a number, twice")
    first, second = unpack_embeddings(pages_reply(why, embedding(2)))
    assert (first.invalid, len(first.vectors)) == ("not a number, twice", 0)
    assert (second.invalid, len(second.vectors)) == (None, 2)


@pytest.mark.parametrize(
    ("vectors", "error"),
    [
        (np.zeros((0, 3), np.float32), "no vectors"),
        (np.zeros(3, np.float32), "two dimensions"),
        (np.eye(2, 3, dtype=np.int32), "must be float16"),
        (np.eye(2, 4, dtype=np.float32), "4 dimensions"),
        (np.full((1, 3), np.nan, np.float32), "NaN"),
        # A longer vector would score higher than all other pages.
        (np.full((1, 3), 1.02, np.float32), "length of vector 0 of the query is 1.767"),
        (np.full((1, 3), 3e38, np.float32), "length of vector 0"),
        (np.full((1, 3), 1e300), "dtype"),
    ],
)
def test_question_vectors_are_checked(vectors: Any, error: str) -> None:
    values = json.loads(query_reply(np.eye(1, 3))) | {"vectors": as_json(vectors)}
    with pytest.raises(INVALID, match=error):
        unpack_query(json.dumps(values).encode())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"visar_wire": 2}, "visar_wire: Input should be 3, not 2"),
        ({"visar_wire": None}, "visar_wire: Input should be 3, not None"),
        ({"name": "pixels\x1b[2J"}, "name: must be a short line"),
        ({"version": "1" * 1001}, "version: must be a short line"),
        ({"dimension": 0}, "dimension: "),
        ({"dimension": True}, "dimension: "),
        ({"dimension": 10**9}, "dimension: "),
        ({"reads": ["words"]}, "reads: "),
        ({"weak_match": float("nan")}, "weak_match: "),
        ({"weak_match": 10**400}, "weak_match: "),
        ({"max_body": -1}, "max_body: "),
    ],
)
def test_descriptions_are_checked(change: dict[str, Any], error: str) -> None:
    with pytest.raises(MalformedMessage, match=error) as refused:
        parse(Description, json.dumps(DESCRIPTION.model_dump() | change).encode())
    assert len(str(refused.value)) < 200
    assert str(refused.value).isprintable()


PAGE = {"number": 1, "width": 1.0, "height": 1.0, "rotation": 0, "text_source": "ocr", "words": []}
WORD = {"text": "a", "box": [0, 0, 1, 1], "line": 0}


def png(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


SMALL = png(picture(1, 2, 2))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"page": {}}, r"page\.number: Field required"),
        ({"page": PAGE | {"width": float("nan")}}, r"page\.width: .*finite"),
        ({"page": PAGE | {"text_source": "hearsay"}}, r"page\.text_source"),
        ({"page": PAGE | {"words": [WORD | {"box": [0, 0, 1]}]}}, r"page\.words\.0\.box"),
        ({"page": PAGE | {"words": [WORD | {"box": [0, 0, 1, 1e999]}]}}, "finite"),
        ({"image": 1}, r"pages\.0\.image"),
        ({"image": "é"}, "image can't be decoded"),
        ({"image": SMALL[:50]}, "image can't be decoded"),
        ({"image": SMALL[:33]}, "image can't be decoded"),
        ({"image": b""}, "image can't be decoded"),
        ({"image": png(picture(1), "JPEG")}, "image can't be decoded"),
        # Few bytes can declare, and decode to, any number of pixels, so none are decoded.
        ({"image": SMALL[:16] + (2**13).to_bytes(4) * 2 + SMALL[24:]}, "image can't be decoded"),
        ({"image": png(Image.new("1", (10_001, 10_000)))}, "100010000 pixels"),
        ({"image": png(Image.new("1", (20_000, 10_000)))}, "image can't be decoded"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pages_are_checked(values: dict[str, Any], error: str) -> None:
    message = json.loads(send([page_with("a")], picture(1, 2, 2)))
    message["pages"][0] |= {
        key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for key, value in values.items()
    }
    with pytest.raises(MalformedMessage, match=error):
        unpack_pages(json.dumps(message).encode())


@pytest.mark.parametrize(("count", "error"), [(0, "at least 1"), (65, "at most 64")])
def test_messages_have_a_valid_number_of_pages(count: int, error: str) -> None:
    pages = [page_with("a", number) for number in range(1, count + 1)]
    with pytest.raises(MalformedMessage, match=error):
        unpack_pages(send(pages))
