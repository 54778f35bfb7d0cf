"""Downloads from the hub, its cache, and quick errors when it can't be reached."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest

from tests.encoders import tiny, tiny_published
from tests.encoders.servers import Asked, Says, answering, like_the_hub
from visar.cli import main
from visar.encoders import registry
from visar.encoders.records import PUBLISHED
from visar.encoders.visual import FAMILIES, VisualEncoder
from visar.models.hub import is_downloaded

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BASE_COMMIT = COMMIT[::-1]
NAME = "someone/colqwen"
SMALL = ("colsmol-256m", "colbert-small", "edge-colbert-17m", "edge-colbert-32m")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def snapshot(cache: Path, name: str, commit: str = COMMIT) -> Path:
    """Return the folder of a repository's commit in the cache, in huggingface_hub's layout."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    return folder / "snapshots" / commit


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_weights_are_downloaded_when_all_parts_are_cached(cache: Path) -> None:
    assert not is_downloaded(NAME)
    folder = snapshot(cache, NAME)
    put(folder, config__json="{}")
    assert not is_downloaded(NAME)
    parts = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    put(folder, **{"model.safetensors.index.json": json.dumps(parts), "one.safetensors": "1"})
    assert not is_downloaded(NAME)
    put(folder, **{"two.safetensors": "2"})
    assert is_downloaded(NAME)
    assert not is_downloaded(NAME, "v2")
    # A broken link doesn't count as weights.
    (folder / "two.safetensors").unlink()
    (folder / "two.safetensors").symlink_to(cache / "gone")
    assert not is_downloaded(NAME)
    put(folder, **{"model.safetensors.index.json": '{"weight_map": [1]}'})
    assert not is_downloaded(NAME)


def test_an_adapter_is_downloaded_when_its_base_is(cache: Path) -> None:
    adapter = {"base_model_name_or_path": "someone/base"}
    put(
        snapshot(cache, NAME),
        adapter_config__json=json.dumps(adapter),
        adapter_model__safetensors="1",
    )
    assert not is_downloaded(NAME)
    put(snapshot(cache, "someone/base"), config__json="{}", model__safetensors="1")
    assert is_downloaded(NAME)


def test_encoder_states_are_the_same_in_every_command(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        snapshot(cache, PUBLISHED["colbertv2"].repository),
        config__json="{}",
        model__safetensors="1",
    )
    states = {info.name: info.state for info in registry.available_encoders()}
    assert states == {
        "embedded": "ready",
        "colpali": "downloads",
        "colqwen2.5": "downloads",
        "colmodernvbert": "downloads",
        "colqwen2": "downloads",
        "colqwen3.5": "downloads",
        "colsmol-256m": "downloads",
        "colsmol-500m": "downloads",
        "colbertv2": "ready",
        "colbert-small": "downloads",
        "edge-colbert-17m": "downloads",
        "edge-colbert-32m": "downloads",
        "visrag-ret": "missing",
    }

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["visar", *arguments])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    listed, examined = run("encoders"), run("doctor")
    for name, state in states.items():
        assert re.search(rf"^{re.escape(name)} +{state} ", listed, re.MULTILINE)
        assert re.search(rf"^encoders +{state} .*\b{re.escape(name)}\b", examined, re.MULTILINE)
    assert re.search(r"^colpali .*\b6 GB\b", listed, re.MULTILINE)
    assert "visrag-ret: `python3" in examined
    assert len(examined.splitlines()) < 24, "one screen"
    entries = json.loads(run("encoders", "--json"))
    assert {entry["name"]: entry["state"] for entry in entries} == states
    assert [entry["ready"] for entry in entries] == [s == "ready" for s in states.values()]
    entries = json.loads(run("doctor", "--json"))["encoders"]
    assert {entry["name"]: entry["state"] for entry in entries} == states


FIND = "from visar.models.checkpoints import find_checkpoint; find_checkpoint('{}')"


