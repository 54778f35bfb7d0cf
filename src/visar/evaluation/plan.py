"""What an evaluation is to do: from a file, from flags, or both."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visar.errors import InvalidOption
from visar.evaluation.methods import METHODS

GROUPS = ("main", "ablation", "T", "gamma", "acceleration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Data × encoders × methods × generators × budgets."""

    data: tuple[str, ...]
    """Data sets: names of benchmarks, or paths."""
    encoders: tuple[str, ...] = ("embedded",)
    methods: tuple[str, ...] = GROUPS
    """Keys of methods, or whole groups of them."""
    generators: tuple[str, ...] = ()
    max_k: tuple[int, ...] = (5, 10)
    """Budgets of pages for generators."""
    judges: tuple[str, ...] = ("rules",)
    corrections: str | None = None
    """A file with corrections of the data."""
    details: tuple[str, ...] = ()
    """Questions, by their ids, whose similarity matrix and J(k) are kept."""
    ocr: str = "auto"
    share: tuple[int, int] = (1, 1)
    """Which of how many shares of the documents this machine takes."""

    def __post_init__(self) -> None:
        if not self.data:
            raise InvalidOption("Name the data: --data with a benchmark's name or a path.")
        method_keys(self.methods)
        if any(k < 1 for k in self.max_k):
            raise InvalidOption(f"Budgets of pages are at least 1, not {self.max_k}.")
        mine, all_shares = self.share
        if not 1 <= mine <= all_shares:
            raise InvalidOption(f"There is no share {mine} of {all_shares}.")


def method_keys(names: tuple[str, ...]) -> list[str]:
    """The methods that these names mean, each once, cheap ones before those that take long."""
    keys: dict[str, None] = {}
    for name in names:
        found = [key for key, method in METHODS.items() if name in (key, method.group)]
        if not found:
            raise InvalidOption(
                f"There is no method {name!r}. Choose among {', '.join(GROUPS)} (groups), "
                f"{', '.join(METHODS)}."
            )
        keys.update(dict.fromkeys(found))
    return sorted(keys, key=lambda key: METHODS[key].rule == "score-cluster")


def read_plan(path: Path | None, flags: Mapping[str, Any]) -> Plan:
    """A plan from a TOML file, with flags in place of what it says."""
    values: dict[str, Any] = {}
    if path is not None:
        values = _from_file(path)
    values |= {name: value for name, value in flags.items() if value}
    values.setdefault("data", ())
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Plan(**settings)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} is no TOML file: {error}.") from error
    known = {field.name: field for field in dataclasses.fields(Plan)}
    for name, value in values.items():
        if name not in known:
            raise InvalidOption(f"{path}: there is no setting {name!r}, but {', '.join(known)}.")
        is_list = str(known[name].type).startswith("tuple")
        if is_list != isinstance(value, list):
            kind = "a list" if is_list else "a single value"
            raise InvalidOption(f"{path}: {name} must be {kind}, not {value!r}.")
    return values
