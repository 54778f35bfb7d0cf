"""The configuration file: default values of options.

Options and environment variables take precedence. Only the command line reads it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visar.errors import InvalidOption

LOCATION_VARIABLE = "VISAR_CONFIG"
_GENERATOR_KEY = re.compile(r"generators\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Setting:
    """An option whose default can be set in the file."""

    variable: str
    """Environment variable that takes precedence."""
    use: str
    default: str | None
    choices: tuple[str, ...] = ()


SETTINGS = {
    "encoder": Setting("VISAR_ENCODER", "encodes pages and questions", "embedded"),
    "generator": Setting("VISAR_GENERATOR", "writes answers", "extractive"),
    "reader": Setting("VISAR_READER", "re-reads passages, or none", "auto"),
    "base_url": Setting("OPENAI_BASE_URL", "server for openai:MODEL", None),
    "device": Setting(
        "VISAR_DEVICE", "device for models", "auto", choices=("auto", "cpu", "cuda", "mps")
    ),
    "index": Setting("VISAR_INDEX", "folder or address of your index", None),
}


GENERATORS = "generators"
"""Table in the file with your names for generators."""


def location() -> Path:
    """Return the path of the file: ``VISAR_CONFIG``, or the user's own. It may not exist."""
    if path := os.environ.get(LOCATION_VARIABLE):
        return Path(path)
    from platformdirs import user_config_path

    return user_config_path("visar") / "config.toml"


def read() -> dict[str, str]:
    """Return the settings in the file; none if there is no file.

    Raises InvalidOption if the file isn't valid TOML, or has an unknown setting or a wrong value.
    """
    return {name: value for name, value in _read().items() if isinstance(value, str)}


def named_generators() -> dict[str, str]:
    """Return the generators of the table in the file, by name."""
    table: dict[str, str] = _read().get(GENERATORS, {})
    return table


def _read() -> dict[str, Any]:
    path = location()
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _parsed(path, content)


def write(changes: Mapping[str, str | None]) -> None:
    """Change settings in the file; None removes one. Comments and other lines are kept.

    Raises InvalidOption as `read` does, before anything is written.
    """
    from visar.files import write_whole

    path = location()
    lines = _lines(path)
    for key, value in changes.items():
        if key not in SETTINGS and not _GENERATOR_KEY.fullmatch(key) and value is not None:
            raise _unknown(path, key)
        own = [bool(re.match(rf"\s*{re.escape(key)}\s*=", line)) for line in lines]
        # A line below the header of a table would belong to the table.
        headers = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
        position = own.index(True) if any(own) else (*headers, len(lines))[0]
        lines = [line for line, is_own in zip(lines, own, strict=True) if not is_own]
        if value is not None:
            lines.insert(position, f"{key} = {as_toml(value)}")
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    if any(value is not None for value in changes.values()):
        _parsed(path, content)
    # The file may be a link into a folder of dotfiles.
    write_whole(path.resolve(), content)


def as_toml(value: str | Sequence[str]) -> str:
    """Return a string, or a list of strings, in TOML: as in JSON, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{path} isn't valid TOML: {error}.") from error
    return text.rstrip("\n").split("\n") if text.strip() else []


def option_defaults(command: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return Click's ``default_map`` of a command and its subcommands.

    A repeatable option gets the setting as its only value.
    """
    below = getattr(command, "commands", {})
    return {
        **{name: option_defaults(each, settings) for name, each in below.items()},
        **{
            option.name: [settings[option.name]] if option.multiple else settings[option.name]
            for option in command.params
            if option.name in settings and hasattr(option, "multiple")
        },
    }


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    import tomllib

    try:
        values = tomllib.loads(content.decode("utf-8"))
    except ValueError as error:  # of the encoding too
        raise InvalidOption(f"{path} isn't valid TOML: {error}.") from error
    table = values.get(GENERATORS, {})
    if not isinstance(table, dict) or not all(isinstance(one, str) for one in table.values()):
        raise InvalidOption(
            f"{path}: {GENERATORS} must be a table of names and generators, such as "
            f'{GENERATORS}.fast = "ollama:qwen2.5vl:7b".'
        )
    for key, value in values.items():
        if key == GENERATORS:
            continue
        if (setting := SETTINGS.get(key)) is None:
            raise _unknown(path, key)
        if not isinstance(value, str) or not value.strip():
            raise InvalidOption(
                f'{path}: {key} must be a string such as {key} = "…", not {value!r:.60}.'
            )
        if setting.choices and value not in setting.choices:
            raise InvalidOption(
                f"{path}: {key} is {value!r:.60}. Choose from {', '.join(setting.choices)}."
            )
    return values


def _unknown(path: Path, key: str) -> InvalidOption:
    from difflib import get_close_matches

    near = get_close_matches(key, SETTINGS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return InvalidOption(f"{path}: no setting {key!r:.60}.{hint} Settings: {', '.join(SETTINGS)}.")
