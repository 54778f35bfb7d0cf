"""Object storage on loopback: moto's server in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

BUCKET = "s3://visar"


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def object_storage() -> Iterator[dict[str, str]]:
    """Start a server with the bucket :data:`BUCKET`; gives the environment that reaches it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(f"{address}/visar")
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of a bucket, in an environment that reaches it."""
    pytest.importorskip("lancedb")
    with object_storage() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield BUCKET


def _make_bucket(address: str) -> None:
    """As soon as the server answers."""
    for _ in range(300):
        try:
            request = urllib.request.Request(address, method="PUT")  # noqa: S310
            urllib.request.urlopen(request).close()  # noqa: S310
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server does not answer")