def run_child(code: str, endpoint: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process, because huggingface_hub reads its endpoint only at startup."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_ETAG_TIMEOUT": "1",
    }
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@contextmanager
def unresponsive_server() -> Iterator[tuple[str, list[str]]]:
    """A server that accepts connections but never responds; yields its URL and request lines."""
    connections: list[socket.socket] = []
    requests: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):  # until it is closed
                while True:
                    connections.append(server.accept()[0])
                    line = connections[-1].recv(4096).decode().partition("\r\n")[0]
                    # huggingface_hub also sends an API request of its own, once a day.
                    if "/api/" not in line:
                        requests.append(line)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                connection.close()


def assert_checkpoint_error(stderr: str, *names: str) -> None:
    """Assert that a program ended with a CheckpointError that contains the names."""
    message = stderr.rpartition("CheckpointError: ")[2]
    assert message != stderr, stderr
    for name in names:
        assert name in message


def test_a_hub_that_refuses_connections_is_tried_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # Bound but not listening: connections are refused within this block.
        process = run_child(
            FIND.format(NAME), f"http://127.0.0.1:{free.getsockname()[1]}", tmp_path
        )
    assert_checkpoint_error(process.stderr, NAME)
    assert "Retrying" not in process.stderr


def test_an_unresponsive_hub_is_tried_once(tmp_path: Path) -> None:
    with unresponsive_server() as (endpoint, asked):
        process = run_child(FIND.format(NAME), endpoint, tmp_path)
    assert_checkpoint_error(process.stderr, NAME)
    assert asked == [f"HEAD /{NAME}/resolve/main/config.json HTTP/1.1"]


def test_a_busy_hub_is_tried_again(tmp_path: Path) -> None:
    """A failed request doesn't always mean that there is no network."""
    put(tmp_path / "repository", config__json='{"model_type": "llama"}')
    hub = like_the_hub({NAME: (COMMIT, tmp_path / "repository")})
    busy = [2]

    def answer(request: Asked) -> Says:
        if NAME in request.path and busy[0]:
            busy[0] -= 1
            return Says(503)
        return hub(request)

    with answering(answer) as (endpoint, _):
        process = run_child(FIND.format(NAME) + "; print('found')", endpoint, tmp_path / "cache")
    assert process.stdout == "found\n", process.stderr
    assert busy == [0]


ENCODE = f"""
from visar.encoders.registry import get_encoder
encoder = get_encoder({NAME!r}, device="cpu")
print(encoder.version, encoder.encode_query("revenue").tobytes().hex())
"""


