"""The messages of a service and its users: whole when right, refused when anything is wrong."""

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
from visar.encoders import wire
from visar.encoders.protocol import PageEmbedding
from visar.encoders.service import unpack_pages
from visar.errors import MalformedMessage, ServiceError

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
WHO = wire.Description("pixels", "1", 3, "image", 0.25, 1000)
RECEIVERS: list[Callable[[bytes], Any]] = [
    unpack_pages,
    lambda message: wire.unpack_query(message, WHO),
    lambda message: wire.unpack_embeddings(message, WHO, [page_with("one two")]),
    wire.Description.from_json,
]


def send(pages: list[Page], *images: Image.Image) -> bytes:
    shown = images or [None] * len(pages)
    return wire.join_pages([wire.pack_page(*each) for each in zip(pages, shown, strict=True)])


def embedding(count: int) -> PageEmbedding:
    rng = np.random.default_rng(0)
    return PageEmbedding(
        rng.uniform(-0.5, 0.5, (count, 3)).astype(np.float16),
        rng.random((count, 4), np.float32),
        np.zeros(count, np.int32),
    )


def edited(message: bytes, values: dict[str, Any] | None = None, **arrays: Any) -> bytes:
    """The message with other values in its JSON, and other arrays; None leaves one out."""
    tensors = safetensors.load(message)
    name = "json" if "json" in tensors else "json.0"
    known = json.loads(tensors[name].tobytes())
    tensors[name] = np.frombuffer(json.dumps(known | (values or {})).encode(), np.uint8)
    kept = (tensors | {key.replace("_", "."): array for key, array in arrays.items()}).items()
    return safetensors.save({key: array for key, array in kept if array is not None})


@given(st.lists(PAGES, min_size=1, max_size=4))
def test_pages_arrive_as_they_were_sent(pages: list[Page]) -> None:
    assert unpack_pages(send(pages)) == (pages, [])


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
@settings(max_examples=30)
def test_images_arrive_pixel_by_pixel(width: int, height: int, seed: int) -> None:
    images = [picture(seed, width, height), picture(seed + 1, height, width)]
    _, received = unpack_pages(send([page_with("a"), page_with("b", 2)], *images))
    assert [image.size for image in received] == [image.size for image in images]
    assert [image.tobytes() for image in received] == [image.tobytes() for image in images]


@given(
    st.lists(
        st.integers(0, 5).flatmap(
            lambda n: st.tuples(
                arrays.arrays(np.float16, (n, 3), elements=st.floats(-0.5, 0.5, width=16)),
                arrays.arrays(np.float32, (n, 4), elements=st.floats(0, 1, width=32)),
                arrays.arrays(np.int32, (n,), elements=st.integers(-1, 1)),
            )
        ),
        min_size=1,
        max_size=3,
    )
)
def test_vectors_arrive_bit_by_bit(parts: list[tuple[Any, Any, Any]]) -> None:
    sent = [PageEmbedding(*part) for part in parts]
    pages = [page_with("one two", number) for number in range(1, len(sent) + 1)]
    received = wire.unpack_embeddings(wire.pack_embeddings(WHO, sent), WHO, pages)
    for one, other in zip(sent, received, strict=True):
        for name in ("vectors", "boxes", "words"):
            here, there = getattr(one, name), getattr(other, name)
            assert (here.dtype, here.shape) == (there.dtype, there.shape)
            assert here.tobytes() == there.tobytes()


def test_the_vectors_of_a_question_arrive_bit_by_bit() -> None:
    vectors = np.random.default_rng(3).uniform(-0.5, 0.5, (5, 3)).astype(np.float32)
    # Not contiguous, as a slice of a model's output may be.
    received = wire.unpack_query(wire.pack_query(WHO, vectors[::2]), WHO)
    np.testing.assert_array_equal(received, vectors[::2], strict=True)


def test_a_description_arrives() -> None:
    assert wire.Description.from_json(json.dumps(WHO.to_json()).encode()) == WHO


def test_what_a_page_adds_to_a_message_is_known_before() -> None:
    """The client fills messages up to the service's limit by these sizes."""
    for count in (1, 3, 64):
        packed = [wire.pack_page(page_with("one two", n), picture(n)) for n in range(1, count + 1)]
        total = sum(map(wire.size_of, packed))
        assert total - 200 * count <= len(wire.join_pages(packed)) <= total


