"""Messages between a service and its clients: they round-trip, and invalid ones are errors."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from safetensors import numpy as safetensors

from tests.encoders.samples import page_with, picture
from visar.documents.page import Page, TextSource, Word
from visar.encoders import remote
from visar.encoders.encoder import PageEmbedding, unit_vectors
from visar.encoders.service import pack_embeddings, pack_query, unpack_pages
from visar.errors import InvalidVectors, MalformedMessage, ServiceError

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
WHO = remote.Description("pixels", "1", 3, "image", 0.25, 1000)
RECEIVERS: list[Callable[[bytes], Any]] = [
    unpack_pages,
    lambda message: remote.unpack_query(message, WHO),
    lambda message: remote.unpack_embeddings(message, WHO, [page_with("one two")]),
    remote.Description.from_json,
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


def with_changes(message: bytes, values: dict[str, Any] | None = None, **arrays: Any) -> bytes:
    """Change values in a message's JSON, and arrays; None removes an array."""
    tensors = safetensors.load(message)
    name = "json" if "json" in tensors else "json.0"
    known = json.loads(tensors[name].tobytes())
    tensors[name] = np.frombuffer(json.dumps(known | (values or {})).encode(), np.uint8)
    kept = (tensors | {key.replace("_", "."): array for key, array in arrays.items()}).items()
    return safetensors.save({key: array for key, array in kept if array is not None})


@given(st.lists(PAGES, min_size=1, max_size=4))
def test_pages_round_trip(pages: list[Page]) -> None:
    assert unpack_pages(send(pages)) == (pages, [])


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
    pages = [page_with("one two", number) for number in range(1, len(sent) + 1)]
    received = remote.unpack_embeddings(pack_embeddings(WHO, sent), WHO, pages)
    for one, other in zip(sent, received, strict=True):
        for name in ("vectors", "boxes", "words"):
            here, there = getattr(one, name), getattr(other, name)
            assert (here.dtype, here.shape) == (there.dtype, there.shape)
            assert here.tobytes() == there.tobytes()


def test_question_vectors_round_trip() -> None:
    vectors = unit_vectors(np.random.default_rng(3).uniform(-0.5, 0.5, (5, 3)))
    # Not contiguous, like a slice of a model's output.
    received = remote.unpack_query(pack_query(WHO, vectors[::2]), WHO)
    np.testing.assert_array_equal(received, vectors[::2], strict=True)


def test_descriptions_round_trip() -> None:
    assert remote.Description.from_json(json.dumps(WHO.to_json()).encode()) == WHO


def test_the_size_of_a_page_in_a_message_is_predicted() -> None:
    """The client uses these sizes to fill messages up to the service's limit."""
    for count in (1, 3, 64):
        packed = [
            remote.pack_page(page_with("one two", n), picture(n)) for n in range(1, count + 1)
        ]
        total = sum(map(remote.size_of, packed))
        assert total - 200 * count <= len(remote.pack_pages(packed)) <= total


@given(st.sampled_from(RECEIVERS), st.binary(max_size=300))
def test_garbage_is_an_error(receive: Callable[[bytes], Any], garbage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        receive(garbage)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
ARRAYS = st.sampled_from(
    [np.float16, np.float32, np.float64, np.int32, np.uint8, np.bool_]
).flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)))


@given(st.data())
@settings(max_examples=200)
def test_arbitrary_messages_never_crash_the_receiver(data: st.DataObject) -> None:
    """A message is either accepted or raises the documented errors."""
    messages = {
        RECEIVERS[0]: send([page_with("one two")], picture(1)),
        RECEIVERS[1]: pack_query(WHO, np.eye(2, 3, dtype=np.float32)),
        RECEIVERS[2]: pack_embeddings(WHO, [embedding(2)]),
    }
    receive = data.draw(st.sampled_from(list(messages)))
    tensors = safetensors.load(messages[receive])
    name = data.draw(st.sampled_from(sorted(tensors)))
    if name.startswith("json") and data.draw(st.booleans()):
        values = json.loads(tensors[name].tobytes())
        place = values["page"] if "page" in values and data.draw(st.booleans()) else values
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON_VALUES)
        tensors[name] = np.frombuffer(json.dumps(values).encode(), np.uint8)
    else:
        tensors[name] = data.draw(ARRAYS)
    with contextlib.suppress(*INVALID, ServiceError):
        receive(safetensors.save(tensors))


