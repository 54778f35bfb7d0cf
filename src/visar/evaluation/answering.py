"""Stages three and four of a run: generate answers from the chosen pages, and judge them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from visar.encoders.encoder import Encoder
from visar.errors import VisarError
from visar.evaluation.boxes import quotes_f1
from visar.evaluation.calls import ONE_BY_ONE, Pace
from visar.evaluation.judge import Case, Judge, Verdict, judge_each
from visar.evaluation.records import AnswerRecord, VerdictRecord
from visar.evaluation.searching import Search, search_key
from visar.evaluation.state import Setting, planned
from visar.evaluation.work import Row, Work
from visar.evaluation.workers import SearchResult
from visar.generation import extractive
from visar.generation.answering import BUDGETS, GeneratedAnswer, answer_each, gather_pages
from visar.generation.generator import Generator
from visar.generation.prompts import GivenPage
from visar.quotes.choice import find_quotes
from visar.retrieval.search import Searcher
from visar.text import encodable

Answers = Sequence[AnswerRecord | VisarError]


def quote(work: Work, search: Search, encoder: Encoder) -> None:
    """Answer with quotes from the pages chosen with an encoder."""
    groups = _missing(work, extractive.NAME, encoder.name)
    groups.sort(key=lambda group: work.rows[group[0][:2]].search_order)
    questions = dict.fromkeys(group[0][:2] for group in groups)
    results = search.weights([work.rows[question] for question in questions])
    searchers: dict[str, Searcher] = {}

    def quote_one(settings: Sequence[Setting]) -> Answers:
        (setting,) = settings
        row = work.rows[setting[:2]]
        document = work.document(row).id
        if document not in searchers:
            # Settings are sorted by document, so one searcher at a time is enough.
            searchers.clear()
            searchers[document] = work.index.searcher([document], work.addresses[encoder.name])
        blank, result = _blank_answer(work, setting), results[search_key(row.asked)]
        folder = work.index.original(document) if row.question.boxes else None
        return [_quote_answer(blank, row, document, searchers[document], result, folder)]

    _answer_groups(work, extractive.NAME, groups, quote_one, ONE_BY_ONE)


def answer(work: Work, generator: Generator, pace: Pace) -> None:
    """Generate answers from the chosen pages."""
    groups = _missing(work, generator.name)
    if pace.batch > 1:
        # Prompts in a batch are padded to the longest, so batch prompts of similar length.
        groups.sort(key=lambda group: len(_blank_answer(work, group[0]).pages))
    concurrency = max(pace.threads, pace.batch)

    def write(settings: Sequence[Setting]) -> Answers:
        return _write_answers(work, generator, settings, concurrency)

    _answer_groups(work, generator.name, groups, write, pace)


def judge_answers(work: Work, judge: Judge, pace: Pace) -> None:
    """Judge all current answers that have a reference answer."""
    settings = [
        (*setting, judge.name)
        for setting in work.state.answered
        if (row := work.rows.get(setting[:2])) is not None and row.asked.answers_digest
    ]
    missing = [setting for setting in settings if setting not in work.state.judged]

    def judge_some(settings: Sequence[Setting]) -> Sequence[Verdict | VisarError]:
        cases = []
        for setting in settings:
            question = work.rows[setting[:2]].question
            text = work.state.answered[setting[:-1]].judged_text
            cases.append(Case(question.text, question.answers, text, question.kind))
        return judge_each(judge, cases)

    def keep(group: Sequence[Setting], verdict: Verdict) -> None:
        decided = {name: getattr(verdict, name) for name in ("correct", "reason", "model")}
        key = dict(zip(VerdictRecord.KEY, group[0], strict=True))
        work.keep(VerdictRecord(**key, **decided), group)

    work.calls.make(
        "judging",
        judge.name,
        work.reuse(VerdictRecord, missing),
        judge_some,
        keep,
        question=lambda setting: str(setting[1]),
        pace=pace,
    )


def _missing(work: Work, generator: str, encoder: str | None = None) -> list[list[Setting]]:
    """Return the missing answers of a generator for which pages have been chosen.

    ``encoder`` limits them to one encoder, since the next one hasn't chosen its pages yet.
    """
    settings = [
        setting
        for setting in planned(work.manifest, work.asked)["answered"]
        if setting[4] == generator
        and encoder in (None, setting[2])
        and setting not in work.state.answered
    ]
    return work.reuse(AnswerRecord, settings)


def _answer_groups(
    work: Work,
    generator: str,
    groups: Sequence[Sequence[Setting]],
    call: Callable[[Sequence[Setting]], Answers],
    pace: Pace,
) -> None:
    """Answer one setting of each group, and keep its answer for the whole group."""
    work.calls.make(
        "answers",
        generator,
        groups,
        call,
        lambda group, answered: work.keep(answered, group),
        question=lambda setting: str(setting[1]),
        pace=pace,
    )


def _blank_answer(work: Work, setting: Setting) -> AnswerRecord:
    """Return the answer record to fill in for a setting."""
    key = dict(zip(AnswerRecord.KEY, setting, strict=True))
    return AnswerRecord(
        **key,
        pages=work.state.retrieved[setting[:4]].pages[: key["max_k"]],
        text="",
        raw="",
        input_tokens=None,
        output_tokens=None,
        seconds=0.0,
    )


def _write_answers(
    work: Work, generator: Generator, settings: Sequence[Setting], concurrency: int
) -> Answers:
    """Generate answers with the same prompt.

    A setting whose pages can't be loaded, or that the generator fails to answer, gets an error
    instead.
    """
    blanks = [_blank_answer(work, setting) for setting in settings]
    failed: dict[int, VisarError] = {}
    given: dict[int, tuple[str, Sequence[GivenPage]]] = {}
    for position, blank in enumerate(blanks):
        row = work.rows[settings[position][:2]]
        document = work.document(row).id
        pages = [(document, page) for page in blank.pages]
        try:
            shown = gather_pages(work.index, generator, pages, [document])
        except VisarError as error:
            failed[position] = error
        else:
            given[position] = row.question.text, shown
    prompt = work.plan.prompt
    answers = answer_each(list(given.values()), generator, BUDGETS[prompt], prompt=prompt)
    answered = dict(zip(given, answers, strict=True)) | failed
    return [
        _fill_in(blank, answered[position], concurrency) for position, blank in enumerate(blanks)
    ]


def _fill_in(
    blank: AnswerRecord, answer: GeneratedAnswer | VisarError, concurrency: int
) -> AnswerRecord | VisarError:
    if isinstance(answer, VisarError):
        return answer
    generation = answer.generation
    return replace(
        blank,
        text=encodable(answer.text),
        raw=encodable(generation.raw),
        input_tokens=generation.input_tokens,
        output_tokens=generation.output_tokens,
        seconds=generation.seconds,
        model=generation.model,
        concurrency=concurrency,
        note=generation.note,
    )


def _quote_answer(
    blank: AnswerRecord,
    row: Row,
    document: str,
    searcher: Searcher,
    result: SearchResult,
    folder: Path | None,
) -> AnswerRecord:
    """Answer a question with the best passages of its pages.

    Their boxes are compared with marked ones, if the folder of the page images is known.
    """
    started = time.perf_counter()
    question, page_ids = row.question, [(document, page) for page in blank.pages]
    weighted = searcher.weigh(result.query, result.token_weights, page_ids)
    passages = find_quotes(question.text, weighted).quotes(page_ids)
    pages = [one.page for one in weighted]
    strength = searcher.strength(question.text, result.match, pages, quoted=bool(passages))
    if strength == "none":
        passages = ()
    text = extractive.quote(passages)
    seconds = time.perf_counter() - started
    box_f1 = None if folder is None else quotes_f1(passages, question.boxes, folder)
    return replace(blank, text=text, raw=text, seconds=seconds, box_f1=box_f1)
