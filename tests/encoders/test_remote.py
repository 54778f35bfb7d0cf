"""Remote encoders return the same vectors as local ones, and report connection errors."""

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
from visar.encoders import remote
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.encoder import PageEmbedding
from visar.encoders.registry import get_encoder
from visar.encoders.remote import Array, Description, QueryReply, RemoteEncoder
from visar.errors import EmptyQuestion, InvalidOption, ServiceError
from visar.index import Index

MakePdf = Callable[..., Path]
TOKEN = "correct-horse-battery-staple"  # noqa: S105
PIXELS = Description(
    name="pixels", version="1", dimension=48, reads="image", weak_match=0.25, max_body=10**8
)
DESCRIBED = Says(200, PIXELS.model_dump_json().encode())
VECTORS = Array.of(PixelEncoder().encode_query("why?"), "float32")
QUERY = QueryReply(encoder=PIXELS.encoder, vectors=VECTORS).model_dump_json().encode()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PAUSES", (0.01, 0.01))
    monkeypatch.delenv("VISAR_TOKEN", raising=False)


def assert_same(received: Sequence[PageEmbedding], expected: Sequence[PageEmbedding]) -> None:
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors, strict=True)
        np.testing.assert_array_equal(one.boxes, other.boxes, strict=True)
        np.testing.assert_array_equal(one.words, other.words, strict=True)


def test_a_remote_text_encoder_returns_the_same_vectors() -> None:
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


def test_a_remote_image_encoder_returns_the_same_vectors_with_any_limit() -> None:
    """Each image has 8 kB, so two fit into the lower limit."""
    pages = [page_with("a", number) for number in range(1, 6)]
    images = [picture(number) for number in range(1, 6)]
    expected = PixelEncoder().encode_pages(pages, images)
    for limit, batches in ((remote.MAX_BODY, [5]), (17_000, [2, 2, 1])):
        here = CountingEncoder()
        with serving(here, max_body=limit) as url:
            assert_same(RemoteEncoder(url).encode_pages(pages, images), expected)
        assert here.batches == batches


def test_messages_respect_the_limits_on_pages_and_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "MAX_PAGES", 2)
    monkeypatch.setattr(remote, "MAX_PIXELS", 3 * 40 * 48)
    here = CountingEncoder()
    pages = [page_with("a", number) for number in range(1, 6)]
    images = [picture(1), picture(2), picture(3, 80, 48), picture(4, 80, 48), picture(5)]
    with serving(here) as url:
        received = RemoteEncoder(url).encode_pages(pages, images)
        with pytest.raises(ServiceError, match=r"Page 1 is too large.*--max-megapixels"):
            RemoteEncoder(url).encode_pages(pages[:1], [picture(1, 200, 48)])
    assert here.batches == [2, 1, 2]
    assert_same(received, PixelEncoder().encode_pages(pages, images))


def test_no_request_is_sent_before_it_is_needed() -> None:
    with answering(lambda _: DESCRIBED) as (url, requests):
        encoder = RemoteEncoder(url)
        assert requests == []
        assert (encoder.name, encoder.version, encoder.dimension) == ("pixels", "1", 48)
        assert [request.path for request in requests] == ["/v1/encoder"]


def test_threads_share_one_encoder_and_request_its_description_once() -> None:
    here = PixelEncoder()
    questions = [" ".join(["word"] * count) for count in range(1, 33)]
    with serving(here) as url, answering(lambda _: DESCRIBED) as (described, requests):
        there = RemoteEncoder(url)
        with ThreadPoolExecutor(8) as pool:
            received = list(pool.map(there.encode_query, questions))
            encoder = RemoteEncoder(described)
            names = list(pool.map(lambda _: encoder.name, range(8)))
    for question, vectors in zip(questions, received, strict=True):
        np.testing.assert_array_equal(vectors, here.encode_query(question))
    assert names == ["pixels"] * 8
    assert len(requests) == 1


def test_documents_encoded_locally_and_remotely_are_interchangeable(
    make_pdf: MakePdf, tmp_path: Path
) -> None:
    """The index identifies vectors by encoder, wherever it ran."""
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


def test_an_image_index_works_with_a_remote_encoder(make_pdf: MakePdf, tmp_path: Path) -> None:
    path = make_pdf("two.pdf", "Sailing boats.", "Income tax.")
    index = Index.open(tmp_path / "index")
    with serving(PixelEncoder()) as url:
        document = index.add(path, encoder=url)
        assert index.search("tax", encoder=url).pages_searched == 2
    assert [ref.name for ref in document.encoders] == ["pixels"]