@given(st.data())
@settings(max_examples=50)
def test_messages_of_the_wrong_length_are_errors(data: st.DataObject) -> None:
    message = send([page_with("one two"), page_with("three", 2)], picture(1), picture(2))
    if data.draw(st.booleans()):
        broken = message[: data.draw(st.integers(0, len(message) - 1))]
    else:
        broken = message + data.draw(st.binary(min_size=1, max_size=20))
    with pytest.raises(MalformedMessage):
        unpack_pages(broken)


def message_of_type(kind: str) -> bytes:
    """Return a message with an array of an unsupported type or an absurd shape."""
    shape = [2**40, 2**40] if kind == "F32" else [2]
    header = {"json": {"dtype": kind, "shape": shape, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


@pytest.mark.parametrize("kind", ["BF16", "F32", "F8_E4M3", "nonsense"])
def test_unsupported_number_types_and_shapes_are_errors(kind: str) -> None:
    with pytest.raises(MalformedMessage, match="safetensors"):
        remote.load(message_of_type(kind))


NAN, LONG = np.full((2, 3), np.nan, np.float16), np.full((2, 3), 0.7, np.float16)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"vectors_0": None}, "page 1: vectors must be a numpy array"),
        ({"vectors_0": np.array(1, np.float16)}, r"vectors must be float16 of shape \(0, 3\)"),
        ({"vectors_0": np.zeros((2, 4), np.float16)}, r"float16 of shape \(2, 3\)"),
        ({"vectors_0": np.zeros((2, 3), np.float32)}, "must be float16"),
        ({"vectors_0": NAN}, "NaN or an infinity in vector 0 of page 1"),
        ({"vectors_0": np.full((2, 3), np.inf, np.float16)}, "NaN or an infinity"),
        ({"vectors_0": LONG}, "length of vector 0 of page 1 is 1.2"),
        ({"vectors_0": np.zeros((2, 3), np.float16)}, "length of vector 0 of page 1 is 0"),
        ({"boxes_0": np.full((2, 4), np.nan, np.float32)}, "page 1: boxes"),
        ({"boxes_0": np.full((2, 4), 1.5, np.float32)}, "page 1: boxes"),
        ({"boxes_0": np.zeros((3, 4), np.float32)}, r"shape \(2, 4\)"),
        ({"words_0": np.array([0, -2], np.int32)}, "page 1: words"),
        ({"words_0": np.array([0, 2], np.int32)}, "page 1: words"),
        ({"words_0": np.zeros(2, np.int64)}, "must be int32"),
        ({"values": {"invalid": []}}, "1 entries"),
        ({"values": {"invalid": None}}, "1 entries"),
        ({"values": {"invalid": ["why"]}}, "page 1: it is invalid and has 2 vectors"),
        ({"values": {"invalid": [1]}}, "short line"),
        ({"json": np.frombuffer(b"[]", np.uint8)}, "object"),
        ({"json": np.frombuffer(b"[" * 200_000, np.uint8)}, "JSON"),
        ({"json": np.zeros(3, np.float32)}, "json must be an array of bytes"),
    ],
)
def test_embeddings_are_checked(changes: dict[str, Any], error: str) -> None:
    message = with_changes(pack_embeddings(WHO, [embedding(2)]), **changes)
    with pytest.raises(INVALID, match=error):
        remote.unpack_embeddings(message, WHO, [page_with("one two")])


@pytest.mark.parametrize("reason", ["because\n\x07", "b" * 1001, ""])
def test_reasons_are_short_printable_lines(reason: str) -> None:
    message = with_changes(pack_embeddings(WHO, [embedding(0)]), {"invalid": [reason]})
    with pytest.raises(MalformedMessage, match="short line"):
        remote.unpack_embeddings(message, WHO, [page_with("a")])


def test_a_page_without_vectors_has_a_reason() -> None:
    empty = embedding(0)
    why = PageEmbedding(empty.vectors, empty.boxes, empty.words, "not a number, twice")
    message = pack_embeddings(WHO, [why, embedding(2)])
    first, second = remote.unpack_embeddings(message, WHO, [page_with("a"), page_with("b", 2)])
    assert (first.invalid, len(first.vectors)) == ("not a number, twice", 0)
    assert (second.invalid, len(second.vectors)) == (None, 2)


