"""An encoder elsewhere gives what it gives here, and what goes wrong on the way is told."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.encoders.samples import PixelEncoder, page_with, picture
from tests.encoders.servers import Asked, Says, answering, serving
from visar import network
from visar.documents.page import Page
from visar.encoders import wire
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.protocol import PageEmbedding
from visar.encoders.registry import get_encoder
from visar.encoders.remote import RemoteEncoder
from visar.errors import EmptyQuestion, InvalidOption, ServiceError
from visar.index import Index

MakePdf = Callable[..., Path]
TOKEN = "correct-horse-battery-staple"  # noqa: S105
PIXELS = wire.Description("pixels", "1", 48, "image", 0.25, wire.MAX_BODY)
DESCRIBED = Says(200, json.dumps(PIXELS.to_json()).encode())
QUERY = wire.pack_query(PIXELS, PixelEncoder().encode_query("why?"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PAUSES", (0.01, 0.01))
    monkeypatch.delenv("VISAR_TOKEN", raising=False)


def assert_same(received: Sequence[PageEmbedding], expected: Sequence[PageEmbedding]) -> None:
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors, strict=True)
        np.testing.assert_array_equal(one.boxes, other.boxes, strict=True)
        np.testing.assert_array_equal(one.words, other.words, strict=True)


def test_an_encoder_of_words_is_the_same_from_afar() -> None:
    here = EmbeddedEncoder()
    pages = [page_with("Income tax is due in April"), page_with("", 2), page_with("naïve “ß”", 3)]
    with serving(here) as url:
        there = get_encoder(url)
        for name in ("name", "version", "dimension", "reads", "weak_match"):
            assert getattr(there, name) == getattr(here, name)
        assert_same(there.encode_pages(pages, []), here.encode_pages(pages))
        np.testing.assert_array_equal(
            there.encode_query("When is tax due?"), here.encode_query("When is tax due?")
        )
        with pytest.raises(EmptyQuestion, match="no word or number"):
            there.encode_query("???")
        with pytest.raises(EmptyQuestion):
            there.encode_query("")
        assert there.encode_query("tax " * 1_000).size
        with pytest.raises(InvalidOption, match="more than 4000 characters"):
            there.encode_query("tax " * 1_001)


class CountingEncoder(PixelEncoder):
    def __init__(self) -> None:
        self.batches: list[int] = []

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        self.batches.append(len(pages))
        return super().encode_pages(pages, images)


def test_an_encoder_of_images_is_the_same_from_afar_whatever_the_limit() -> None:
    """Each picture has 6 kB: the lower limit takes two at once."""
    pages = [page_with("a", number) for number in range(1, 6)]
    images = [picture(number) for number in range(1, 6)]
    expected = PixelEncoder().encode_pages(pages, images)
    for limit, batches in ((wire.MAX_BODY, [5]), (13_000, [2, 2, 1])):
        here = CountingEncoder()
        with serving(here, max_body=limit) as url:
            assert_same(RemoteEncoder(url).encode_pages(pages, images), expected)
        assert here.batches == batches


def test_no_message_has_more_pages_or_pixels_than_the_format_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "MAX_PAGES", 2)
    monkeypatch.setattr(wire, "MAX_PIXELS", 3 * 40 * 48)
    here = CountingEncoder()
    pages = [page_with("a", number) for number in range(1, 6)]
    images = [picture(1), picture(2), picture(3, 80, 48), picture(4, 80, 48), picture(5)]
    with serving(here) as url:
        received = RemoteEncoder(url).encode_pages(pages, images)
        with pytest.raises(ServiceError, match=r"Page 1 is too large.*--max-megapixels"):
            RemoteEncoder(url).encode_pages(pages[:1], [picture(1, 200, 48)])
    assert here.batches == [2, 1, 2]
    assert_same(received, PixelEncoder().encode_pages(pages, images))


def test_nothing_is_asked_before_something_is_needed() -> None:
    with answering(lambda _: DESCRIBED) as (url, asked):
        encoder = RemoteEncoder(url)
        assert asked == []
        assert (encoder.name, encoder.version, encoder.dimension) == ("pixels", "1", 48)
        assert [request.path for request in asked] == ["/v1/encoder"]


def test_many_threads_share_one_encoder_and_ask_once_who_it_is() -> None:
    here = PixelEncoder()
    questions = [" ".join(["word"] * count) for count in range(1, 33)]
    with serving(here) as url, answering(lambda _: DESCRIBED) as (described, asked):
        there = RemoteEncoder(url)
        with ThreadPoolExecutor(8) as pool:
            received = list(pool.map(there.encode_query, questions))
            encoder = RemoteEncoder(described)
            names = list(pool.map(lambda _: encoder.name, range(8)))
    for question, vectors in zip(questions, received, strict=True):
        np.testing.assert_array_equal(vectors, here.encode_query(question))
    assert names == ["pixels"] * 8
    assert len(asked) == 1


def test_documents_encoded_here_and_there_mix(make_pdf: MakePdf, tmp_path: Path) -> None:
    """The index knows vectors by the encoder that made them, wherever it ran."""
    index = Index.open(tmp_path / "index")
    index.add(make_pdf("boats.pdf", "Sailing boats need wind to leave the harbour."))
    with serving(EmbeddedEncoder()) as url:
        tax = index.add(make_pdf("tax.pdf", "Income tax is due in April."), encoder=url)
        from_afar = index.ask("When is tax due?", encoder=url)
    assert [(ref.name, ref.version) for ref in tax.encoders] == [
        ("embedded", EmbeddedEncoder.version)
    ]
    here = index.ask("When is tax due?")
    assert "April" in here.text
    assert here.text == from_afar.text
    assert here.search.match == from_afar.search.match


def test_an_index_of_images_works_from_afar(make_pdf: MakePdf, tmp_path: Path) -> None:
    path = make_pdf("two.pdf", "Sailing boats.", "Income tax.")
    index = Index.open(tmp_path / "index")
    with serving(PixelEncoder()) as url:
        document = index.add(path, encoder=url)
        assert index.search("tax", encoder=url).pages_searched == 2
    assert [ref.name for ref in document.encoders] == ["pixels"]


def script(*answers: Says) -> Callable[[Asked], Says]:
    """Who it is at once, then the answers one after the other."""
    rest = iter(answers)
    return lambda asked: DESCRIBED if asked.method == "GET" else next(rest)


CUT_OFF = Says(200, QUERY[:-5], {"Content-Length": str(len(QUERY))})


@pytest.mark.parametrize(
    "passing", [Says(429), Says(502), Says(503), Says(504), Says(None), CUT_OFF]
)
def test_what_passes_is_waited_for(passing: Says) -> None:
    with answering(script(passing, passing, Says(200, QUERY))) as (url, asked):
        vectors = RemoteEncoder(url).encode_query("why?")
    np.testing.assert_array_equal(vectors, PixelEncoder().encode_query("why?"))
    assert len(asked) == 4


def test_it_waits_as_long_as_the_service_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("visar.network.time.sleep", waited.append)
    busy = [Says(503, headers={"Retry-After": after}) for after in ("7", "100000")]
    with answering(script(*busy, Says(200, QUERY))) as (url, _):
        RemoteEncoder(url).encode_query("why?")
    assert waited == [7, network.LONGEST_PAUSE]


def test_what_does_not_pass_is_told_in_the_end() -> None:
    with (
        answering(script(*[Says(503)] * 3)) as (url, _),
        pytest.raises(ServiceError, match="answers 503: no reason"),
    ):
        RemoteEncoder(url).encode_query("why?")
    with (
        answering(script(*[Says(None)] * 3)) as (url, _),
        pytest.raises(ServiceError, match="breaks off"),
    ):
        RemoteEncoder(url).encode_query("why?")


def test_a_service_that_starts_anew_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(PixelEncoder()) as url:
        encoder = RemoteEncoder(url)
        assert encoder.name == "pixels"
    port = int(url.rpartition(":")[2])
    starting = serving(PixelEncoder(), port=port)
    monkeypatch.setattr("visar.network.time.sleep", lambda _: starting.__enter__())
    try:
        assert len(encoder.encode_query("one two")) == 2
    finally:
        starting.__exit__(None, None, None)


def test_a_service_that_does_not_run_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visar.network.time.sleep", lambda _: pytest.fail("it waited"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServiceError, match=r"No service answers.*visar encoders serve"):
        _ = RemoteEncoder(f"http://127.0.0.1:{port}").name


def test_a_host_that_does_not_exist_is_told() -> None:
    with pytest.raises(ServiceError, match="No service answers"):
        _ = RemoteEncoder("http://no-such-host.invalid").name


def test_a_service_that_is_silent_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        encoder = RemoteEncoder(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        with pytest.raises(ServiceError, match=r"not answered in time"):
            _ = encoder.name


def test_tls_where_there_is_none_is_told() -> None:
    with answering(lambda _: Says(200)) as (url, _), pytest.raises(ServiceError, match="trusted"):
        _ = RemoteEncoder(url.replace("http", "https")).name


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_service_behind_tls_is_used_if_it_can_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make.split(), *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("VISAR_TOKEN", TOKEN)
    with serving(PixelEncoder(), token=TOKEN, tls=context) as url:
        with pytest.raises(ServiceError, match="cannot be trusted: CERTIFICATE"):
            _ = RemoteEncoder(url.replace("http", "https")).name
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert len(RemoteEncoder(url.replace("http", "https")).encode_query("one two")) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Says(200, b"<html>Welcome</html>"), "no encoder this program understands"),
        (Says(200, b"{}"), "no encoder this program understands: its visar_wire is None"),
        (Says(404, b"not here"), r"answers 404: no reason\. Does `visar encoders serve NAME` run"),
        (Says(404, b"[]"), "answers 404: no reason"),
        (Says(301, headers={"Location": "http://127.0.0.1:1/"}), "answers 301"),
        (Says(200, b'{"visar_wire": 99}'), "same version of visar on both sides"),
        (Says(200, gzip.compress(bytes(10**7)), {"Content-Encoding": "gzip"}), "it has no JSON"),
        (Says(200, b"x" * 200_000), "more than 100000 bytes"),
        (Says(401, b"{}"), "set VISAR_TOKEN"),
    ],
)
def test_what_is_no_service_of_ours_is_told(answer: Says, said: str) -> None:
    with answering(lambda _: answer) as (url, _), pytest.raises(ServiceError, match=said):
        _ = RemoteEncoder(url).name


def test_what_does_not_speak_http_is_told() -> None:
    def greet(server: socket.socket) -> None:
        line, _ = server.accept()
        line.recv(1000)
        line.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
        line.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet, args=(server,))
        thread.start()
        with pytest.raises(ServiceError, match="breaks off, or does not speak HTTP"):
            _ = RemoteEncoder(f"http://127.0.0.1:{server.getsockname()[1]}").name
        thread.join()


def test_a_service_that_comes_back_with_another_encoder_is_refused() -> None:
    class OtherEncoder(PixelEncoder):
        version = "2"

    with serving(PixelEncoder()) as url:
        encoder = RemoteEncoder(url)
        encoder.encode_query("why?")
    with serving(OtherEncoder(), port=int(url.rpartition(":")[2])):
        for ask in (
            lambda: encoder.encode_query("why?"),
            lambda: encoder.encode_pages([page_with("a")], [picture(1)]),
        ):
            with pytest.raises(ServiceError, match=r"'version': '1'.*'version': '2'.*do not mix"):
                ask()
        assert encoder.version == "1"


def test_damaged_answers_are_refused() -> None:
    answers = script(Says(200, QUERY[:-3]), Says(200, QUERY))
    with answering(answers) as (url, _):
        encoder = RemoteEncoder(url)
        with pytest.raises(ServiceError, match="no safetensors message"):
            encoder.encode_query("why?")
        with pytest.raises(ServiceError, match="invalid must have 1 entries"):
            encoder.encode_pages([page_with("a")], [picture(1)])


def test_the_service_s_own_words_are_passed_on() -> None:
    refusal = {"error": {"code": "encoder", "message": "The GPU is on fire."}}
    with (
        answering(script(Says(500, json.dumps(refusal).encode()))) as (url, _),
        pytest.raises(ServiceError, match=r"answers 500: The GPU is on fire\."),
    ):
        RemoteEncoder(url).encode_query("why?")


def test_a_redirect_is_not_followed_and_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token goes to the address given and nowhere else."""
    monkeypatch.setenv("VISAR_TOKEN", TOKEN)
    with answering(lambda _: DESCRIBED) as (elsewhere, overheard):
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, elsewhere)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        away = Says(307, headers={"Location": f"{elsewhere}/v1/encoder"})
        with answering(lambda _: away) as (url, asked), pytest.raises(ServiceError, match="307"):
            _ = RemoteEncoder(url).name
    assert asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert overheard == []


