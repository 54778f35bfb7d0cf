"""The format between a service and its users: whole when right, refused when anything is wrong."""

from __future__ import annotations

import contextlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from tests.encoders.samples import page_with, picture
from visar.documents.page import Page, TextSource, Word
from visar.encoders import wire
from visar.encoders.protocol import PageEmbedding
from visar.errors import MalformedMessage

DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "remote-encoders.md").read_text("utf-8")
SHARES = st.floats(0, 1, width=32)
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
WHO = wire.Identity("pixels", "1", 3)
UNPACKERS: list[Callable[[bytes], Any]] = [
    wire.unpack_pages,
    wire.unpack_question,
    wire.unpack_query,
    lambda message: wire.unpack_embeddings(message, [page_with("one two")]),
    wire.Description.from_json,
]


def send(pages: list[Page], images: list[Image.Image] | None = None) -> bytes:
    given_images: Sequence[Image.Image | None] = images or [None] * len(pages)
    return wire.join_pages(
        [wire.pack_page(page, image) for page, image in zip(pages, given_images, strict=True)]
    )


def embedding(*counts: int) -> list[PageEmbedding]:
    rng = np.random.default_rng(0)
    return [
        PageEmbedding(
            rng.uniform(-0.5, 0.5, (count, 3)).astype(np.float16),
            rng.random((count, 4), np.float32),
            np.zeros(count, np.int32),
        )
        for count in counts
    ]


def edited(message: bytes, **changes: Any) -> bytes:
    """The message with other values in its header, and the same payload."""
    return with_header(message, header_of(message) | changes)


