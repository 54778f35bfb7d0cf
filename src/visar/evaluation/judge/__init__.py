"""Whether an answer is correct: by the benchmarks' rules, or by a language model."""

from __future__ import annotations

from collections.abc import Callable

from visar.errors import InvalidOption
from visar.evaluation.judge.agreement import Agreement, compare_judges
from visar.evaluation.judge.llm import LLMJudge
from visar.evaluation.judge.model import DEFAULT_MODEL
from visar.evaluation.judge.paper import PaperJudge
from visar.evaluation.judge.protocol import CORRECT_FROM, Case, Judge, Verdict, judge_each
from visar.evaluation.judge.scoring import BenchmarkJudge, QuoteJudge
from visar.generation import extractive
from visar.generation.registry import get_generator

__all__ = [
    "CORRECT_FROM",
    "DEFAULT_MODEL",
    "Agreement",
    "BenchmarkJudge",
    "Case",
    "Judge",
    "LLMJudge",
    "PaperJudge",
    "QuoteJudge",
    "Verdict",
    "compare_judges",
    "get_judge",
    "judge_and_model",
    "judge_each",
    "needs_model",
]

_WITHOUT_MODEL: dict[str, Callable[[], Judge]] = {"rules": BenchmarkJudge, "quotes": QuoteJudge}


def needs_model(name: str) -> bool:
    """True if the judge of that name asks a language model."""
    return name not in _WITHOUT_MODEL


def get_judge(
    name: str = "rules",
    *,
    base_url: str | None = None,
    device: str = "auto",
) -> Judge:
    """Make the judge of that name.

    Parameters
    ----------
    name
        ``rules`` (the benchmarks' scoring), ``quotes`` (for extractive answers), ``llm`` (our
        instructions to the paper's model, run here), a generator such as ``openai:MODEL`` (the
        same to another model), ``paper`` (the paper's protocol and model), or
        ``paper:GENERATOR`` (its protocol with another model).
    base_url, device
        Where the model is served, or runs; for judges with a model only.

    Raises
    ------
    InvalidOption
        If there is no such judge, or it cannot take an option.
    MissingExtra
        If ``rules`` lacks the extra ``eval``.
    """
    if not needs_model(name):
        if base_url is not None or device != "auto":
            raise InvalidOption(f"The judge {name!r} has no model: it takes no base_url or device.")
        return _WITHOUT_MODEL[name]()
    kind, model = judge_and_model(name)
    return kind(get_generator(model, base_url=base_url, device=device))


def judge_and_model(name: str) -> tuple[type[LLMJudge | PaperJudge], str]:
    """Return the class of a judge that asks a model, and the name of the generator it asks.

    Raises InvalidOption if that generator only quotes.

    >>> judge_and_model("paper"), judge_and_model("paper:openai:small")[1]
    ((<class 'visar.evaluation.judge.paper.PaperJudge'>, 'qwen2.5-14b'), 'openai:small')
    """
    protocol, _, named = name.partition(":")
    kind: type[LLMJudge | PaperJudge]
    if protocol == "paper":
        kind, model = PaperJudge, named or DEFAULT_MODEL
    else:
        kind, model = LLMJudge, DEFAULT_MODEL if name == "llm" else name
    if model == extractive.NAME:
        raise InvalidOption(
            "The generator 'extractive' quotes pages and cannot judge. Choose 'rules', 'llm' or "
            f"'paper' ({DEFAULT_MODEL}), or a language model such as 'openai:MODEL'."
        )
    return kind, model