def script(*answers: Says) -> Callable[[Asked], Says]:
    """Return the description, then the scripted responses one after the other."""
    rest = iter(answers)
    return lambda request: DESCRIBED if request.method == "GET" else next(rest)


CUT_OFF = Says(200, QUERY[:-5], {"Content-Length": str(len(QUERY))})


@pytest.mark.parametrize(
    "passing", [Says(429), Says(502), Says(503), Says(504), Says(None), CUT_OFF]
)
def test_temporary_errors_are_retried(passing: Says) -> None:
    with answering(script(passing, passing, Says(200, QUERY))) as (url, requests):
        vectors = RemoteEncoder(url).encode_query("why?")
    np.testing.assert_array_equal(vectors, PixelEncoder().encode_query("why?"))
    assert len(requests) == 4


def test_retry_after_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("visar.network.time.sleep", waited.append)
    busy = [Says(503, headers={"Retry-After": after}) for after in ("7", "100000")]
    with answering(script(*busy, Says(200, QUERY))) as (url, _):
        RemoteEncoder(url).encode_query("why?")
    assert waited == [7, network.LONGEST_PAUSE]


def test_permanent_errors_are_reported_after_retries() -> None:
    with (
        answering(script(*[Says(503)] * 3)) as (url, _),
        pytest.raises(ServiceError, match="503"),
    ):
        RemoteEncoder(url).encode_query("why?")
    with (
        answering(script(*[Says(None)] * 3)) as (url, _),
        pytest.raises(ServiceError, match="broke off"),
    ):
        RemoteEncoder(url).encode_query("why?")


def test_a_restarting_service_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_service_that_is_not_running_is_reported_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("visar.network.time.sleep", lambda _: pytest.fail("it waited"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServiceError, match=r"visar encoders serve"):
        _ = RemoteEncoder(f"http://127.0.0.1:{port}").name


@pytest.mark.parametrize("host", ["no-such-host.invalid", f"{'a' * 70}.invalid:1"])
def test_an_unknown_or_invalid_host_is_an_error(host: str) -> None:
    with pytest.raises(ServiceError, match="Can't reach"):
        _ = RemoteEncoder(f"http://{host}").name


def test_an_unresponsive_service_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        encoder = RemoteEncoder(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        with pytest.raises(ServiceError, match=r"timed out"):
            _ = encoder.name


def test_tls_to_a_plain_http_server_is_an_error() -> None:
    with answering(lambda _: Says(200)) as (url, _), pytest.raises(ServiceError, match="TLS"):
        _ = RemoteEncoder(url.replace("http", "https")).name


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_tls_service_needs_a_trusted_certificate(
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
        with pytest.raises(ServiceError, match="CERTIFICATE"):
            _ = RemoteEncoder(url.replace("http", "https")).name
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert len(RemoteEncoder(url.replace("http", "https")).encode_query("one two")) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Says(200, b"<html>Welcome</html>"), "Invalid reply"),
        (Says(200, b"{}"), r"reads: Field required|name: Field required"),
        (Says(404, b"not here"), r"404.*`visar encoders serve NAME`"),
        (Says(404, b"[]"), "404"),
        (Says(301, headers={"Location": "http://127.0.0.1:1/"}), "301"),
        (Says(200, b'{"visar_wire": 2}'), "visar_wire: .* 3, not 2.* install the same version"),
        (Says(200, gzip.compress(bytes(10**7)), {"Content-Encoding": "gzip"}), "Invalid JSON"),
        (Says(200, b"x" * 200_000), "more than 100000 bytes"),
        (Says(401, b"{}"), "VISAR_TOKEN"),
    ],
)
def test_invalid_replies_are_errors(answer: Says, message: str) -> None:
    with answering(lambda _: answer) as (url, _), pytest.raises(ServiceError, match=message):
        _ = RemoteEncoder(url).name


def test_a_server_that_does_not_speak_http_is_an_error() -> None:
    def greet(server: socket.socket) -> None:
        line, _ = server.accept()
        line.recv(1000)
        line.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
        line.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet, args=(server,))
        thread.start()
        with pytest.raises(ServiceError, match="HTTP"):
            _ = RemoteEncoder(f"http://127.0.0.1:{server.getsockname()[1]}").name
        thread.join()


