"""Results are current only as long as all their inputs are unchanged."""

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
from visar.encoders.registry import get_encoder
from visar.evaluation import run as run_module
from visar.evaluation.details import details_path
from visar.evaluation.inputs import Definitions, MethodDefinition, digest
from visar.evaluation.records import AnswerRecord, QuestionRecord
from visar.evaluation.report import write_report
from visar.evaluation.state import progress, read_state
from visar.results import EncoderRef
from visar.retrieval.calibration import calibration_path, find_calibration, save_calibration

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


# Numbers of retrievals, answers and verdicts that are computed again. Both questions have two
# retrievals (visar and the oracle), one answer (none from the oracle's pages) and one verdict.
@pytest.mark.parametrize(
    ("change", "again"),
    [
        pytest.param(lambda _data, _: None, (0, 0, 0), id="nothing"),
        pytest.param(
            # ViSAR doesn't use evidence, so only the oracle chooses again.
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
def test_results_with_changed_inputs_are_computed_again(
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


def test_the_oracle_uses_corrected_evidence(data: Path, tmp_path: Path) -> None:
    """The evidence is corrected to another page; the oracle's recall is 1 before and after."""
    folder = tmp_path / "run"
    for evidence in ([4], [2], [2, 4]):
        ask(data, (*TAX[:2], evidence, TAX[3]))
        evaluate(folder, data=(str(data),), methods=("oracle",))
        (chosen,) = read_state(folder).retrieved.values()
        assert set(evidence) <= set(chosen.pages)


def test_results_are_reused_when_inputs_are_restored(data: Path, tmp_path: Path) -> None:
    """When a change is undone, previous results are found and nothing is computed."""
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), **SETTINGS)
    ask(data, (*TAX[:3], ["May"]), BOATS)
    evaluate(folder, data=(str(data),), **SETTINGS)
    assert not _verdict(folder, "q0")
    ask(data, TAX, BOATS)
    back = evaluate(folder, data=(str(data),), **SETTINGS)
    assert (back.retrieved, back.answered, back.judged, back.stale) == (0, 0, 0, 1)
    assert _verdict(folder, "q0")


def test_results_are_reused_in_a_data_set_with_the_same_question(
    data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), methods=("visar",))
    other = write_questions(tmp_path / "other.jsonl", [TAX])
    evaluate(folder, data=(str(other),), methods=("visar",))
    found = read_state(folder).retrieved
    keys = [(name, "q0", "embedded", "visar") for name in ("questions", "other")]
    # Stored under another key, with the times of the first search.
    assert found[keys[0]].seconds == found[keys[1]].seconds


def test_quotes_depend_on_the_calibration(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibration decides whether a match is too weak to be quoted."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "run"
    # No word of the question is on the pages.
    ask(data, ("Quand faut-il payer?", *TAX[1:]))
    encoder = EncoderRef.of(get_encoder("embedded"))
    calibration = find_calibration(encoder)
    assert calibration is not None
    quoted = []
    for none in (0.0, 1.0):
        save_calibration(replace(calibration, none=none, weak=1.0), calibration_path(encoder))
        assert evaluate(folder, data=(str(data),), **SETTINGS).answered == 1
        (answered,) = read_state(folder).answered.values()
        quoted.append(bool(answered.text))
    assert quoted == [True, False]


def test_a_new_version_of_the_package_computes_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), **SETTINGS)
    monkeypatch.setattr(run_module, "__version__", "99.0")
    later = evaluate(folder, data=(str(data),), methods=("visar",))
    assert later.retrieved == 2
    # Results of the first version aren't included.
    found = progress(read_state(folder))["retrievals"]
    assert (found.done, found.stale, found.missing) == (2, 4, 2)


def test_the_report_leaves_out_details_of_earlier_inputs(data: Path, tmp_path: Path) -> None:
    """A detail is drawn again only if it is named; until then Figure 5 has nothing to show."""
    folder = tmp_path / "run"

    def report(*details: str) -> str:
        evaluate(folder, data=(str(data),), methods=("visar",), details=details)
        return write_report(folder, tmp_path / "report").with_suffix(".md").read_text()

    figure, left_out = "Figure 5 (a, b). Similarity", "Figure 5 leaves out questions, embedded, q0"
    assert figure in report("q0")
    # Another method is no input of a detail.
    evaluate(folder, data=(str(data),), methods=("oracle",))
    assert figure in report()
    ask(data, (*TAX[:2], [2, 3], TAX[3]), BOATS)
    changed = report()
    assert figure not in changed
    assert left_out in changed
    again = report("q0")
    assert figure in again
    assert left_out not in again


