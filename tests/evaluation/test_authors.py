"""What ``--as-authors`` and ``--as`` make of a plan's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from visar.errors import InvalidOption
from visar.evaluation.authors import as_authors, tell_folder


def test_prompt_judge_and_encoder_become_the_authors() -> None:
    changed = as_authors({"encoders": ["colqwen2.5", "colmodernvbert@main"], "data": ["a"]})
    assert changed == {
        "encoders": ("colqwen2.5", "colmodernvbert@main+authors"),
        "prompt": "paper",
        "judges": ("paper",),
        "data": ["a"],
    }
    assert as_authors(changed) == changed, "once more changes nothing"


def test_a_checkpoint_that_is_colmodernvbert_is_run_so_too() -> None:
    given = {"encoders": ["colmodernvbert=./mine", "ModernVBERT/colmodernvbert"]}
    assert as_authors(given)["encoders"] == (
        "colmodernvbert=./mine+authors",
        "ModernVBERT/colmodernvbert+authors",
    )


def test_the_words_of_colbertv2_are_read_by_tesseract() -> None:
    assert as_authors({"encoders": ["colbertv2"]})["ocr_engine"] == "tesseract"
    assert "ocr_engine" not in as_authors({"encoders": ["colpali"]})


def test_settings_that_are_given_stay() -> None:
    given = {"judges": ["rules"], "prompt": "default", "ocr_engine": "rapidocr"}
    assert as_authors(given) == given
    words = as_authors({"encoders": ["colbertv2"], "ocr_engine": "rapidocr"})
    assert words["ocr_engine"] == "rapidocr"


def test_other_weights_are_refused_for_internvl() -> None:
    with pytest.raises(InvalidOption, match=r"other weights.*InternVL3_5-8B-Instruct"):
        as_authors({"generators": ["qwen2.5-vl", "internvl3.5"]})
    served = {"generators": ["openai:OpenGVLab/InternVL3_5-8B-Instruct"]}
    assert as_authors(served)["generators"] == served["generators"]


def test_a_folder_is_told_which_model_it_is(tmp_path: Path) -> None:
    values = {"encoders": ["embedded", str(tmp_path)], "generators": [str(tmp_path)]}
    told = tell_folder("colpali", values)
    assert told == {**values, "encoders": ("embedded", f"colpali={tmp_path}")}
    assert tell_folder("qwen2.5-vl", values)["generators"] == (f"qwen2.5-vl={tmp_path}",)


def test_one_folder_is_needed_and_a_known_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"among the encoders; there are 0\. Name each"):
        tell_folder("colpali", {"encoders": ["embedded"]})
    with pytest.raises(InvalidOption, match="there are 2"):
        tell_folder("colpali", {"encoders": [str(tmp_path)] * 2})
    with pytest.raises(InvalidOption, match="not 'embedded'"):
        tell_folder("embedded", {"encoders": [str(tmp_path)]})
