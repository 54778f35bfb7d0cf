"""What docs/confidence.md says of the calibration is what comes with ViSAR."""

from __future__ import annotations

from pathlib import Path

from visar.encoders.embedded import EmbeddedEncoder
from visar.evaluation.calibration import DOUBTED, REFUSED
from visar.evaluation.calibration_examples import OTHER_DOCUMENTS
from visar.results import EncoderRef
from visar.retrieval.calibration import LIKELY, POSSIBLE, find_calibration

PAGE = (Path(__file__).parents[2] / "docs" / "confidence.md").read_text(encoding="utf-8")


def test_the_numbers_are_those_of_the_program() -> None:
    assert f"likely (from {LIKELY:.0%}), possible (from {POSSIBLE:.0%})".replace("%", " %") in PAGE
    assert OTHER_DOCUMENTS == 5
    assert "to five other documents" in PAGE
    assert f"for the {REFUSED:.0%}".replace("%", " %") in PAGE
    assert f"for {DOUBTED:.0%} of".replace("%", " %") in PAGE


def test_the_calibration_was_fitted_on_what_the_page_says() -> None:
    shipped = find_calibration(EncoderRef.of(EmbeddedEncoder()))
    assert shipped is not None
    assert shipped.made_from == "229 questions (168 with evidence pages) about 27 documents"
    assert "229 questions about 27 documents" in PAGE
    assert "168 of them with evidence pages" in PAGE
