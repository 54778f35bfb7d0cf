"""The effect of ``--as-authors`` and ``--as`` on a plan's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from visar.errors import InvalidOption
from visar.evaluation.authors import as_authors, declare_checkpoint


def test_prompt_judge_and_encoder_default_to_the_authors() -> None:
    changed = as_authors({"encoders": ["colqwen2.5", "colmodernvbert@main"], "data": ["a"]})
    assert changed == {
        "encoders": ("colqwen2.5", "colmodernvbert@main+authors"),
        "prompt": "paper",
        "judges": ("paper",),
        "data": ["a"],
    }
    assert as_authors(changed) == changed, "applying it again changes nothing"


def test_checkpoints_of_colmodernvbert_use_the_authors_mode() -> None:
    given = {"encoders": ["colmodernvbert=./mine", "ModernVBERT/colmodernvbert"]}
    assert as_authors(given)["encoders"] == (
        "colmodernvbert=./mine+authors",
        "ModernVBERT/colmodernvbert+authors",
    )


def test_colbertv2_uses_tesseract() -> None:
    assert as_authors({"encoders": ["colbertv2"]})["ocr_engine"] == "tesseract"
    assert "ocr_engine" not in as_authors({"encoders": ["colpali"]})


def test_explicit_settings_are_kept() -> None:
    given = {"judges": ["rules"], "prompt": "default", "ocr_engine": "rapidocr"}
    assert as_authors(given) == given
    words = as_authors({"encoders": ["colbertv2"], "ocr_engine": "rapidocr"})
    assert words["ocr_engine"] == "rapidocr"


def test_other_internvl_weights_are_an_error() -> None:
    with pytest.raises(InvalidOption, match=r"weights.*InternVL3_5-8B-Instruct"):
        as_authors({"generators": ["qwen2.5-vl", "internvl3.5"]})
    served = {"generators": ["openai:OpenGVLab/InternVL3_5-8B-Instruct"]}
    assert as_authors(served)["generators"] == served["generators"]


def test_a_folder_is_declared_a_known_model(tmp_path: Path) -> None:
    values = {"encoders": ["embedded", str(tmp_path)], "generators": [str(tmp_path)]}
    settings = declare_checkpoint("colpali", values)
    assert settings == {**values, "encoders": ("embedded", f"colpali={tmp_path}")}
    assert declare_checkpoint("qwen2.5-vl", values)["generators"] == (f"qwen2.5-vl={tmp_path}",)


def test_declaring_needs_one_folder_and_a_known_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"among the encoders, not 0"):
        declare_checkpoint("colpali", {"encoders": ["embedded"]})
    with pytest.raises(InvalidOption, match="not 2"):
        declare_checkpoint("colpali", {"encoders": [str(tmp_path)] * 2})
    with pytest.raises(InvalidOption, match="'embedded'"):
        declare_checkpoint("embedded", {"encoders": [str(tmp_path)]})
