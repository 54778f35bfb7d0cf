"""``visar setup``: what it proposes, and does with a miniature hub and a server like Ollama."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from tests.encoders import tiny_published
from tests.encoders.servers import Asked, Says, answering, like_the_hub
from tests.generation.scripted import DONE, delta
from tests.generation.test_servers import like_ollama
from visar.cli import main, settings
from visar.cli.setup import encoders_for, generators_for
from visar.encoders.records import PUBLISHED
from visar.generation.registry import ServedModel
from visar.models.machine import GraphicsCard, Machine
from visar.quotes.cross_encoder import HUB_MODEL, package_folder
from visar.quotes.reader import PUBLISHED as READERS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SMALL = PUBLISHED["colbert-small"].repository


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VISAR_CONFIG", str(tmp_path / "config.toml"))
    for setting in settings.SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    return tmp_path / "config.toml"


@pytest.fixture
def ollama() -> Iterator[str]:
    """A server with one model that sees; it answers every question the same."""
    models = like_ollama({"tiny-vision": ["completion", "vision"]})

    def answer(request: Asked) -> Says:
        if not request.path.endswith("/chat/completions"):
            return models(request)
        reply = delta(role="assistant", content="It was 42.") + delta("stop") + DONE
        return Says(200, reply, {"Content-Type": "text/event-stream"})

    with answering(answer) as (url, _):
        yield f"{url}/v1"


@pytest.fixture
def nobody(ollama: str) -> str:
    """An address on loopback where nothing speaks of models."""
    return ollama.replace("/v1", "/nothing")


def machine(memory: int, card: int | None = None) -> Machine:
    found = None if card is None else GraphicsCard("a card", card * 2**30)
    return Machine("Linux x86_64", 4, memory * 2**30, found)


@pytest.mark.parametrize(
    ("memory", "card", "names"),
    [
        (64, 24, ["colqwen2.5", "colsmol-500m", "colbert-small", "embedded"]),
        (16, 4, ["colsmol-500m", "colsmol-256m", "colbert-small", "embedded"]),
        (16, 2, ["colsmol-256m", "colbert-small", "embedded"]),
        (16, None, ["colbert-small", "embedded"]),
        (2, None, ["embedded"]),
    ],
)
def test_models_that_fit_are_suggested_largest_first(
    memory: int, card: int | None, names: list[str]
) -> None:
    assert [choice.name for choice in encoders_for(machine(memory, card))] == names


def test_a_model_that_is_served_comes_before_one_to_download() -> None:
    served = (ServedModel("m", "http://127.0.0.1:9/v1", sees_images=False),)
    large = generators_for(machine(64, 48), served)
    assert [choice.name for choice in large] == [
        "openai-text:m@http://127.0.0.1:9/v1",
        "qwen2.5-vl",
        "extractive",
    ]
    small = generators_for(machine(64, 24), ())
    assert [choice.name for choice in small] == ["extractive"]


def test_nothing_is_changed_without_consent(visar: Visar, config: Path, ollama: str) -> None:
    for arguments in (["--dry-run", "--yes"], ["--json"], []):
        ran = visar("setup", "--base-url", ollama, *arguments)
        assert ran.code == 0, ran.err
        assert "openai:tiny-vision" in ran.out
    assert "visar setup --yes" in ran.out
    assert not config.exists()


def test_installed_models_are_set_without_a_network(
    visar: Visar, config: Path, ollama: str
) -> None:
    ran = visar("setup", "--yes", "--encoder", "embedded", "--base-url", ollama, "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    assert plan["written"] == str(config)
    assert (plan["encoder"], plan["generator"]) == ("embedded", f"openai:tiny-vision@{ollama}")
    assert plan["served"][0]["base_url"] == ollama
    assert settings.read() == {
        "encoder": "embedded",
        "generator": f"openai:tiny-vision@{ollama}",
        "reader": "ms-marco-minilm",
    }
    # What was set before is no answer to what suits the machine now.
    again = json.loads(visar("setup", "--dry-run", "--json", "--base-url", f"{ollama}/no").out)
    assert again["generator"] == "extractive"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("consent", ["y", "n"])
def test_setup_asks_for_models_and_for_consent(
    config: Path,
    nobody: str,
    consent: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["visar", "setup", "--base-url", nobody])
    monkeypatch.setattr(sys, "stdin", Terminal(f"embedded\n\nnone\n{consent}\n"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert str(config) in capsys.readouterr().out
    assert config.exists() == (consent == "y")
    if consent == "y":
        assert settings.read() == {
            "encoder": "embedded",
            "generator": "extractive",
            "reader": "none",
        }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--encoder", "colpalli"], "colpalli"),
        (["--generator", "qwen"], "'qwen'"),
        (["--reader", "minilm"], "'minilm'"),
    ],
)
def test_an_unknown_name_is_refused_and_nothing_is_set(
    visar: Visar, config: Path, nobody: str, arguments: list[str], expected: str
) -> None:
    ran = visar("setup", *arguments, "--base-url", nobody)
    assert ran.code == 2
    assert expected in ran.err
    assert not config.exists()


def test_a_generator_that_cannot_run_does_not_keep_the_encoder_from_being_set(
    visar: Visar, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    chosen = ("--encoder", "embedded", "--generator", "openai:m")
    ran = visar("setup", "--yes", *chosen, "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["failed"].keys() == {"generator"}
    assert "openai:m" in ran.err
    assert settings.read() == {"encoder": "embedded", "reader": "ms-marco-minilm"}
    assert config.exists()


def typed(*arguments: str | Path, endpoint: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Type a command for which the hub is at another address; that is read once, at the start."""
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HUB_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_ETAG_TIMEOUT": "1",
        "VISAR_INDEX": str(folder / "index"),
    }
    command = [sys.executable, "-m", "visar", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_one_command_downloads_and_the_next_question_uses_it(
    config: Path, ollama: str, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    small = tiny_published.save_colbert(tmp_path / "small", 96)
    chosen = ("--encoder", "colbert-small", "--base-url", ollama, "--yes")
    with answering(like_the_hub({SMALL: (COMMIT, small)})) as (hub, _):
        ran = typed("setup", *chosen, endpoint=hub, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert "100%" in ran.stderr
        assert str(config) in ran.stderr
        path = make_pdf("report.pdf", "The total revenue was 42.", "Cats sleep.")
        asked = ("ask", path, "what is the total revenue?", "--json")
        answer = typed(*asked, endpoint=hub, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert result["text"] == "It was 42."
    assert result["generator"] == "openai:tiny-vision"
    assert result["search"]["encoder"]["name"] == "colbert-small"
    assert result["search"]["encoder"]["dimension"] == 96


def test_a_reader_of_the_hub_is_downloaded_and_reads(
    config: Path, nobody: str, tmp_path: Path
) -> None:
    """The miniature hub serves the model of the installed package under the hub's names."""
    folder = package_folder()
    assert folder is not None
    for source, name in ((folder / "model.onnx", HUB_MODEL), (folder / "tokenizer.json", "")):
        copy = tmp_path / "hub" / (name or source.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    name = "ms-marco-minilm-l6"
    chosen = ("--encoder", "embedded", "--reader", name, "--base-url", nobody, "--yes", "--json")
    repository = READERS[name].repository
    with answering(like_the_hub({repository: (COMMIT, tmp_path / "hub")})) as (hub, _):
        ran = typed("setup", *chosen, endpoint=hub, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["reader"] == name
    assert config.exists()
    assert settings.read()["reader"] == name
    # From now on it is here, without the hub.
    plan = typed("setup", "--json", endpoint="http://127.0.0.1:1", folder=tmp_path)
    states = {one["name"]: one["state"] for one in json.loads(plan.stdout)["readers"]}
    assert states[name] == "ready"
    assert states["ms-marco-minilm-l12"] == "downloads"


def test_a_reader_that_cannot_be_downloaded_is_not_set(
    config: Path, nobody: str, tmp_path: Path
) -> None:
    chosen = ("--encoder", "embedded", "--reader", "ms-marco-minilm-l12", "--base-url", nobody)
    ran = typed("setup", *chosen, "--yes", endpoint="http://127.0.0.1:1", folder=tmp_path)
    assert ran.returncode == 1
    assert READERS["ms-marco-minilm-l12"].repository in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "reader" not in settings.read()
    assert config.exists()


def test_a_model_that_was_found_is_kept_where_an_encoder_cannot_be_downloaded(
    config: Path, ollama: str, tmp_path: Path
) -> None:
    chosen = ("--encoder", "edge-colbert-17m", "--base-url", ollama, "--yes", "--json")
    ran = typed("setup", *chosen, endpoint="http://127.0.0.1:1", folder=tmp_path)
    assert ran.returncode == 1
    plan = json.loads(ran.stdout)
    assert plan["failed"].keys() == {"encoder"}
    assert plan["written"] == str(config)
    assert settings.read() == {
        "generator": f"openai:tiny-vision@{ollama}",
        "reader": "ms-marco-minilm",
    }
    assert "edge-colbert-17m" in ran.stderr
    assert "Traceback" not in ran.stderr