def header_of(message: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", message, 8)
    header: dict[str, Any] = json.loads(message[12 : 12 + length])
    return header


def with_header(message: bytes, header: dict[str, Any]) -> bytes:
    (length,) = struct.unpack_from("<I", message, 8)
    text = json.dumps(header).encode()
    return message[:8] + struct.pack("<I", len(text)) + text + message[12 + length :]


@given(st.lists(PAGES, min_size=1, max_size=4))
def test_pages_arrive_as_they_were_sent(pages: list[Page]) -> None:
    assert wire.unpack_pages(send(pages)) == (pages, [])


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
@settings(max_examples=30)
def test_images_arrive_pixel_by_pixel(width: int, height: int, seed: int) -> None:
    images = [picture(seed, width, height), picture(seed + 1, height, width)]
    _, received = wire.unpack_pages(send([page_with("a"), page_with("b", 2)], images))
    assert [image.size for image in received] == [image.size for image in images]
    assert [image.tobytes() for image in received] == [image.tobytes() for image in images]


@given(
    st.lists(
        st.integers(0, 5).flatmap(
            lambda n: st.tuples(
                arrays.arrays(np.float16, (n, 3), elements=st.floats(-0.5, 0.5, width=16)),
                arrays.arrays(np.float32, (n, 4), elements=SHARES),
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
    who, received = wire.unpack_embeddings(wire.pack_embeddings(WHO, sent), pages)
    assert who == WHO
    for one, other in zip(sent, received, strict=True):
        for name in ("vectors", "boxes", "words"):
            here, there = getattr(one, name), getattr(other, name)
            assert (here.dtype, here.shape) == (there.dtype, there.shape)
            assert here.tobytes() == there.tobytes()


@given(st.text(min_size=1, max_size=200))
def test_questions_arrive_as_they_were_asked(question: str) -> None:
    assert wire.unpack_question(wire.pack_question(question)) == question


def test_the_vectors_of_a_question_arrive_bit_by_bit() -> None:
    vectors = np.random.default_rng(3).uniform(-0.5, 0.5, (5, 3)).astype(np.float32)
    who, received = wire.unpack_query(wire.pack_query(WHO, vectors))
    assert who == WHO
    np.testing.assert_array_equal(received, vectors, strict=True)


def test_a_description_arrives() -> None:
    said = wire.Description(WHO, "image", 0.25, 1000)
    assert wire.Description.from_json(said.to_json()) == said


def test_what_a_page_adds_to_a_message_is_known_before() -> None:
    """The client fills messages up to the service's limit by these sizes."""
    packed = [wire.pack_page(page_with("one two", n), picture(n)) for n in range(1, 4)]
    message = wire.join_pages(packed)
    assert len(message) <= wire.OVERHEAD + sum(page.size for page in packed) <= len(message) + 2


@given(st.sampled_from(UNPACKERS), st.binary(max_size=300))
def test_garbage_is_refused(unpack: Callable[[bytes], Any], garbage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        unpack(garbage)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=150)
def test_a_header_with_anything_in_it_never_breaks_the_receiver(data: st.DataObject) -> None:
    """Either it is understood or it is malformed; nothing else comes out."""
    messages = {
        wire.unpack_pages: send([page_with("one two")], [picture(1)]),
        wire.unpack_question: wire.pack_question("why?"),
        wire.unpack_query: wire.pack_query(WHO, np.eye(2, 3, dtype=np.float32)),
        UNPACKERS[3]: wire.pack_embeddings(WHO, embedding(2)),
    }
    unpack = data.draw(st.sampled_from(list(messages)))
    message: bytes = messages[unpack]
    header = header_of(message)
    place = header
    if "pages" in header and data.draw(st.booleans()):
        place = header["pages"][0]
        if data.draw(st.booleans()):
            place = place["image"]
    key = data.draw(st.sampled_from(sorted(place)))
    if data.draw(st.booleans()):
        place[key] = data.draw(JSON_VALUES)
    else:
        del place[key]
    with contextlib.suppress(MalformedMessage):
        unpack(with_header(message, header))


@given(st.data())
@settings(max_examples=100)
def test_a_message_cut_short_or_with_more_behind_it_is_refused(data: st.DataObject) -> None:
    message = send([page_with("one two"), page_with("three", 2)], [picture(1), picture(2)])
    if data.draw(st.booleans()):
        broken = message[: data.draw(st.integers(0, len(message) - 1))]
    else:
        broken = message + data.draw(st.binary(min_size=1, max_size=20))
    with pytest.raises(MalformedMessage):
        wire.unpack_pages(broken)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": [1, 1]}, "for 2 pages, not for 1"),
        ({"counts": [-1]}, "counts must be 0"),
        ({"counts": [True]}, "counts must be 0"),
        ({"counts": [3]}, "too early"),
        ({"counts": [1]}, "too many"),
        ({"dimension": 4}, "too early"),
        ({"dimension": 0}, "dimension must be 1"),
        ({"dimension": 10**9}, "dimension must be 1"),
        ({"name": ""}, "name must be text"),
        ({"invalid": []}, "each of the 1 pages"),
        ({"invalid": [1]}, "each of the 1 pages"),
        ({"invalid": ["why"]}, "is invalid has vectors"),
        ({"kind": "query"}, "kind 'query', not 'embeddings'"),
    ],
)
def test_embeddings_are_checked(changes: dict[str, Any], said: str) -> None:
    message = edited(wire.pack_embeddings(WHO, embedding(2)), **changes)
    with pytest.raises(MalformedMessage, match=said):
        wire.unpack_embeddings(message, [page_with("one two")])


def test_a_page_without_vectors_says_why() -> None:
    empty = embedding(0)[0]
    why = PageEmbedding(empty.vectors, empty.boxes, empty.words, "not a number, twice")
    message = wire.pack_embeddings(WHO, [why, *embedding(2)])
    _, (first, second) = wire.unpack_embeddings(message, [page_with("a"), page_with("b", 2)])
    assert (first.invalid, len(first.vectors)) == ("not a number, twice", 0)
    assert (second.invalid, len(second.vectors)) == (None, 2)


def test_a_word_the_page_does_not_have_is_refused() -> None:
    (sent,) = embedding(1)
    message = wire.pack_embeddings(
        WHO, [PageEmbedding(sent.vectors, sent.boxes, np.array([2], np.int32))]
    )
    with pytest.raises(MalformedMessage, match="words that page 1 does not have"):
        wire.unpack_embeddings(message, [page_with("one two")])


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("vectors", np.full((1, 3), np.nan, np.float16), "not finite"),
        ("vectors", np.full((1, 3), np.inf, np.float16), "not finite"),
        ("vectors", np.zeros((1, 4), np.float16), "shape"),
        ("boxes", np.full((1, 4), np.nan, np.float32), "not on the page"),
        ("boxes", np.full((1, 4), 1.5, np.float32), "not on the page"),
        ("boxes", np.zeros((2, 4), np.float32), "shape"),
        ("words", np.array([-2], np.int32), "below -1"),
        ("words", np.zeros((2,), np.int32), "shape"),
    ],
)
def test_what_no_encoder_may_give_is_not_even_sent(part: str, value: Any, said: str) -> None:
    (good,) = embedding(1)
    parts: dict[str, Any] = {"vectors": good.vectors, "boxes": good.boxes, "words": good.words}
    with pytest.raises(MalformedMessage, match=said):
        wire.pack_embeddings(WHO, [PageEmbedding(**parts | {part: value})])


def test_vectors_that_are_not_finite_are_refused_on_receipt() -> None:
    message = bytearray(wire.pack_query(WHO, np.eye(1, 3, dtype=np.float32)))
    message[-4:] = struct.pack("<f", float("nan"))
    with pytest.raises(MalformedMessage, match="not finite"):
        wire.unpack_query(bytes(message))


@pytest.mark.parametrize("length", [1.02, 1e30, 3e38])
def test_vectors_that_are_longer_than_1_are_refused_on_receipt(length: float) -> None:
    """One of them would outdo every other page."""
    message = bytearray(wire.pack_query(WHO, np.eye(1, 3, dtype=np.float32)))
    message[-4:] = struct.pack("<f", length)
    with pytest.raises(MalformedMessage, match="longer than 1"):
        wire.unpack_query(bytes(message))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "pixels\x1b[2J"}, "name must be a line"),
        ({"version": "1" * 1001}, "version must be a line of at most 1000"),
        ({"invalid": ["because\n\x07"]}, "invalid must give lines"),
        ({"invalid": ["b" * 1001]}, "lines of at most 1000"),
        ({"filling": " " * 3_000_000}, "its header has 30"),
    ],
)
def test_what_would_be_shown_and_kept_is_a_short_line(changes: dict[str, Any], said: str) -> None:
    message = edited(wire.pack_embeddings(WHO, embedding(0)), **changes)
    with pytest.raises(MalformedMessage, match=said):
        wire.unpack_embeddings(message, [page_with("a")])