@pytest.mark.parametrize(
    ("vectors", "error"),
    [
        (None, "two dimensions"),
        (np.zeros((0, 3), np.float32), "no vectors"),
        (np.eye(2, 3, dtype=np.int32), "must be float16"),
        (np.eye(2, 4, dtype=np.float32), "4 dimensions"),
        (np.full((1, 3), np.nan, np.float32), "NaN"),
        # A longer vector would score higher than all other pages.
        (np.full((1, 3), 1.02, np.float32), "length of vector 0 of the query is 1.767"),
        (np.full((1, 3), 3e38, np.float32), "length of vector 0"),
        (np.full((1, 3), 1e300), "infinity"),
    ],
)
def test_question_vectors_are_checked(vectors: Any, error: str) -> None:
    message = with_changes(pack_query(WHO, np.eye(1, 3, dtype=np.float32)), vectors=vectors)
    with pytest.raises(InvalidVectors, match=error):
        remote.unpack_query(message, WHO)


@pytest.mark.parametrize(
    "change", [{"name": "\x1b[2J"}, {"version": "2"}, {"dimension": 4}, {"dimension": None}]
)
def test_vectors_of_another_encoder_are_errors(change: dict[str, Any]) -> None:
    message = with_changes(pack_query(WHO, np.eye(1, 3, dtype=np.float32)), change)
    with pytest.raises(ServiceError, match="version") as refused:
        remote.unpack_query(message, WHO)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"visar_wire": 1}, "visar_wire is 1; .*same version of visar on both sides"),
        ({"visar_wire": None}, "visar_wire is None"),
        ({"name": "pixels\x1b[2J"}, "name is"),
        ({"version": "1" * 1001}, "version is"),
        ({"dimension": 0}, "dimension is"),
        ({"dimension": True}, "dimension is"),
        ({"dimension": 10**9}, "dimension is"),
        ({"reads": ["words"]}, "reads is"),
        ({"weak_match": float("nan")}, "weak_match is"),
        ({"weak_match": 10**400}, "weak_match is"),
        ({"max_body": -1}, "max_body is"),
    ],
)
def test_descriptions_are_checked(change: dict[str, Any], error: str) -> None:
    with pytest.raises(MalformedMessage, match=error) as refused:
        remote.Description.from_json(json.dumps(WHO.to_json() | change).encode())
    assert len(str(refused.value)) < 200


PAGE = {"number": 1, "width": 1.0, "height": 1.0, "rotation": 0, "text_source": "ocr", "words": []}
WORD = {"text": "a", "box": [0, 0, 1, 1], "line": 0}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"page": {}}, r"page\.number: Field required"),
        ({"page": PAGE | {"width": float("nan")}}, r"page\.width: .*finite"),
        ({"page": PAGE | {"text_source": "hearsay"}}, r"page\.text_source"),
        ({"page": PAGE | {"words": [WORD | {"box": [0, 0, 1]}]}}, r"page\.words\.0\.box"),
        ({"page": PAGE | {"words": [WORD | {"box": [0, 0, 1, 1e999]}]}}, "finite"),
        ({"image": [0, 2]}, "greater than 0"),
        ({"image": [2, 2, 2]}, "image"),
        ({"image": [remote.MAX_PIXELS, 2]}, "200000000 pixels"),
        ({"image": [3, 2]}, "3 × 2"),
        ({"image": [1, 2]}, "1 × 2"),
    ],
)
def test_pages_are_checked(values: dict[str, Any], error: str) -> None:
    with pytest.raises(MalformedMessage, match=error):
        unpack_pages(with_changes(send([page_with("a")], picture(1, 2, 2)), values))


@pytest.mark.parametrize(
    ("pixels", "error"),
    [
        # A few kilobytes could unpack to gigabytes, so only the declared size is unpacked.
        (zlib.compress(bytes(50_000_000)), "2 × 2"),
        (zlib.compress(bytes(12)) + b"more", "size 2 × 2"),
        (zlib.compress(bytes(12))[:-1], "size 2 × 2"),
        (b"no zlib", "unpacked"),
        (b"", "size 2 × 2"),
    ],
)
def test_images_are_checked(pixels: bytes, error: str) -> None:
    message = send([page_with("a")], picture(1, 2, 2))
    with pytest.raises(MalformedMessage, match=error):
        unpack_pages(with_changes(message, pixels_0=np.frombuffer(pixels, np.uint8)))


def test_messages_have_a_valid_number_of_pages() -> None:
    for count in (0, remote.MAX_PAGES + 1):
        pages = [page_with("a", number) for number in range(1, count + 1)]
        with pytest.raises(MalformedMessage, match=f"{count} pages"):
            unpack_pages(send(pages))
