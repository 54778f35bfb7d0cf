"""Judges by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from visar.errors import InvalidOption
from visar.evaluation.judge.cache import CachedJudge
from visar.evaluation.judge.llm import DEFAULT_MODEL, LLMJudge
from visar.evaluation.judge.protocol import Judge
from visar.evaluation.judge.quotes import QuoteJudge
from visar.evaluation.judge.rules import RuleJudge
from visar.generation.registry import get_generator

_WITHOUT_MODEL: dict[str, Callable[[], Judge]] = {"rules": RuleJudge, "quotes": QuoteJudge}


def needs_model(name: str) -> bool:
    """Whether the judge of that name asks a language model."""
    return name not in _WITHOUT_MODEL


def get_judge(
    name: str = "rules",
    *,
    base_url: str | None = None,
    device: str = "auto",
    cache: Path | str | None = None,
) -> Judge:
    """Make the judge of that name.

    ``rules`` and ``quotes`` (for extractive answers) need no model, and are too quick for a cache
    to be of use. ``llm`` is the paper's model, run here; any other name is that of a generator,
    such as ``openai:MODEL``. Verdicts of a model are kept in the folder ``cache``, if one is given.
    """
    if not needs_model(name):
        if base_url is not None or device != "auto":
            raise InvalidOption(f"The judge {name!r} has no model: it takes no base_url or device.")
        return _WITHOUT_MODEL[name]()
    if name == "extractive":
        raise InvalidOption(
            "The generator 'extractive' quotes pages and cannot judge. Choose 'rules', 'llm' "
            f"({DEFAULT_MODEL}), or a language model such as 'openai:MODEL'."
        )
    judge = LLMJudge(
        get_generator(DEFAULT_MODEL if name == "llm" else name, base_url=base_url, device=device)
    )
    return judge if cache is None else CachedJudge(judge, cache)