def test_the_report_names_documents_that_the_last_call_lost(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), methods=("visar",))
    (tmp_path / "notes.pdf").rename(tmp_path / "moved.pdf")
    evaluate(folder, data=(str(data),), methods=("visar",))
    report = write_report(folder, tmp_path / "report").with_suffix(".md").read_text()
    assert "the last call couldn't read notes.pdf" in report
    (tmp_path / "moved.pdf").rename(tmp_path / "notes.pdf")
    evaluate(folder, data=(str(data),), methods=("visar",))
    report = write_report(folder, tmp_path / "report").with_suffix(".md").read_text()
    assert "couldn't read" not in report


def test_details_of_similar_ids_are_different_files(tmp_path: Path) -> None:
    questions = [
        QuestionRecord(id_, "D", "a.pdf", 9, (2,), answerable=True) for id_ in ("q.1", "q-1")
    ]
    first, second = (details_path(tmp_path, asked, "embedded") for asked in questions)
    assert first != second


def test_other_ocr_settings_need_another_index(visar: Visar, data: Path, tmp_path: Path) -> None:
    call = ("eval", "run", tmp_path / "run", "--data", data, "--method", "visar", "--json")
    assert visar(*call).code == 0
    refused = visar(*call, "--ocr", "always", "--index", tmp_path / "run" / "index")
    assert refused.code == 2
    assert "--ocr always" in refused.err
    # Without --index, each setting has its own index.
    assert json.loads(visar(*call, "--ocr", "never").out)["retrieved"] == 0
    assert (tmp_path / "run" / "index-never-rapidocr").exists()


def test_status_counts_done_stale_and_missing_results(
    visar: Visar, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    evaluate(folder, data=(str(data),), **SETTINGS)
    (verdicts,) = folder.glob("judged*.jsonl")
    lines = verdicts.read_text().splitlines()
    changed = json.loads(lines[0]) | {"inputs": "of a reference that was corrected"}
    verdicts.write_text(json.dumps(changed) + "\n")
    status = json.loads(visar("eval", "status", folder, "--json").out)
    assert status["questions"] == 2
    assert status["retrievals"]["done"] == 4
    assert status["retrievals"]["missing"] == 0
    verdict = status["verdicts"]
    assert (verdict["done"], verdict["stale"], verdict["missing"]) == (0, 1, 2)
    ((setting, missing),) = verdict["missing_by_setting"].items()
    assert missing == 2
    shown = visar("eval", "status", folder)
    assert f"missing verdicts: {setting}: 2" in shown.out
    assert visar("eval", "status", tmp_path / "nothing").code == 2


def test_flags_override_the_file_even_with_default_values(
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


def test_an_unknown_detail_is_an_error(visar: Visar, data: Path, tmp_path: Path) -> None:
    ran = visar("eval", "run", tmp_path / "run", "--data", data, "--detail", "q7")
    assert ran.code == 2
    assert "'q7'" in ran.err


def test_each_question_is_encoded_once(data: Path, tmp_path: Path, models: dict[str, Any]) -> None:
    """Retrieval, quotes and details share the encoded question."""
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
    encoded.clear()
    evaluate(
        tmp_path / "run",
        data=(str(data),),
        encoders=("counting",),
        details=("q0",),
        **SETTINGS,
    )
    assert encoded == [], "everything is done already"


def test_every_input_changes_the_digest() -> None:
    asked = QuestionRecord(
        *("q", "data", "a.pdf", 9, (3,)),
        answerable=True,
        text_digest="t",
        document_digest="d",
        answers_digest="a",
    )
    answered = AnswerRecord("data", "q", "e", "m", "g", 5, (3,), "seven", "", None, None, 0.1)
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
    quotes = {
        changed.answer(asked, "e", "extractive", "default", (3,))
        for changed in (
            definitions,
            definitions.updated(Definitions(code="2")),
            definitions.updated(Definitions(code="1", encoders={"e": "2"})),
            definitions.updated(Definitions(code="1", calibrations={"e": "2"})),
        )
    }
    assert len(quotes) == 4
    # A model's input doesn't depend on the encoder that chose the pages.
    assert definitions.answer(asked, "other", "g", "default", (3,)) in answers
    verdicts = {
        definitions.verdict(asked, answered, "j"),
        definitions.verdict(asked, replace(answered, text="eight"), "j"),
        definitions.verdict(replace(asked, answers_digest="u"), answered, "j"),
        definitions.verdict(replace(asked, text_digest="u"), answered, "j"),
        definitions.updated(Definitions(judges={"j": "2"})).verdict(asked, answered, "j"),
    }
    assert len(verdicts) == 5


def test_different_values_have_different_digests() -> None:
    values = [("ab", "c"), ("a", "bc"), (["ab"], "c"), ("ab", None), ("ab", "\ud800")]
    assert len({digest(*one) for one in values}) == len(values)


def _verdict(folder: Path, question: str) -> bool:
    (found,) = [one for one in read_state(folder).judged.values() if one.question == question]
    return found.correct
