"""Parts that come from elsewhere: entry points of installed packages, and ``module:attribute``."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visar.errors import InvalidOption, VisarError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OBJECT_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@cache
def entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group (such as ``visar.encoders``) by name; imports nothing."""
    from importlib import metadata

    return {point.name: point for point in metadata.entry_points(group=group)}


def is_object_name(name: str) -> bool:
    """Whether a name has the form ``module:attribute``.

    >>> is_object_name("my_package.encoders:Tiny"), is_object_name("http://127.0.0.1:80")
    (True, False)
    """
    return _OBJECT_NAME.fullmatch(name) is not None


def load(name: str | EntryPoint) -> Any:
    """Import what an entry point or a name ``module:attribute`` means.

    A module may lie in the current folder. Processes started by ``multiprocessing`` take the
    path over, so that the name means the same there.

    Raises
    ------
    InvalidOption
        If the module or the attribute does not exist, or the import fails.
    """
    text = name if isinstance(name, str) else name.value
    module, _, attribute = text.partition(":")
    foreign = isinstance(name, str) and not name.startswith("visar.")
    if foreign and (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    advice = (
        ". Write module:attribute, with a module that is installed or lies in the current folder."
    )
    with failing_as(InvalidOption, f"{text} cannot be imported", advice):
        return reduce(getattr, attribute.split("."), importlib.import_module(module))


@contextmanager
def failing_as(failure: type[VisarError], what: str, end: str = "") -> Iterator[None]:
    """Run code of others, which can fail in any way: raise ``failure`` with what failed, and why.

    ``what`` begins the message, and ``end`` ends it. A VisarError is raised as it is.
    """
    try:
        yield
    except VisarError:
        raise
    except Exception as error:
        raise failure(f"{what}: {type(error).__name__}: {error}{end}") from error


def make(
    factory: str | EntryPoint, kind: str, name: str, device: str, failure: type[VisarError]
) -> Any:
    """Call a class or function that makes an encoder or a generator; pass ``device`` if it can.

    Raises
    ------
    VisarError
        ``failure`` if the call fails.
    InvalidOption
        If the module cannot be imported.
    """
    called = load(factory)
    with failing_as(failure, f"The {kind} {name!r} cannot be made"):
        return called(device=device) if accepts_device(called) else called()


def accepts_device(called: Callable[..., object]) -> bool:
    """Whether something can be called with the argument ``device``."""
    import inspect

    try:
        inspect.signature(called).bind_partial(device="auto")
    except (TypeError, ValueError):  # ValueError: of some built-in callables nothing is known
        return False
    return True


def package_of(point: EntryPoint) -> str:
    """Return the package of an entry point with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "another package"


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> InvalidOption:
    """Return the error for a name that nothing has, with the nearest known name.

    >>> print(unknown_name("method", "vizar", ["visar", "top-k"]))
    There is no method 'vizar': did you mean visar? Known: visar, top-k.
    """
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, n=1)
    question = f": did you mean {near[0]}?" if near else "."
    return InvalidOption(f"There is no {kind} {name!r}{question} Known: {', '.join(names)}.{hint}")
