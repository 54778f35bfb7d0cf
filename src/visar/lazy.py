"""Lazy imports of the public names of packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that imports names on first use.

    Parameters
    ----------
    package
        Name of the package.
    modules
        Public names of each module.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
