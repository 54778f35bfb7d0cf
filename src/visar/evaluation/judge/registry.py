"""Judges by name."""

from __future__ import annotations

from pathlib import Path

from visar.errors import InvalidOption
from visar.evaluation.judge.cache import CachedJudge
from visar.evaluation.judge.llm import DEFAULT_MODEL, LLMJudge
from visar.evaluation.judge.protocol import Judge
from visar.evaluation.judge.rules import RuleJudge
from visar.generation.registry import get_generator


def get_judge(
    name: str = "rules",
    *,
    base_url: str | None = None,
    device: str = "auto",
    cache: Path | str | None = None,
) -> Judge:
    """Make the judge of that name.

    ``rules`` needs no model, and is too quick for a cache to be of use. ``llm`` is the paper's
    model, run here; any other name is that of a generator, such as ``openai:MODEL``. Verdicts of
    a model are kept in the folder ``cache``, if one is given.
    """
    if name == "rules":
        if base_url is not None or device != "auto":
            raise InvalidOption("The judge 'rules' has no model: it takes no base_url or device.")
        return RuleJudge()
    if name == "extractive":
        raise InvalidOption(
            "The generator 'extractive' quotes pages and cannot judge. Choose 'rules', 'llm' "
            f"({DEFAULT_MODEL}), or a language model such as 'openai:MODEL'."
        )
    judge = LLMJudge(
        get_generator(DEFAULT_MODEL if name == "llm" else name, base_url=base_url, device=device)
    )
    return judge if cache is None else CachedJudge(judge, cache)
