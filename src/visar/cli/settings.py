"""The configuration file: defaults of options that the user has chosen once for all commands.

Options and variables of the environment win over it. The library does not read it.
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
    """An option that the file can give another default."""

    variable: str
    """Of the environment, which wins over the file."""
    use: str
    default: str | None
    choices: tuple[str, ...] = ()


SETTINGS = {
    "encoder": Setting("VISAR_ENCODER", "what makes the vectors of pages", "embedded"),
    "generator": Setting("VISAR_GENERATOR", "what writes answers", "extractive"),
    "base_url": Setting("OPENAI_BASE_URL", "where openai:MODEL is served", None),
    "device": Setting(
        "VISAR_DEVICE", "where models run", "auto", choices=("auto", "cpu", "cuda", "mps")
    ),
    "index": Setting("VISAR_INDEX", "the index: a folder or an address", None),
}


def location() -> Path:
    """Return the path of the file, ``VISAR_CONFIG`` or one of the user's; it need not exist."""
    if named := os.environ.get(LOCATION_VARIABLE):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("visar") / "config.toml"


def read() -> dict[str, str]:
    """Return the settings in the file; none if there is no file.

    Raises InvalidOption, with the file and the key, if it is no TOML or a setting is unknown, is no
    text, or has a value that it cannot have.
    """
    path = location()
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _parsed(path, content)


def write(changes: Mapping[str, str | None]) -> None:
    """Change settings in the file; None takes one out. Comments and all other lines stay.

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
    # The file may be a link to where somebody keeps all such files.
    write_whole(path.resolve(), content)


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{path} is no TOML: {error}.") from error
    return text.rstrip("\n").split("\n") if text.strip() else []


def option_defaults(command: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return Click's ``default_map`` of a command and those below it.

    An option that can be given several times gets the setting as its only value.
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
        raise InvalidOption(f"{path} is no TOML: {error}.") from error
    for key, value in values.items():
        setting = SETTINGS.get(key)
        if setting is None:
            raise _unknown(path, key)
        if not isinstance(value, str) or not value.strip():
            raise InvalidOption(
                f'{path}: {key} must be a text such as {key} = "…", not {value!r:.60}.'
            )
        if setting.choices and value not in setting.choices:
            raise InvalidOption(
                f"{path}: {key} is {value!r:.60}; it can be {', '.join(setting.choices)}."
            )
    return values


def _unknown(path: Path, key: str) -> InvalidOption:
    from difflib import get_close_matches

    near = get_close_matches(key, SETTINGS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return InvalidOption(
        f"{path}: there is no setting {key!r:.60}.{hint} There are {', '.join(SETTINGS)}."
    )
