"""The configuration file: the user's defaults of options, for every command.

Options and environment variables win over it. Only the command line reads it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visar.errors import InvalidOption

LOCATION_VARIABLE = "VISAR_CONFIG"


@dataclass(frozen=True, slots=True)
class Setting:
    """An option whose default the file can change."""

    variable: str
    """Environment variable that wins over the file."""
    use: str
    default: str | None
    choices: tuple[str, ...] = ()


SETTINGS = {
    "encoder": Setting("VISAR_ENCODER", "encodes pages and questions", "embedded"),
    "generator": Setting("VISAR_GENERATOR", "writes answers", "extractive"),
    "reader": Setting("VISAR_READER", "re-reads passages; none turns it off", "auto"),
    "base_url": Setting("OPENAI_BASE_URL", "server of openai:MODEL", None),
    "device": Setting(
        "VISAR_DEVICE", "device that models run on", "auto", choices=("auto", "cpu", "cuda", "mps")
    ),
    "index": Setting("VISAR_INDEX", "your index: a folder or an address", None),
}


def location() -> Path:
    """Return the path of the file, which need not exist: ``VISAR_CONFIG``, or the user's own."""
    if named := os.environ.get(LOCATION_VARIABLE):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("visar") / "config.toml"


def read() -> dict[str, str]:
    """Return the settings in the file; none if there is no file.

    Raises InvalidOption, with the file and the key, if it isn't valid TOML, or a setting is unknown
    or has a wrong value.
    """
    path = location()
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _parsed(path, content)


def write(changes: Mapping[str, str | None]) -> None:
    """Change settings in the file; None removes one. Comments and all other lines stay.

    Raises InvalidOption as `read` does, before anything is written.
    """
    from visar.files import write_whole

    path = location()
    lines = _lines(path)
    for key, value in changes.items():
        if key not in SETTINGS and value is not None:
            raise _unknown(path, key)
        own = [bool(re.match(rf"\s*{re.escape(key)}\s*=", line)) for line in lines]
        place = own.index(True) if any(own) else len(lines)
        lines = [line for line, is_own in zip(lines, own, strict=True) if not is_own]
        if value is not None:
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.insert(place, f"{key} = {text}")
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    if any(value is not None for value in changes.values()):
        _parsed(path, content)
    # The file may be a link into a folder of dotfiles.
    write_whole(path.resolve(), content)


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


def _parsed(path: Path, content: bytes) -> dict[str, str]:
    import tomllib

    try:
        values = tomllib.loads(content.decode("utf-8"))
    except ValueError as error:  # of the encoding too
        raise InvalidOption(f"{path} isn't valid TOML: {error}.") from error
    for key, value in values.items():
        setting = SETTINGS.get(key)
        if setting is None:
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