@given(st.sampled_from(RECEIVERS), st.binary(max_size=300))
def test_garbage_is_refused(receive: Callable[[bytes], Any], garbage: bytes) -> None:
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
def test_whatever_a_message_holds_never_breaks_the_receiver(data: st.DataObject) -> None:
    """Either it is understood or it is refused; nothing else comes out."""
    messages = {
        RECEIVERS[0]: send([page_with("one two")], picture(1)),
        RECEIVERS[1]: wire.pack_query(WHO, np.eye(2, 3, dtype=np.float32)),
        RECEIVERS[2]: wire.pack_embeddings(WHO, [embedding(2)]),
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
    with contextlib.suppress(MalformedMessage, ServiceError):
        receive(safetensors.save(tensors))


@given(st.data())
@settings(max_examples=50)
def test_a_message_cut_short_or_with_more_behind_it_is_refused(data: st.DataObject) -> None:
    message = send([page_with("one two"), page_with("three", 2)], picture(1), picture(2))
    if data.draw(st.booleans()):
        broken = message[: data.draw(st.integers(0, len(message) - 1))]
    else:
        broken = message + data.draw(st.binary(min_size=1, max_size=20))
    with pytest.raises(MalformedMessage):
        unpack_pages(broken)


def of_numbers(kind: str) -> bytes:
    """A message of one array of a kind that numpy does not know, or of an absurd shape."""
    shape = [2**40, 2**40] if kind == "F32" else [2]
    header = {"json": {"dtype": kind, "shape": shape, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


@pytest.mark.parametrize("kind", ["BF16", "F32", "F8_E4M3", "nonsense"])
def test_numbers_of_other_kinds_and_absurd_shapes_are_refused(kind: str) -> None:
    with pytest.raises(MalformedMessage, match="no safetensors message"):
        wire.load(of_numbers(kind))


NAN, LONG = np.full((2, 3), np.nan, np.float16), np.full((2, 3), 0.6, np.float16)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vectors_0": None}, r"it has no vectors\.0"),
        ({"vectors_0": np.zeros((2, 4), np.float16)}, r"must be float16 of the shape \(None, 3\)"),
        ({"vectors_0": np.zeros((2, 3), np.float32)}, "must be float16"),
        ({"vectors_0": NAN}, "are not finite"),
        ({"vectors_0": np.full((2, 3), np.inf, np.float16)}, "are not finite"),
        ({"vectors_0": LONG}, "are longer than 1"),
        ({"boxes_0": np.full((2, 4), np.nan, np.float32)}, "not on the page"),
        ({"boxes_0": np.full((2, 4), 1.5, np.float32)}, "not on the page"),
        ({"boxes_0": np.zeros((3, 4), np.float32)}, r"shape \(2, 4\)"),
        ({"words_0": np.array([0, -2], np.int32)}, "page 1 does not have"),
        ({"words_0": np.array([0, 2], np.int32)}, "page 1 does not have"),
        ({"words_0": np.zeros(2, np.int64)}, "must be int32"),
        ({"values": {"invalid": []}}, "must have 1 entries"),
        ({"values": {"invalid": None}}, "must have 1 entries"),
        ({"values": {"invalid": ["why"]}}, "is invalid with vectors"),
        ({"values": {"invalid": [1]}}, "no short reason"),
        ({"json": np.frombuffer(b"[]", np.uint8)}, "no object"),
        ({"json": np.frombuffer(b"[" * 200_000, np.uint8)}, "it has no JSON"),
        ({"json": np.zeros(3, np.float32)}, "json must be uint8"),
    ],
)
def test_embeddings_are_checked(changes: dict[str, Any], said: str) -> None:
    message = edited(wire.pack_embeddings(WHO, [embedding(2)]), **changes)
    with pytest.raises(MalformedMessage, match=said):
        wire.unpack_embeddings(message, WHO, [page_with("one two")])


@pytest.mark.parametrize("reason", ["because\n\x07", "b" * 1001, ""])
def test_what_would_be_shown_and_kept_is_a_short_line(reason: str) -> None:
    message = edited(wire.pack_embeddings(WHO, [embedding(0)]), {"invalid": [reason]})
    with pytest.raises(MalformedMessage, match="no short reason"):
        wire.unpack_embeddings(message, WHO, [page_with("a")])


def test_a_page_without_vectors_says_why() -> None:
    empty = embedding(0)
    why = PageEmbedding(empty.vectors, empty.boxes, empty.words, "not a number, twice")
    message = wire.pack_embeddings(WHO, [why, embedding(2)])
    first, second = wire.unpack_embeddings(message, WHO, [page_with("a"), page_with("b", 2)])
    assert (first.invalid, len(first.vectors)) == ("not a number, twice", 0)
    assert (second.invalid, len(second.vectors)) == (None, 2)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (np.zeros((0, 3), np.float32), "no vectors"),
        (np.eye(2, 3, dtype=np.float64), "must be float32"),
        (np.eye(2, 4, dtype=np.float32), "shape"),
        (np.full((1, 3), np.nan, np.float32), "not finite"),
        # One of them would outdo every other page.
        (np.full((1, 3), 1.02, np.float32), "longer than 1"),
        (np.full((1, 3), 3e38, np.float32), "longer than 1"),
    ],
)
def test_the_vectors_of_a_question_are_checked(vectors: Any, said: str) -> None:
    message = edited(wire.pack_query(WHO, np.eye(1, 3, dtype=np.float32)), vectors=vectors)
    with pytest.raises(MalformedMessage, match=said):
        wire.unpack_query(message, WHO)


