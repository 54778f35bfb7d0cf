"""Whether an answer is correct: by rules, or by a language model as in the paper."""

from visar.evaluation.judge.agreement import Agreement, compare_judges
from visar.evaluation.judge.cache import CachedJudge
from visar.evaluation.judge.llm import DEFAULT_MODEL, LLMJudge
from visar.evaluation.judge.protocol import Judge, Verdict
from visar.evaluation.judge.quotes import QuoteJudge
from visar.evaluation.judge.registry import get_judge, needs_model
from visar.evaluation.judge.rules import RuleJudge

__all__ = [
    "DEFAULT_MODEL",
    "Agreement",
    "CachedJudge",
    "Judge",
    "LLMJudge",
    "QuoteJudge",
    "RuleJudge",
    "Verdict",
    "compare_judges",
    "get_judge",
    "needs_model",
]
