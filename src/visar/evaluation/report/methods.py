"""Selection and names of methods in tables and figures."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from visar.evaluation.frames import Results, method_order
from visar.evaluation.methods import LABELS, METHODS

LATE = next(key for key, method in METHODS.items() if method.label == "Late-Interaction")
"""The key of fixed top-k by late interaction, the reference for other methods."""
PAPER_METHODS = (
    LATE,
    "single-vector",
    "visar",
    "visar-approx",
    "largest-gap",
    "score-cluster",
    "oracle",
)
"""The keys of the methods in the paper."""
# Groups of ViSAR's variants, which have separate tables and figures.
_VARIANTS = ("ablation", "T", "gamma", "acceleration")


def is_other(method: str) -> bool:
    """Return whether a method is a plugin or unknown to this version."""
    return method not in METHODS


def label(method: str) -> str:
    """Return the name of a method in tables and figures."""
    return LABELS.get(method, method)


def is_main(method: str) -> bool:
    """Return whether the main tables include a method: all except ViSAR's variants."""
    return is_other(method) or METHODS[method].group not in _VARIANTS


def is_adaptive(method: str) -> bool:
    """Return whether a method chooses k itself, as all plugins are assumed to do."""
    return is_other(method) or METHODS[method].adaptive


def is_compared(method: str) -> bool:
    """Return whether a method is compared with fixed top-k: adaptive methods in the main tables."""
    return is_main(method) and is_adaptive(method)


def is_timed(method: str) -> bool:
    """Return whether a method's time is meaningful, which excludes Oracle."""
    return is_other(method) or (is_main(method) and not METHODS[method].needs_evidence)


def where(frame: pd.DataFrame, test: Callable[[str], bool]) -> pd.DataFrame:
    """Return the rows whose method passes a test."""
    return frame[frame.method.isin([name for name in frame.method.unique() if test(name)])]


def of_group(group: str) -> tuple[str, ...]:
    """Return the keys of the methods in a group."""
    return tuple(key for key, method in METHODS.items() if method.group == group)


def other_methods(results: Results) -> list[str]:
    """Return a run's methods in the main tables that aren't in the paper."""
    found = set(results.retrievals.method.unique()).difference(PAPER_METHODS)
    return method_order(filter(is_main, found))


def name_generator(generator: str, prompt: str) -> str:
    """Return a generator's name, with the prompt unless it is the default.

    >>> name_generator("qwen2.5-vl", "paper")
    "qwen2.5-vl (the paper's prompt)"
    """
    if prompt == "default":
        return generator
    which = "the paper's prompt" if prompt == "paper" else f"prompt {prompt}"
    return f"{generator} ({which})"