@pytest.mark.parametrize(
    "change", [{"name": "\x1b[2J"}, {"version": "2"}, {"dimension": 4}, {"dimension": None}]
)
def test_vectors_of_another_encoder_are_refused(change: dict[str, Any]) -> None:
    message = edited(wire.pack_query(WHO, np.eye(1, 3, dtype=np.float32)), change)
    with pytest.raises(ServiceError, match="vectors of both do not mix") as refused:
        wire.unpack_query(message, WHO)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"visar_wire": 1}, "its visar_wire is 1; .*same version of visar on both sides"),
        ({"visar_wire": None}, "its visar_wire is None"),
        ({"name": "pixels\x1b[2J"}, "its name is"),
        ({"version": "1" * 1001}, "its version is"),
        ({"dimension": 0}, "its dimension is"),
        ({"dimension": True}, "its dimension is"),
        ({"dimension": 10**9}, "its dimension is"),
        ({"reads": ["words"]}, "its reads is"),
        ({"weak_match": float("nan")}, "its weak_match is"),
        ({"weak_match": 10**400}, "its weak_match is"),
        ({"max_body": -1}, "its max_body is"),
    ],
)
def test_descriptions_are_checked(change: dict[str, Any], said: str) -> None:
    with pytest.raises(MalformedMessage, match=said) as refused:
        wire.Description.from_json(json.dumps(WHO.to_json() | change).encode())
    assert len(str(refused.value)) < 200


PAGE = {"number": 1, "width": 1.0, "height": 1.0, "rotation": 0, "text_source": "ocr", "words": []}
WORD = {"text": "a", "box": [0, 0, 1, 1], "line": 0}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"page": {}}, r"page\.number: Field required"),
        ({"page": PAGE | {"width": float("nan")}}, r"page\.width: .*finite"),
        ({"page": PAGE | {"text_source": "hearsay"}}, r"page\.text_source"),
        ({"page": PAGE | {"words": [WORD | {"box": [0, 0, 1]}]}}, r"page\.words\.0\.box"),
        ({"page": PAGE | {"words": [WORD | {"box": [0, 0, 1, 1e999]}]}}, "finite"),
        ({"image": [0, 2]}, "greater than 0"),
        ({"image": [2, 2, 2]}, "image"),
        ({"image": [wire.MAX_PIXELS, 2]}, "200000000 pixels"),
        ({"image": [3, 2]}, "not of the size 3 × 2"),
        ({"image": [1, 2]}, "not of the size 1 × 2"),
    ],
)
def test_pages_are_checked(values: dict[str, Any], said: str) -> None:
    with pytest.raises(MalformedMessage, match=said):
        unpack_pages(edited(send([page_with("a")], picture(1, 2, 2)), values))


@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        # A few kilobytes can unpack to gigabytes: never more than announced is unpacked.
        (zlib.compress(bytes(50_000_000)), "not of the size 2 × 2"),
        (zlib.compress(bytes(12)) + b"more", "not of the size"),
        (zlib.compress(bytes(12))[:-1], "not of the size"),
        (b"no zlib", "cannot be unpacked"),
        (b"", "not of the size"),
    ],
)
def test_images_are_checked(pixels: bytes, said: str) -> None:
    message = send([page_with("a")], picture(1, 2, 2))
    with pytest.raises(MalformedMessage, match=said):
        unpack_pages(edited(message, pixels_0=np.frombuffer(pixels, np.uint8)))


def test_too_many_pages_and_none_are_refused() -> None:
    for count in (0, wire.MAX_PAGES + 1):
        pages = [page_with("a", number) for number in range(1, count + 1)]
        with pytest.raises(MalformedMessage, match=f"it has {count} pages"):
            unpack_pages(send(pages))