def test_an_image_that_unpacks_to_more_than_it_says_is_refused() -> None:
    """A few kilobytes can unpack to gigabytes: never more than announced is unpacked."""
    page = wire.pack_page(page_with(""), picture(1, 2, 2))
    bomb = zlib.compress(bytes(50_000_000))
    header = json.loads(page.header)
    header["image"]["bytes"] = len(bomb)
    message = wire.join_pages([wire.PackedPage(json.dumps(header).encode(), bomb)])
    with pytest.raises(MalformedMessage, match="not of the size 2 × 2"):
        wire.unpack_pages(message)


def test_more_pixels_than_allowed_are_refused_before_anything_is_unpacked() -> None:
    page = wire.pack_page(page_with(""), picture(1, 2, 2))
    header = json.loads(page.header)
    header["image"] |= {"width": wire.MAX_PIXELS, "height": 2}
    message = wire.join_pages([wire.PackedPage(json.dumps(header).encode(), page.payload)])
    with pytest.raises(MalformedMessage, match="200000000 pixels"):
        wire.unpack_pages(message)


def test_an_image_for_some_pages_only_is_refused() -> None:
    packed = [wire.pack_page(page_with("a"), picture(1)), wire.pack_page(page_with("b", 2))]
    with pytest.raises(MalformedMessage, match="some have none"):
        wire.unpack_pages(wire.join_pages(packed))


def test_brackets_without_end_are_refused() -> None:
    deep = b"[" * 200_000
    with pytest.raises(MalformedMessage, match="no JSON"):
        wire.unpack_pages(b"VISR" + struct.pack("<II", 1, len(deep)) + deep)


def test_another_version_is_named() -> None:
    message = wire.pack_question("why?")
    with pytest.raises(MalformedMessage, match="version 2 of the format, not 1"):
        wire.unpack_question(message[:4] + struct.pack("<I", 2) + message[8:])
    said = json.loads(wire.Description(WHO, "words", 0.1, 10).to_json()) | {"visar_wire": 2}
    with pytest.raises(MalformedMessage, match="the same version of visar on both sides"):
        wire.Description.from_json(json.dumps(said).encode())


def test_the_bytes_are_those_the_documentation_shows() -> None:
    """Other programs may speak the format: it changes only with its version."""
    shown = [
        bytes.fromhex("".join(re.findall(r"^[0-9a-f]{4}  (.{47})", dump, flags=re.M)))
        for dump in re.findall(r"```text\n(0000  .*?)```", DOCUMENTATION, flags=re.S)
    ]
    who = wire.Identity("toy", "1", 2)
    word = Word("Hi", (0.25, 0.5, 0.75, 1.0), 0)
    vectors = PageEmbedding(
        np.array([[0, 1]], np.float16), np.array([word.box], np.float32), np.array([0], np.int32)
    )
    assert shown == [
        wire.pack_question("Why?"),
        wire.pack_query(who, np.array([[1, 0]], np.float32)),
        send([Page(1, 612.0, 792.0, 0, (word,), "text layer")]),
        wire.pack_embeddings(who, [vectors]),
    ]
