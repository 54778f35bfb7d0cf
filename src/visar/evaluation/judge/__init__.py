"""Judge whether answers are correct, by the benchmarks' rules or a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from visar.errors import InvalidOption, VisarError
from visar.evaluation.judge.judge import CORRECT_FROM, Case, Judge, Verdict
from visar.evaluation.judge.models import DEFAULT_MODEL, LLMJudge, ModelJudge, PaperJudge
from visar.evaluation.judge.scoring import BenchmarkJudge, QuoteJudge
from visar.generation import extractive
from visar.generation.registry import get_generator

__all__ = [
    "CORRECT_FROM",
    "DEFAULT_MODEL",
    "BenchmarkJudge",
    "Case",
    "Judge",
    "LLMJudge",
    "PaperJudge",
    "QuoteJudge",
    "Verdict",
    "get_judge",
    "judge_and_model",
    "judge_each",
    "needs_model",
]

_WITHOUT_MODEL: dict[str, Callable[[], Judge]] = {"rules": BenchmarkJudge, "quotes": QuoteJudge}


def needs_model(name: str) -> bool:
    """Return whether a judge uses a language model."""
    return name not in _WITHOUT_MODEL


def get_judge(
    name: str = "rules",
    *,
    base_url: str | None = None,
    device: str = "auto",
) -> Judge:
    """Create a judge by name.

    Names are ``rules`` (the benchmarks' scoring), ``quotes`` (for extractive answers), ``llm`` (our
    instructions with the paper's model, run locally), a generator such as ``openai:MODEL`` (our
    instructions with another model), ``paper`` (the paper's protocol and model), and
    ``paper:GENERATOR``. ``base_url`` is where a model is served, ``device`` where it runs. Raises
    InvalidOption if the judge is unknown or doesn't support an option, and MissingExtra if
    ``rules`` is used without the extra ``eval``.
    """
    if not needs_model(name):
        if base_url is not None or device != "auto":
            raise InvalidOption(f"The judge {name!r} has no model: remove base_url and device.")
        return _WITHOUT_MODEL[name]()
    kind, model = judge_and_model(name)
    return kind(get_generator(model, base_url=base_url, device=device))


def judge_and_model(name: str) -> tuple[type[LLMJudge | PaperJudge], str]:
    """Return the class of a judge with a model, and the name of its generator.

    Raises InvalidOption if the generator is "extractive".

    >>> judge_and_model("paper"), judge_and_model("paper:openai:small")[1]
    ((<class 'visar.evaluation.judge.models.PaperJudge'>, 'qwen2.5-14b'), 'openai:small')
    """
    protocol, _, named = name.partition(":")
    kind: type[LLMJudge | PaperJudge]
    if protocol == "paper":
        kind, model = PaperJudge, named or DEFAULT_MODEL
    else:
        kind, model = LLMJudge, DEFAULT_MODEL if name == "llm" else name
    if model == extractive.NAME:
        raise InvalidOption(
            "The generator 'extractive' only quotes pages and can't judge. Choose 'rules', 'llm', "
            f"'paper' ({DEFAULT_MODEL}) or a language model such as 'openai:MODEL'."
        )
    return kind, model


def judge_each(judge: Judge, cases: Sequence[Case]) -> Sequence[Verdict | VisarError]:
    """Return a judge's verdict or error for each case, in batches if it has a model."""
    if isinstance(judge, ModelJudge):
        return judge.judge_batch(cases)
    verdicts: list[Verdict | VisarError] = []
    for case in cases:
        try:
            verdicts.append(judge.judge(*case[:3], kind=case.kind))
        except VisarError as error:
            verdicts.append(error)
    return verdicts
