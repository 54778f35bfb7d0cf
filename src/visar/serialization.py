"""Conversion of results to and from JSON, and their OpenAPI schemas."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union

import numpy as np

from visar.errors import InvalidOption, MalformedMessage

T = TypeVar("T")
INTERNAL = {"internal": True}
"""Field metadata: the field is never written to JSON."""
LOCAL = {"local": True}
"""Field metadata: the field is stored, but a server never sends it."""


class Result:
    """Base class of results, from which pydantic derives their OpenAPI schemas.

    The metadata of a field can have a ``minimum``, which `check_minimums` enforces.
    """

    __slots__ = ()
    # Only read by pydantic, if it is installed. Docstrings below fields become descriptions.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "use_attribute_docstrings": True,
        "arbitrary_types_allowed": True,
    }

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for one in fields(cls):  # type: ignore[arg-type]
            if one.metadata.get("internal") or one.metadata.get("local"):
                properties.pop(one.name, None)
            elif "minimum" in one.metadata:
                properties[one.name]["minimum"] = one.metadata["minimum"]
        return schema


def check_minimums(value: Any) -> None:
    """Raise InvalidOption if a field is below the minimum in its metadata."""
    for one in fields(value):
        given, minimum = getattr(value, one.name), one.metadata.get("minimum")
        if given is not None and minimum is not None and given < minimum:
            raise InvalidOption(f"{one.name} must be at least {minimum}, not {given}.")


def to_plain(value: Any, *, public: bool = False) -> Any:
    """Convert a result to plain JSON values. NaN becomes null.

    A class can list properties to include in a class attribute named ``computed``. If ``public``,
    `LOCAL` fields are left out, for responses to clients.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hidden = ("internal", "local") if public else ("internal",)
        shown = [f.name for f in fields(value) if not any(map(f.metadata.get, hidden))]
        shown += getattr(type(value), "computed", ())
        return {name: to_plain(getattr(value, name), public=public) for name in shown}
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, public=public) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_plain(item, public=public) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, datetime | Path):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """Create a result from the output of `to_plain`.

    Unknown fields, which a newer version may send, are ignored. Raises MalformedMessage if a field
    is missing or has another type.
    """
    try:
        result: T = _read(kind, value)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedMessage(
            f"Can't read {getattr(kind, '__name__', kind)} from JSON: {error}. The two sides may "
            "have different versions: update the older one."
        ) from error
    return result


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        known = _fields(kind)
        return kind(**{name: _read(of, value[name]) for name, of in known if name in value})
    if origin in (Union, types.UnionType):
        of = next(one for one in arguments if one is not type(None))
        return None if value is None else _read(of, value)
    if origin in (list, tuple):
        is_uniform = origin is list or arguments[-1] is Ellipsis
        kinds = [arguments[0]] * len(value) if is_uniform else arguments
        return origin(_read(of, item) for of, item in zip(kinds, value, strict=True))
    return _read_value(kind, value)


def _read_value(kind: Any, value: Any) -> Any:
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is float and isinstance(value, int):
        return float(value)
    known = typing.get_args(kind) if typing.get_origin(kind) is Literal else None
    if known is not None and value not in known:
        raise ValueError(f"{value!r} is not one of {known}")
    if isinstance(kind, type) and not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, not {value!r:.60}")
    return value


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass that can be in JSON, with their types."""
    shown = [one.name for one in fields(kind) if not one.metadata.get("internal")]
    hints = typing.get_type_hints(kind)
    return tuple((name, hints[name]) for name in shown)
