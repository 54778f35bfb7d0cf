"""Which methods each table and figure shows, and their names."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from visar.evaluation.frames import Results, method_order
from visar.evaluation.methods import METHODS

LATE = next(key for key, method in METHODS.items() if method.label == "Late-Interaction")
"""The key of fixed top-k by late interaction, which other methods are compared with."""
PAPER_METHODS = (
    LATE,
    "single-vector",
    "visar",
    "visar-approx",
    "largest-gap",
    "score-cluster",
    "oracle",
)
"""The keys of the methods that the paper compares."""
# Variants of ViSAR, which have tables and figures of their own.
_VARIANTS = ("ablation", "T", "gamma", "acceleration")


def is_other(method: str) -> bool:
    """Whether a method comes from another package, or is one that this version does not know."""
    return method not in METHODS


def label(method: str) -> str:
    """Return the name of a method in tables and figures."""
    return method if is_other(method) else METHODS[method].label or method


def is_main(method: str) -> bool:
    """Whether the main tables report a method: all but variants of ViSAR."""
    return is_other(method) or METHODS[method].group not in _VARIANTS


def is_adaptive(method: str) -> bool:
    """Whether a method decides k by itself; that is assumed of other packages' methods."""
    return is_other(method) or METHODS[method].adaptive


def is_compared(method: str) -> bool:
    """Whether a method is compared with fixed top-k: the adaptive ones of the main tables."""
    return is_main(method) and is_adaptive(method)


def is_timed(method: str) -> bool:
    """Whether the time of a method means anything: Oracle knows the evidence."""
    return is_other(method) or (is_main(method) and not METHODS[method].needs_evidence)


def where(frame: pd.DataFrame, test: Callable[[str], bool]) -> pd.DataFrame:
    """Return the rows whose method passes a test."""
    return frame[frame.method.isin([name for name in frame.method.unique() if test(name)])]


def of_group(group: str) -> tuple[str, ...]:
    """Return the keys of the methods of a group."""
    return tuple(key for key, method in METHODS.items() if method.group == group)


def other_methods(results: Results) -> list[str]:
    """Return the methods of a run that the main tables report beside the paper's."""
    found = set(results.retrievals.method.unique()).difference(PAPER_METHODS)
    return method_order(filter(is_main, found))


def name_generator(generator: str, prompt: str) -> str:
    """Return a generator's name with the prompt, where it is not the default one.

    >>> name_generator("qwen2.5-vl", "paper")
    "qwen2.5-vl (the paper's prompt)"
    """
    if prompt == "default":
        return generator
    which = "the paper's prompt" if prompt == "paper" else f"prompt {prompt}"
    return f"{generator} ({which})"