def test_the_token_opens_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(PixelEncoder(), token=TOKEN) as url:
        with pytest.raises(ServiceError, match="set VISAR_TOKEN"):
            _ = RemoteEncoder(url).name
        monkeypatch.setenv("VISAR_TOKEN", "wrong" * 5)
        with pytest.raises(ServiceError, match="set VISAR_TOKEN"):
            _ = RemoteEncoder(url).name
        monkeypatch.setenv("VISAR_TOKEN", TOKEN)
        assert len(RemoteEncoder(url).encode_query("one two")) == 2


@pytest.mark.parametrize("token", [TOKEN, "línea", "two\nlines"])
def test_the_token_never_crosses_the_network_in_the_clear(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("VISAR_TOKEN", token)
    monkeypatch.setattr(
        socket, "create_connection", lambda *_, **__: pytest.fail("it was about to send")
    )
    with pytest.raises(ServiceError, match=r"is not sent to http://gpu\.example") as refused:
        _ = RemoteEncoder("http://gpu.example:8765").name
    assert token not in str(refused.value)


def test_a_token_that_cannot_be_sent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISAR_TOKEN", "two\r\nlines")
    with pytest.raises(ServiceError, match="characters that cannot be sent"):
        _ = RemoteEncoder("http://127.0.0.1:1").name


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ftp://host", "no address of a service"),
        ("http://", "no address of a service"),
        ("http://host:port", "no address of a service"),
        ("http://[::1", "no address of a service"),
        ("http://user:secret@host", "VISAR_TOKEN"),
        ("http://host/?token=x", "more than a host"),
        ("http://host/a b\r\nX: y", "more than a host"),
        ("http://host/a b", "more than a host"),
    ],
)
def test_addresses_are_checked_before_anything_is_sent(address: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said) as refused:
        get_encoder(address)
    assert "secret" not in str(refused.value)


def test_a_path_before_the_service_s_own_is_kept() -> None:
    """A proxy may serve several encoders under one name."""
    with answering(lambda _: DESCRIBED) as (url, asked):
        assert RemoteEncoder(f"{url}/colpali/").name == "pixels"
    assert asked[0].path == "/colpali/v1/encoder"


def test_a_host_whose_name_cannot_be_is_told() -> None:
    with pytest.raises(ServiceError, match="No service answers"):
        _ = get_encoder(f"http://{'a' * 70}.invalid:1").version
