"""The result of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Visar: TypeAlias = Callable[..., Ran]
