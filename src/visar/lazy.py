"""Packages that import their public names when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package.

    Parameters
    ----------
    package
        The name of the package.
    modules
        The public names that each module defines.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