def with_hub_base(adapter: Path, copy: Path, base: str = "someone/base") -> Path:
    """Copy an adapter and refer to its base model by hub name, as published ones do."""
    shutil.copytree(adapter, copy)
    config = json.loads((copy / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    (copy / "adapter_config.json").write_text(json.dumps(config))
    return copy


@pytest.fixture
def adapter(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    return with_hub_base(checkpoint("colqwen2.5"), tmp_path / "adapter")


def scaled_copy(base: Path, folder: Path) -> Path:
    """Copy a model and scale its weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(base, folder)
    weights = {name: 1.5 * value for name, value in load_file(base / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_adapter_and_base_are_each_downloaded_at_their_own_commit(
    checkpoint: Callable[[str], Path], adapter: Path, tmp_path: Path
) -> None:
    """The version changes with the base; an unresponsive hub is replaced by the cache."""
    base = Path(f"{checkpoint('colqwen2.5')}-base")
    moved = scaled_copy(base, tmp_path / "moved")
    vectors = VisualEncoder(str(checkpoint("colqwen2.5")), device="cpu").encode_query("revenue")
    (base / "pytorch_model.bin").write_bytes(b"pickled")
    seen, got = [], []
    for commit, folder in ((BASE_COMMIT, base), ("f" * 40, moved), (BASE_COMMIT, base)):
        hub = like_the_hub({NAME: (COMMIT, adapter), "someone/base": (commit, folder)})
        with answering(hub) as (endpoint, asked):
            process = run_child(ENCODE, endpoint, tmp_path / "cache")
        assert process.returncode == 0, process.stderr
        seen.append(process.stdout.split())
        got += [request.path for request in asked if request.method == "GET"]
    (base / "pytorch_model.bin").unlink()
    assert seen[0] == seen[2] == [f"{COMMIT}-{BASE_COMMIT[:16]}-1", vectors.tobytes().hex()]
    assert seen[1][0] == f"{COMMIT}-{'f' * 16}-1"
    assert seen[1][1] != seen[0][1]
    assert f"/{NAME}/resolve/{COMMIT}/adapter_model.safetensors" in got
    assert not any("pytorch_model.bin" in path for path in got)
    with unresponsive_server() as (endpoint, requests):
        offline = run_child(ENCODE, endpoint, tmp_path / "cache")
    assert offline.stdout.split() == seen[0], offline.stderr
    assert requests == [f"HEAD /{NAME}/resolve/main/config.json HTTP/1.1"]


def test_a_local_adapter_keeps_the_base_commit_of_its_version(
    checkpoint: Callable[[str], Path], adapter: Path, cache: Path
) -> None:
    """Another program may update the main branch in the hub's cache at any time."""
    base = Path(f"{checkpoint('colqwen2.5')}-base")
    shutil.copytree(base, snapshot(cache, "someone/base"))
    before = VisualEncoder(str(adapter), device="cpu")
    version = before.version
    assert version.endswith(f"-{COMMIT[:16]}-1")
    scaled_copy(base, snapshot(cache, "someone/base", BASE_COMMIT))
    after = VisualEncoder(str(adapter), device="cpu")
    assert after.version == version.replace(COMMIT[:16], BASE_COMMIT[:16])
    expected = VisualEncoder(str(checkpoint("colqwen2.5")), device="cpu").encode_query("revenue")
    np.testing.assert_array_equal(before.encode_query("revenue"), expected)
    assert np.abs(after.encode_query("revenue") - expected).max() > 1e-3


def test_the_error_names_the_base_model_that_is_not_available(
    adapter: Path, tmp_path: Path
) -> None:
    shutil.copytree(adapter, snapshot(tmp_path, NAME))
    with unresponsive_server() as (endpoint, _):
        process = run_child(FIND.format(NAME), endpoint, tmp_path)
    assert_checkpoint_error(process.stderr, NAME, "someone/base")


def test_an_incomplete_download_is_an_error(tmp_path: Path) -> None:
    """huggingface_hub itself returns an incomplete cached folder as if it were complete."""
    put(tmp_path / "repository", config__json="{}", model__safetensors="1")
    hub = like_the_hub({NAME: (COMMIT, tmp_path / "repository")})
    code = FIND.format(NAME) + ".folder()"
    with answering(lambda asked: Says(418) if "/api/" in asked.path else hub(asked)) as (url, _):
        process = run_child(code, url, tmp_path / "cache")
    assert_checkpoint_error(process.stderr, NAME, "*.safetensors")
    with answering(hub) as (url, _):
        process = run_child(code, url, tmp_path / "cache")
    assert process.returncode == 0, process.stderr


ENCODE_NAMES = """
import numpy as np
from PIL import Image
from visar.documents.page import Page, Word
from visar.encoders.registry import get_encoder
page = Page(1, 300, 400, 0, (Word("revenue", (0.1, 0.1, 0.5, 0.2), 0),), "text layer")
picture = Image.effect_noise((300, 400), 90).convert("RGB")
for name in {}:
    encoder = get_encoder(name, device="cpu")
    encoder.fetch()
    images = [picture] if encoder.reads == "image" else []
    (found,) = encoder.encode_pages([page], images)
    question = encoder.encode_query("what is the total revenue?")
    assert found.vectors.shape[1] == question.shape[1] == encoder.dimension
    assert len(found.vectors) and np.isfinite(found.vectors).all()
    print(name, encoder.version, encoder.dimension)
"""


def test_encoders_are_downloaded_by_name_and_encode(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """Uses tiny models of their architectures, in their published layouts."""
    published = {name: PUBLISHED[name].repository for name in SMALL}
    edge = tiny_published.save_edge_colbert(tmp_path / "edge")
    put(edge / "onnx", model__safetensors="for another program")
    small = {
        "colsmol-256m": with_hub_base(checkpoint("colsmol"), tmp_path / "colsmol-256m"),
        "colbert-small": tiny_published.save_colbert(tmp_path / "small", 96),
        "edge-colbert-17m": edge,
        "edge-colbert-32m": tiny_published.save_edge_colbert(tmp_path / "edge-32m", 64),
    }
    repositories = {published[name]: (COMMIT, folder) for name, folder in small.items()}
    repositories["someone/base"] = (BASE_COMMIT, Path(f"{checkpoint('colsmol')}-base"))
    for family in tiny.MAKERS:
        base = f"someone/{family}-base"
        copy = with_hub_base(checkpoint(family), tmp_path / family, base)
        repositories[f"someone/{family}"] = (COMMIT, copy)
        repositories[base] = (BASE_COMMIT, Path(f"{checkpoint(family)}-base"))
    names = [*small, *(f"someone/{family}" for family in tiny.MAKERS)]
    with answering(like_the_hub(repositories)) as (endpoint, asked):
        process = run_child(ENCODE_NAMES.format(names), endpoint, tmp_path / "cache")
    with_base = f"{COMMIT}-{BASE_COMMIT[:16]}-1"
    assert process.stdout.splitlines() == [
        f"colsmol-256m {with_base} 128",
        f"colbert-small {COMMIT}-1 96",
        f"edge-colbert-17m {COMMIT}-1 48",
        f"edge-colbert-32m {COMMIT}-1 64",
        *(
            f"someone/{family} {with_base} {tiny.DIMENSIONS.get(family, 128)}"
            for family in FAMILIES
        ),
    ], process.stderr
    got = [request.path for request in asked if request.method == "GET"]
    assert f"/{published['edge-colbert-17m']}/resolve/{COMMIT}/2_Dense/model.safetensors" in got
    assert not any("onnx" in path for path in got)


def test_adapter_and_base_are_downloaded_at_the_commits_of_the_paper(
    checkpoint: Callable[[str], Path], adapter: Path, tmp_path: Path
) -> None:
    """Once they are cached, the hub isn't contacted at all."""
    known = PUBLISHED["colqwen2.5"]
    assert known.base_revision is not None
    base = Path(f"{checkpoint('colqwen2.5')}-base")
    hub = {known.repository: (known.revision, adapter), "someone/base": (known.base_revision, base)}
    encode = ENCODE_NAMES.format(["colqwen2.5"])
    version = f"{known.revision}-{known.base_revision[:16]}-1"
    with answering(like_the_hub(hub)) as (endpoint, asked):
        process = run_child(encode, endpoint, tmp_path / "cache")
        assert process.stdout.splitlines() == [f"colqwen2.5 {version} 128"], process.stderr
        assert not any("/main" in request.path for request in asked)
        asked.clear()
        again = run_child(encode, endpoint, tmp_path / "cache")
        assert again.stdout == process.stdout, again.stderr
        assert not any(name in request.path for request in asked for name in hub)


FETCH = f"""
from pathlib import Path
from visar.cli.options import fetch_model
from visar.index import Index
fetch_model(Index.open(Path({{!r}})).encoder({NAME!r}))
"""


def test_the_command_line_shows_download_progress_but_the_library_does_not(
    checkpoint: Callable[[str], Path], adapter: Path, tmp_path: Path
) -> None:
    base = Path(f"{checkpoint('colqwen2.5')}-base")
    hub = like_the_hub({NAME: (COMMIT, adapter), "someone/base": (BASE_COMMIT, base)})
    fetch = FETCH.format(str(tmp_path / "index"))
    with answering(hub) as (endpoint, asked):
        shown = run_child(fetch, endpoint, tmp_path / "cache")
    assert shown.returncode == 0, shown.stderr
    assert "100%" in shown.stderr
    assert any(request.path.endswith("adapter_model.safetensors") for request in asked)
    # The library leaves the terminal to the calling program.
    with answering(hub) as (endpoint, _):
        quiet = run_child(FIND.format(NAME) + ".folder()", endpoint, tmp_path / "other")
    assert "100%" not in quiet.stderr