def test_a_service_that_changes_its_encoder_is_an_error() -> None:
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
            with pytest.raises(
                ServiceError, match=r"from pixels 1 \(48 dim.*\) to pixels 2 \(48 dim"
            ):
                ask()
        assert encoder.version == "1"


def test_damaged_replies_are_errors() -> None:
    answers = script(Says(200, QUERY[:-3]), Says(200, QUERY))
    with answering(answers) as (url, _):
        encoder = RemoteEncoder(url)
        with pytest.raises(ServiceError, match="Invalid JSON"):
            encoder.encode_query("why?")
        with pytest.raises(ServiceError, match="pages: Field required"):
            encoder.encode_pages([page_with("a")], [picture(1)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": np.nan}, "a NaN or an infinity in vector 0 of page 3"),
        ({"vectors": 0.5}, "length of vector 0 of page 3 is 3.464, not 1"),
        ({"boxes": np.nan}, "page 3: boxes .*vector 0 is .nan"),
    ],
)
def test_invalid_vectors_of_a_service_are_errors(change: dict[str, float], message: str) -> None:
    class Broken(PixelEncoder):
        def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
            found = super().encode_pages(pages, images)
            for name, value in change.items():
                getattr(found[-1], name)[:] = value
            return found

    pages = [page_with("a", number) for number in (2, 3)]
    with serving(Broken()) as url, pytest.raises(ServiceError, match=message) as raised:
        RemoteEncoder(url).encode_pages(pages, [picture(2), picture(3)])
    assert f"Invalid vectors from the encoder at {url}" in str(raised.value)


def test_error_messages_of_the_service_are_passed_on() -> None:
    refusal = {"error": {"code": "encoder", "message": "The GPU is on fire."}}
    with (
        answering(script(Says(500, json.dumps(refusal).encode()))) as (url, _),
        pytest.raises(ServiceError, match=r"500: The GPU is on fire\."),
    ):
        RemoteEncoder(url).encode_query("why?")


def test_redirects_and_proxies_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is only sent to the given address."""
    monkeypatch.setenv("VISAR_TOKEN", TOKEN)
    with answering(lambda _: DESCRIBED) as (elsewhere, overheard):
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, elsewhere)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        away = Says(307, headers={"Location": f"{elsewhere}/v1/encoder"})
        with answering(lambda _: away) as (url, requests), pytest.raises(ServiceError, match="307"):
            _ = RemoteEncoder(url).name
    assert requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert overheard == []


def test_the_service_requires_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(PixelEncoder(), token=TOKEN) as url:
        with pytest.raises(ServiceError, match="VISAR_TOKEN"):
            _ = RemoteEncoder(url).name
        monkeypatch.setenv("VISAR_TOKEN", "wrong" * 5)
        with pytest.raises(ServiceError, match="VISAR_TOKEN"):
            _ = RemoteEncoder(url).name
        monkeypatch.setenv("VISAR_TOKEN", TOKEN)
        assert len(RemoteEncoder(url).encode_query("one two")) == 2


@pytest.mark.parametrize("token", [TOKEN, "línea", "two\nlines"])
def test_the_token_is_never_sent_unencrypted(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("VISAR_TOKEN", token)
    monkeypatch.setattr(
        socket, "create_connection", lambda *_, **__: pytest.fail("it was about to send")
    )
    with pytest.raises(ServiceError, match=r"is not sent to http://gpu\.example") as refused:
        _ = RemoteEncoder("http://gpu.example:8765").name
    assert token not in str(refused.value)


def test_an_invalid_token_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISAR_TOKEN", "two\r\nlines")
    with pytest.raises(ServiceError, match="VISAR_TOKEN"):
        _ = RemoteEncoder("http://127.0.0.1:1").name


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://host", "address"),
        ("http://", "address"),
        ("http://host:port", "address"),
        ("http://[::1", "address"),
        ("http://user:secret@host", "VISAR_TOKEN"),
        ("http://host/?token=x", "more than a host"),
        ("http://host/a b\r\nX: y", "more than a host"),
        ("http://host/a b", "more than a host"),
    ],
)
def test_addresses_are_checked_before_anything_is_sent(address: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as refused:
        get_encoder(address)
    assert "secret" not in str(refused.value)


def test_a_path_prefix_of_the_service_is_kept() -> None:
    """A proxy may serve several encoders on one host."""
    with answering(lambda _: DESCRIBED) as (url, requests):
        assert RemoteEncoder(f"{url}/colpali/").name == "pixels"
    assert requests[0].path == "/colpali/v1/encoder"
