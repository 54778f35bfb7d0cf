"""The configuration file: what it sets, what wins over it, and what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.typed import Visar
from tests.encoders.servers import Says, answering
from visar.cli import settings
from visar.cli.app import make_app

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file of the test's own, which is not there yet."""
    monkeypatch.setenv("VISAR_CONFIG", str(tmp_path / "mine" / "config.toml"))
    for setting in settings.SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    return tmp_path / "mine" / "config.toml"


def shown(visar: Visar) -> dict[str, tuple[str, str]]:
    values = json.loads(visar("config", "--json").out)["settings"]
    return {key: (one["value"], one["source"]) for key, one in values.items()}


def test_settings_are_shown_with_their_source(
    visar: Visar, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(visar)["encoder"] == ("embedded", "default")
    assert str(config) in visar("config").out
    ran = visar("config", "set", "encoder", NOBODY)
    assert ran.code == 0
    assert NOBODY in ran.out
    assert shown(visar)["encoder"] == (NOBODY, "file")
    monkeypatch.setenv("VISAR_ENCODER", "colpali")
    assert shown(visar)["encoder"] == ("colpali", "VISAR_ENCODER")
    monkeypatch.delenv("VISAR_ENCODER")
    visar("config", "unset", "encoder")
    assert shown(visar)["encoder"] == ("embedded", "default")


def test_environment_and_options_override_the_file(
    visar: Visar,
    config: Path,
    make_pdf: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = make_pdf("notes.pdf", "Income tax is due in April.")
    asked = ("ask", path, "When is tax due?")
    visar("config", "set", "encoder", NOBODY)
    visar("config", "set", "index", str(tmp_path / "library"))
    monkeypatch.delenv("VISAR_INDEX", raising=False)
    refused = visar(*asked)
    assert refused.code == 2
    assert "http://127.0.0.1:1" in refused.err
    assert "April" in visar(*asked, "--encoder", "embedded").out
    monkeypatch.setenv("VISAR_ENCODER", "embedded")
    assert "April" in visar(*asked).out
    assert (tmp_path / "library").is_dir()
    assert "notes.pdf" in visar("list").out
    assert config.exists()


def test_repeatable_options_get_the_setting_as_only_value(config: Path) -> None:
    assert not config.exists()
    command = typer.main.get_command(make_app("serve"))
    made = settings.option_defaults(command, {"encoder": "colpali", "device": "cpu"})
    assert made["serve"] == {"encoder": ["colpali"], "device": "cpu"}


def test_local_settings_are_not_sent_to_a_server(visar: Visar, config: Path) -> None:
    assert not config.exists()
    mine = {"generator": "openai:mine", "encoder": NOBODY, "device": "cpu"}
    for key, value in mine.items():
        visar("config", "set", key, value)
    answer = Says(404, b"{}", {"Content-Type": "application/json"})
    theirs = ("--generator", "openai:theirs", "--encoder", "theirs")
    with answering(lambda _: answer) as (url, asked):
        visar("ask", "When is tax due?", "--server", url, "--json")
        visar("ask", "When?", "--server", url, "--json", *theirs)
    bodies = [json.loads(request.body) for request in asked if request.body]
    assert [(body.get("generator"), body.get("encoder")) for body in bodies] == [
        (None, None),
        ("openai:theirs", "theirs"),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('encodr = "colpali"', "encoder"),
        ("encoder = 3", "3"),
        ('device = "gpu"', "auto, cpu, cuda, mps"),
        ("encoder = ", "TOML"),
        ('[encoder]\nname = "colpali"', "encoder"),
    ],
)
def test_errors_in_the_file_name_the_file_and_the_setting(
    visar: Visar, config: Path, content: str, expected: str
) -> None:
    config.parent.mkdir()
    config.write_text(f"{content}\n")
    ran = visar("list")
    assert ran.code == 2
    assert str(config) in ran.err
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_an_unknown_setting_can_be_removed(visar: Visar, config: Path) -> None:
    config.parent.mkdir()
    config.write_text('# my choice\nencodr = "a"\ndevise = "b"\ndevice = "cpu"\n')
    assert visar("config", "unset", "encodr").code == 2  # the other one is still there
    assert visar("config", "unset", "devise").code == 0
    assert config.read_text() == '# my choice\ndevice = "cpu"\n'


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("encoder", "colpalli", "colpalli"),
        ("generator", "qwen", "qwen2.5-vl"),
        ("device", "gpu", "auto, cpu, cuda, mps"),
        ("colour", "red", "colour"),
        ("index", "", "index"),
    ],
)
def test_invalid_values_are_not_saved(
    visar: Visar, config: Path, key: str, value: str, expected: str
) -> None:
    ran = visar("config", "set", key, value)
    assert ran.code == 2
    assert expected in ran.err
    assert not config.exists()


def test_comments_order_and_links_stay(visar: Visar, config: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.toml"
    kept.write_text('# of my own\nencoder = "colpali"  # large\n\ndevice = "cpu"\n')
    config.parent.mkdir()
    config.symlink_to(kept)
    visar("config", "set", "encoder", "embedded")
    visar("config", "set", "generator", "extractive")
    assert config.is_symlink()
    assert kept.read_text() == (
        '# of my own\nencoder = "embedded"\n\ndevice = "cpu"\ngenerator = "extractive"\n'
    )


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_every_text_comes_back_as_it_was_set(first: str, second: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        named = {"VISAR_CONFIG": str(Path(folder) / "config.toml")}
        with patch.dict(os.environ, named):
            settings.write({"encoder": first, "index": second})
            settings.write({"encoder": second})
            assert settings.read() == {"encoder": second, "index": second}


def test_a_command_without_a_file_reads_no_toml(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['visar', 'list']\n"
        "from visar.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('tomllib' in sys.modules)"
    )
    place = {"VISAR_INDEX": str(tmp_path), "VISAR_CONFIG": str(tmp_path / "none.toml")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | place,
    )
    assert ran.stdout.splitlines()[-1] == "False"


def test_generators_can_have_custom_names(visar: Visar, config: Path) -> None:
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('device = "cpu"\n[generators]\nlarge = "openai:x@http://127.0.0.1:9/v1"\n')
    assert visar("config", "set", "encoder", "embedded").code == 0
    assert settings.read() == {"device": "cpu", "encoder": "embedded"}
    assert settings.named_generators() == {"large": "openai:x@http://127.0.0.1:9/v1"}
    shown = json.loads(visar("config", "--json").out)["settings"]
    assert shown["generators.large"]["value"] == "openai:x@http://127.0.0.1:9/v1"
    assert visar("config", "set", "generator", "large").code == 0
    first = json.loads(visar("generators", "--json").out)[0]
    assert (first["name"], first["description"]) == ("large", "openai:x@http://127.0.0.1:9/v1")

    config.write_text("")
    assert visar("config", "set", "generators.fast", "ollama:qwen2.5vl:7b").code == 0
    assert settings.named_generators() == {"fast": "ollama:qwen2.5vl:7b"}
    assert visar("config", "unset", "generators.fast").code == 0
    assert settings.named_generators() == {}
    config.write_text('generators = "none"\n')
    refused = visar("config")
    assert (refused.code, "generators" in refused.err) == (2, True)
