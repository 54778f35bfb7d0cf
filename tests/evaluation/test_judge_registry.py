"""Judges by the names a person types."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.evaluation.generators import Grader, same_text
from visar.errors import InvalidOption
from visar.evaluation.judge import DEFAULT_MODEL, CachedJudge, LLMJudge, RuleJudge, get_judge


def test_rules_are_the_default_and_need_nothing() -> None:
    assert isinstance(get_judge(), RuleJudge)
    assert get_judge("rules").judge("Who?", ["Ada"], "ada").correct


def test_rules_have_no_model() -> None:
    with pytest.raises(InvalidOption, match="no model"):
        get_judge("rules", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(InvalidOption, match="no model"):
        get_judge("rules", device="cuda")


def test_what_quotes_pages_cannot_judge() -> None:
    with pytest.raises(InvalidOption, match="cannot judge"):
        get_judge("extractive")


def test_other_names_are_those_of_generators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is asked of the generators' registry; the models themselves are tried elsewhere."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def get_generator(name: str, **options: Any) -> Grader:
        asked.append((name, options))
        return Grader(same_text, name)

    registry = ModuleType("visar.generation.registry")
    monkeypatch.setattr(registry, "get_generator", get_generator, raising=False)
    monkeypatch.setitem(sys.modules, "visar.generation.registry", registry)
    assert isinstance(get_judge("llm"), LLMJudge)
    kept = get_judge("openai:small", base_url="http://127.0.0.1:1/v1", cache=tmp_path)
    assert isinstance(kept, CachedJudge)
    assert kept.judge("Who?", ["Ada"], "Ada").correct
    assert asked == [
        (DEFAULT_MODEL, {"base_url": None, "device": "auto"}),
        ("openai:small", {"base_url": "http://127.0.0.1:1/v1", "device": "auto"}),
    ]
