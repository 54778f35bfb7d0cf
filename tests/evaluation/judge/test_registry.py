"""Judges by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.generation.conftest import checkpoint as checkpoint
from visar.errors import InvalidOption, MissingExtra
from visar.evaluation.judge import (
    DEFAULT_MODEL,
    BenchmarkJudge,
    LLMJudge,
    PaperJudge,
    get_judge,
)
from visar.generation.registry import PUBLISHED


def test_the_rules_of_the_benchmarks_are_the_default() -> None:
    assert isinstance(get_judge(), BenchmarkJudge)
    assert get_judge("rules").judge("Who?", ["Ada"], "ada").correct


def test_the_error_for_missing_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    with pytest.raises(MissingExtra, match=r"visar-rag\[eval\]"):
        get_judge("rules")


def test_rules_have_no_model() -> None:
    with pytest.raises(InvalidOption, match="no model"):
        get_judge("rules", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(InvalidOption, match="no model"):
        get_judge("rules", device="cuda")


def test_the_extractive_generator_cannot_judge() -> None:
    with pytest.raises(InvalidOption, match="extractive"):
        get_judge("extractive")


def test_other_names_are_generators() -> None:
    judge = get_judge("openai-text:small", base_url="http://127.0.0.1:1/v1")
    assert isinstance(judge, LLMJudge)
    assert judge.name.endswith("openai-text:small")
    with pytest.raises(InvalidOption, match="There is no generator"):
        get_judge("smal")


def test_the_model_of_the_paper_has_a_short_name() -> None:
    judge = get_judge("llm")
    assert isinstance(judge, LLMJudge)
    assert PUBLISHED[DEFAULT_MODEL].repository == "Qwen/Qwen2.5-14B-Instruct"


def test_the_papers_protocol_works_with_any_model() -> None:
    assert re.fullmatch(r"paper 3-[0-9a-f]{8} qwen2.5-14b", get_judge("paper").name)
    other = get_judge("paper:openai-text:small", base_url="http://127.0.0.1:1/v1")
    assert isinstance(other, PaperJudge)
    assert other.name.endswith(" openai-text:small")
    for wrong, message in (("paper:extractive", "can't judge"), ("paper:smal", "no generator")):
        with pytest.raises(InvalidOption, match=message):
            get_judge(wrong)


def test_a_local_model_can_judge(checkpoint: Callable[[str], Path]) -> None:
    judge = get_judge(str(checkpoint("qwen2.5-7b")), device="cpu")
    verdict = judge.judge("In which year?", ["1998"], "1998")
    assert verdict == judge.judge("In which year?", ["1998"], "1998")
    assert verdict.input_tokens
