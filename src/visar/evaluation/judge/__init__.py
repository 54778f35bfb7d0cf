"""Whether an answer is correct: by the benchmarks' rules, or by a language model."""

from visar.evaluation.judge.agreement import Agreement, compare_judges
from visar.evaluation.judge.cache import CachedJudge
from visar.evaluation.judge.llm import DEFAULT_MODEL, LLMJudge
from visar.evaluation.judge.protocol import CORRECT_FROM, Judge, Verdict
from visar.evaluation.judge.registry import get_judge, needs_model
from visar.evaluation.judge.scoring import BenchmarkJudge, QuoteJudge

__all__ = [
    "CORRECT_FROM",
    "DEFAULT_MODEL",
    "Agreement",
    "BenchmarkJudge",
    "CachedJudge",
    "Judge",
    "LLMJudge",
    "QuoteJudge",
    "Verdict",
    "compare_judges",
    "get_judge",
    "needs_model",
]
