"""Judges by name."""

from __future__ import annotations

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


def test_the_rules_are_the_default_and_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(get_judge(), BenchmarkJudge)
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    with pytest.raises(MissingExtra, match=r"visar-rag\[eval\]"):
        get_judge("rules")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rules", {"base_url": "http://127.0.0.1:1/v1"}, "no model"),
        ("rules", {"device": "cuda"}, "no model"),
        ("extractive", {}, "extractive"),
        ("paper:extractive", {}, "can't judge"),
        ("smal", {}, "There is no generator"),
        ("paper:smal", {}, "There is no generator"),
    ],
)
def test_judges_without_a_suitable_model_are_errors(
    name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        get_judge(name, **options)


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("llm", LLMJudge, "qwen2.5-14b"),
        ("openai-text:small", LLMJudge, "openai-text:small"),
        ("paper", PaperJudge, "qwen2.5-14b"),
        ("paper:openai-text:small", PaperJudge, "openai-text:small"),
    ],
)
def test_both_protocols_work_with_any_model(name: str, kind: type, model: str) -> None:
    served = {"base_url": "http://127.0.0.1:1/v1"} if "openai" in name else {}
    judge = get_judge(name, **served)
    assert type(judge) is kind
    assert judge.name.endswith(f" {model}")
    assert PUBLISHED[DEFAULT_MODEL].repository == "Qwen/Qwen2.5-14B-Instruct"


def test_a_local_model_can_judge(checkpoint: Callable[[str], Path]) -> None:
    judge = get_judge(str(checkpoint("qwen2.5-7b")), device="cpu")
    verdict = judge.judge("In which year?", ["1998"], "1998")
    assert verdict == judge.judge("In which year?", ["1998"], "1998")
    assert verdict.input_tokens
