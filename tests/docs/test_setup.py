"""Run the examples of settings in docs/installing.md, with tiny checkpoints of a local hub."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.docs.shown import commands, read
from tests.encoders import tiny_published
from tests.encoders.servers import answering, like_the_hub
from tests.programs import run_shown
from visar.cli.settings import SETTINGS
from visar.encoders.records import PUBLISHED

SETUP = read("installing.md")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_commands_run(
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
    make_pdf: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_pdf("annual-report.pdf", "The warranty lasts seven years.", "Cats sleep.")
    Image.effect_noise((120, 90), 80).save(tmp_path / "chart.png")
    adapter = tmp_path / "adapter"
    shutil.copytree(checkpoint("colsmol"), adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "someone/base"
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    hub = like_the_hub(
        {
            PUBLISHED["colbert-small"].repository: (
                COMMIT,
                tiny_published.save_colbert(tmp_path / "small", 96),
            ),
            PUBLISHED["colsmol-256m"].repository: (COMMIT, adapter),
            "someone/base": (COMMIT, Path(f"{checkpoint('colsmol')}-base")),
        }
    )
    (searched,) = re.findall(r"^visar (search .*)$", read("encoders.md"), flags=re.M)
    shown = [one for one, _ in commands(SETUP, "visar (?:setup|config|ask)")]
    assert len(shown) == 6
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    with answering(hub) as (endpoint, _):
        environment = {
            "HF_ENDPOINT": endpoint,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "0",
            "VISAR_CONFIG": str(tmp_path / "config.toml"),
        }
        for command in (*shown, f"visar {searched}"):
            ran = run_shown(command, tmp_path, **environment)
            assert ran.returncode == 0, (command, ran.stderr)
    kept = (tmp_path / "config.toml").read_text()
    assert kept.splitlines() == [
        'encoder = "colbert-small"',
        'generator = "extractive"',
        'reader = "ms-marco-minilm"',
    ]


def test_every_setting_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \| `(--[\w-]+)` \| `(\w+)` \|", SETUP, flags=re.M)
    assert told == [
        (name, f"--{name.replace('_', '-')}", setting.variable)
        for name, setting in SETTINGS.items()
    ]
