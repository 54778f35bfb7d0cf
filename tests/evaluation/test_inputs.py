"""A result counts only as long as everything it was computed from is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.evaluation.small_run import PAGES, MakePdf, evaluate, write_questions
from tests.evaluation.small_run import models as models
from visar.evaluation import run as run_module
from visar.evaluation.inputs import Definitions, MethodDefinition, digest
from visar.evaluation.records import Answered, Asked
from visar.evaluation.state import progress, read_state

TAX = ("When is income tax due?", "notes.pdf", [2], ["April"])
BOATS = ("What do sailing boats need?", "notes.pdf", [1], ["wind"])
SETTINGS: dict[str, Any] = {
    "methods": ("visar", "oracle"),
    "max_k": (2,),
    "generators": ("extractive",),
    "judges": ("quotes",),
}

Change = Callable[[Path, MakePdf], None]


@pytest.fixture
def data(make_pdf: MakePdf, tmp_path: Path) -> Path:
    make_pdf("notes.pdf", *PAGES)
    return write_questions(tmp_path / "questions.jsonl", [TAX, BOATS])


def ask(data: Path, *questions: Any) -> None:
    write_questions(data, questions)


# Retrievals, answers and verdicts that are computed again. Each of the two questions has two
# retrievals (visar and the oracle), one answer (none from the oracle's pages) and one verdict.
@pytest.mark.parametrize(
    ("change", "again"),
    [
        pytest.param(lambda _data, _: None, (0, 0, 0), id="nothing"),
        pytest.param(
            # ViSAR does not look at evidence: only the oracle chooses again.
            lambda data, _: ask(data, (*TAX[:2], [2, 3], TAX[3]), BOATS),
            (1, 0, 0),
            id="evidence pages",
        ),
        pytest.param(
            lambda data, _: ask(data, (*TAX[:3], ["May"]), BOATS), (0, 0, 1), id="reference answer"
        ),
        pytest.param(
            lambda data, _: ask(data, ("Where is the lighthouse?", *TAX[1:]), BOATS),
            (2, 1, 1),
            id="question under the same id",
        ),
        pytest.param(
            lambda _data, make_pdf: make_pdf("notes.pdf", *PAGES[::-1]),
            (4, 2, 2),
            id="document under the same name",
        ),
        pytest.param(lambda data, _: ask(data, TAX), (0, 0, 0), id="a question is gone"),
    ],
)
def test_what_depends_on_a_changed_input_is_computed_again(
    data: Path, make_pdf: MakePdf, tmp_path: Path, change: Change, again: tuple[int, int, int]
) -> None:
    folder = tmp_path / "run"
    first = evaluate(folder, data=(str(data),), **SETTINGS)
    assert (first.retrieved, first.answered, first.judged, first.stale) == (4, 2, 2, 0)
    change(data, make_pdf)
    second = evaluate(folder, data=(str(data),), **SETTINGS)
    assert (second.retrieved, second.answered, second.judged) == again
    state = read_state(folder)
    assert all(one.missing == 0 for one in progress(state).values())
    assert len(state.retrieved) == 2 * len(state.asked)
    assert len(state.judged) == len(state.asked)


def test_corrected_evidence_gives_the_oracle_all_of_it(data: Path, tmp_path: Path) -> None:
    """Evidence on a page that was wrong at first: recall of the oracle is 1 before and after."""
    folder = tmp_path / "run"
    for evidence in ([4], [2], [2, 4]):
        ask(data, (*TAX[:2], evidence, TAX[3]))
        evaluate(folder, data=(str(data),), methods=("oracle",))
        (chosen,) = read_state(folder).retrieved.values()
        assert set(evidence) <= set(chosen.pages)


def test_results_come_back_with_their_inputs(data: Path, tmp_path: Path) -> None:
    """A change that is undone finds the results of before, and computes nothing."""
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), **SETTINGS)
    ask(data, (*TAX[:3], ["May"]), BOATS)
    evaluate(folder, data=(str(data),), **SETTINGS)
    assert not _verdict(folder, "q0")
    ask(data, TAX, BOATS)
    back = evaluate(folder, data=(str(data),), **SETTINGS)
    assert (back.retrieved, back.answered, back.judged, back.stale) == (0, 0, 0, 1)
    assert _verdict(folder, "q0")


def test_another_version_of_the_package_computes_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), **SETTINGS)
    monkeypatch.setattr(run_module, "__version__", "99.0")
    later = evaluate(folder, data=(str(data),), methods=("visar",))
    assert later.retrieved == 2
    # What the first version chose does not stand beside it.
    found = progress(read_state(folder))["retrievals"]
    assert (found.done, found.stale, found.missing) == (2, 4, 2)


def test_other_ocr_settings_need_another_index(visar: Visar, data: Path, tmp_path: Path) -> None:
    call = ("eval", "run", tmp_path / "run", "--data", data, "--method", "visar", "--json")
    assert visar(*call).code == 0
    refused = visar(*call, "--ocr", "always", "--index", tmp_path / "run" / "index")
    assert refused.code == 2
    assert "--ocr always" in refused.err
    # Without --index each setting has its own.
    assert json.loads(visar(*call, "--ocr", "never").out)["retrieved"] == 0
    assert (tmp_path / "run" / "index-never-rapidocr").exists()


def test_status_tells_what_is_done_stale_and_missing(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), **SETTINGS)
    (verdicts,) = folder.glob("judged*.jsonl")
    lines = verdicts.read_text().splitlines()
    changed = json.loads(lines[0]) | {"inputs": "of a reference that was corrected"}
    verdicts.write_text(json.dumps(changed) + "\n")
    said = json.loads(visar("eval", "status", folder, "--json").out)
    assert said["questions"] == 2
    assert said["retrievals"]["done"] == 4
    assert said["retrievals"]["missing"] == 0
    verdict = said["verdicts"]
    assert (verdict["done"], verdict["stale"], verdict["missing"]) == (0, 1, 2)
    ((setting, missing),) = verdict["missing_by_setting"].items()
    assert missing == 2
    shown = visar("eval", "status", folder)
    assert f"missing verdicts: {setting}: 2" in shown.out
    assert visar("eval", "status", tmp_path / "nothing").code == 2


def test_typed_options_override_the_file_defaults_included(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    config = tmp_path / "plan.toml"
    config.write_text(f'data = ["{data}"]\nmethods = ["visar"]\nocr = "never"\nshare = [2, 2]\n')
    call = ("eval", "run", tmp_path / "run", "--config", config, "--json")
    # There is one document, so the second share is empty.
    assert json.loads(visar(*call).out)["questions"] == 0
    ran = json.loads(visar(*call, "--share", "1/1", "--ocr", "auto").out)
    assert ran["questions"] == 2
    assert (tmp_path / "run" / "index").exists()


def test_an_unknown_detail_is_refused(visar: Visar, data: Path, tmp_path: Path) -> None:
    ran = visar("eval", "run", tmp_path / "run", "--data", data, "--detail", "q7")
    assert ran.code == 2
    assert "'q7'" in ran.err


def test_each_question_is_encoded_once(data: Path, tmp_path: Path, models: dict[str, Any]) -> None:
    """For the choice of pages, for quotes, and for details alike."""
    from visar.encoders.registry import get_encoder

    embedded = get_encoder("embedded")
    encoded: list[str] = []

    class Counting:
        name, reads, weak_match = "counting", embedded.reads, embedded.weak_match
        version, dimension = embedded.version, embedded.dimension
        encode_pages = embedded.encode_pages

        def encode_query(self, question: str) -> Any:
            encoded.append(question)
            return embedded.encode_query(question)

    models["counting"] = lambda _: Counting()
    evaluate(
        tmp_path / "run",
        data=(str(data),),
        encoders=("counting",),
        details=("q0",),
        **SETTINGS,
    )
    assert sorted(encoded) == sorted([TAX[0], BOATS[0]])


def test_every_input_changes_the_digest() -> None:
    asked = Asked(
        *("q", "data", "a.pdf", 9, (3,)),
        answerable=True,
        text_digest="t",
        document_digest="d",
        answers_digest="a",
    )
    answered = Answered("data", "q", "e", "m", "g", 5, (3,), "seven", "", None, None, 0.1)
    definitions = Definitions(
        code="1",
        encoders={"e": "1"},
        calibrations={"e": "c"},
        methods={"m": MethodDefinition(digest="o", needs_evidence=True, needs_calibration=True)},
        generators={"g": {"default": "1"}},
        judges={"j": "1"},
    )
    retrievals = {
        definitions.retrieval(asked, "e", "m"),
        definitions.retrieval(replace(asked, text_digest="u"), "e", "m"),
        definitions.retrieval(replace(asked, document_digest="u"), "e", "m"),
        definitions.retrieval(replace(asked, evidence_pages=(4,)), "e", "m"),
        definitions.updated(Definitions(code="2")).retrieval(asked, "e", "m"),
        definitions.updated(Definitions(code="1", encoders={"e": "2"})).retrieval(asked, "e", "m"),
        definitions.updated(Definitions(code="1", calibrations={"e": "2"})).retrieval(
            asked, "e", "m"
        ),
    }
    assert len(retrievals) == 7
    assert definitions.retrieval(replace(asked, answers_digest="u"), "e", "m") in retrievals
    answers = {
        definitions.answer(asked, "e", "g", "default", (3,)),
        definitions.answer(asked, "e", "g", "default", (3, 4)),
        definitions.answer(asked, "e", "g", "paper", (3,)),
        definitions.answer(replace(asked, text_digest="u"), "e", "g", "default", (3,)),
        definitions.answer(replace(asked, document_digest="u"), "e", "g", "default", (3,)),
        definitions.updated(Definitions(generators={"g": {"default": "2"}})).answer(
            asked, "e", "g", "default", (3,)
        ),
    }
    assert len(answers) == 6
    # A model sees the same pages, whichever encoder they were chosen with.
    assert definitions.answer(asked, "other", "g", "default", (3,)) in answers
    verdicts = {
        definitions.verdict(asked, answered, "j"),
        definitions.verdict(asked, replace(answered, text="eight"), "j"),
        definitions.verdict(replace(asked, answers_digest="u"), answered, "j"),
        definitions.verdict(replace(asked, text_digest="u"), answered, "j"),
        definitions.updated(Definitions(judges={"j": "2"})).verdict(asked, answered, "j"),
    }
    assert len(verdicts) == 5


def test_a_digest_keeps_values_apart() -> None:
    values = [("ab", "c"), ("a", "bc"), (["ab"], "c"), ("ab", None), ("ab", "\ud800")]
    assert len({digest(*one) for one in values}) == len(values)


def _verdict(folder: Path, question: str) -> bool:
    (found,) = [one for one in read_state(folder).judged.values() if one.question == question]
    return found.correct
