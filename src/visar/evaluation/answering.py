"""Stages three and four of a run: generate answers from the chosen pages, and judge them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from visar.encoders.encoder import Encoder
from visar.errors import VisarError
from visar.evaluation.boxes import quotes_f1
from visar.evaluation.calls import ONE_BY_ONE, Pace, group_by
from visar.evaluation.judge import Case, Judge, Verdict, judge_each
from visar.evaluation.questions import EvidenceBox
from visar.evaluation.records import KEYS, AnswerRecord, VerdictRecord, key_of
from visar.evaluation.searching import Search, search_key
from visar.evaluation.state import planned_answers
from visar.evaluation.work import Work
from visar.evaluation.workers import SearchResult
from visar.generation import extractive
from visar.generation.answering import BUDGETS, GeneratedAnswer, answer_each, gather_pages
from visar.generation.generator import Generator
from visar.generation.prompts import GivenPage, PromptName
from visar.index import Index
from visar.quotes.choice import find_quotes
from visar.retrieval.search import Searcher
from visar.text import encodable


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A question to answer from the pages that a method chose."""

    question: str
    document: str
    """The document's id in the index."""
    blank: AnswerRecord
    """The answer record to fill in."""
    prompt: PromptName = "default"


def quote(work: Work, search: Search, encoder: Encoder) -> None:
    """Answer with quotes from the pages chosen with an encoder."""
    tasks = [
        task for task in _answer_tasks(work, extractive.NAME) if task.blank.encoder == encoder.name
    ]
    tasks.sort(key=lambda task: work.rows[_question_of(task)].search_order)
    questions = dict.fromkeys(_question_of(task) for task in tasks)
    results = search.weights([work.rows[question] for question in questions])
    searchers: dict[str, Searcher] = {}

    def quote_one(batch: Sequence[AnswerTask]) -> list[AnswerRecord]:
        (task,) = batch
        if task.document not in searchers:
            # Tasks are sorted by document, so one searcher at a time is enough.
            searchers.clear()
            address = work.addresses[encoder.name]
            searchers[task.document] = work.index.searcher([task.document], address)
        row = work.rows[_question_of(task)]
        result = results[search_key(row.asked)]
        folder = work.index.original(task.document) if row.question.boxes else None
        return [quote_answer(task, searchers[task.document], result, row.question.boxes, folder)]

    _store_answers(work, extractive.NAME, tasks, quote_one, ONE_BY_ONE)


def answer(work: Work, generator: Generator, pace: Pace) -> None:
    """Generate answers from the chosen pages."""
    tasks = list(_answer_tasks(work, generator.name))
    if pace.batch > 1:
        # Prompts in a batch are padded to the longest, so batch prompts of similar length.
        tasks.sort(key=lambda task: len(task.blank.pages))
    concurrency = max(pace.threads, pace.batch)
    write = partial(write_answers, index=work.index, generator=generator, concurrency=concurrency)
    _store_answers(work, generator.name, tasks, write, pace)


def judge_answers(work: Work, judge: Judge, pace: Pace) -> None:
    """Judge all current answers that have a reference answer."""
    blanks = []
    for setting, answered in work.state.answered.items():
        row = work.rows.get(setting[:2])
        if row is not None and row.asked.answers_digest:
            blank = _blank_verdict(answered, judge.name)
            if key_of(blank) not in work.state.judged:
                blanks.append(replace(blank, inputs=work.state.inputs(blank) or ""))

    def case_of(blank: VerdictRecord) -> Case:
        question = work.rows[blank.dataset, blank.question].question
        answer = work.state.answered[key_of(blank)[:-1]].judged_text
        return Case(question.text, question.answers, answer, question.kind)

    with work.writer(VerdictRecord) as writer:

        def keep(group: Sequence[VerdictRecord], verdict: Verdict | VerdictRecord) -> None:
            found = [
                replace(blank, correct=verdict.correct, reason=verdict.reason, model=verdict.model)
                for blank in group
            ]
            work.keep(writer, found)
            work.outcome.judged += len(group)

        groups = group_by(blanks, lambda blank: blank.inputs)
        for group in groups:
            known = work.state.known.get(group[0].inputs)
            if isinstance(known, VerdictRecord):
                keep(group, known)
        work.calls.make(
            "judging",
            judge.name,
            [group for group in groups if group[0].inputs not in work.state.known],
            lambda blanks: judge_each(judge, [case_of(blank) for blank in blanks]),
            keep,
            question=lambda blank: blank.question,
            pace=pace,
        )


def _answer_tasks(work: Work, generator: str) -> Iterator[AnswerTask]:
    """Yield the missing answers of a generator for which pages have been chosen."""
    for setting in planned_answers(work.manifest, work.asked):
        chosen = work.state.retrieved.get(setting[:4])
        if setting[4] != generator or setting in work.state.answered or chosen is None:
            continue
        dataset, question, encoder, method, _, max_k, prompt = setting
        row = work.rows[dataset, question]
        pages = chosen.pages[:max_k]
        inputs = work.state.definitions.answer(row.asked, encoder, generator, prompt, pages)
        blank = AnswerRecord(
            dataset=dataset,
            question=question,
            encoder=encoder,
            method=method,
            generator=generator,
            max_k=max_k,
            pages=pages,
            text="",
            raw="",
            input_tokens=None,
            output_tokens=None,
            seconds=0.0,
            prompt=prompt,
            inputs=inputs,
        )
        yield AnswerTask(row.question.text, work.document(row).id, blank, prompt)


def _store_answers(
    work: Work,
    generator: str,
    tasks: Sequence[AnswerTask],
    call: Callable[[Sequence[AnswerTask]], Sequence[AnswerRecord | Exception]],
    pace: Pace,
) -> None:
    """Answer tasks and store the answers, answering tasks with the same inputs only once."""
    with work.writer(AnswerRecord) as writer:

        def keep(group: Sequence[AnswerTask], answered: AnswerRecord) -> None:
            found = [_with_key(answered, task.blank) for task in group]
            work.keep(writer, found)
            work.outcome.answered += len(group)

        groups = group_by(tasks, lambda task: task.blank.inputs)
        for group in groups:
            known = work.state.known.get(group[0].blank.inputs)
            if isinstance(known, AnswerRecord):
                keep(group, known)
        work.calls.make(
            "answers",
            generator,
            [group for group in groups if group[0].blank.inputs not in work.state.known],
            call,
            keep,
            question=lambda task: task.blank.question,
            pace=pace,
        )


def _question_of(task: AnswerTask) -> tuple[str, str]:
    return task.blank.dataset, task.blank.question


def _with_key(answered: AnswerRecord, blank: AnswerRecord) -> AnswerRecord:
    """Return a copy of an answer with the key of another record with the same inputs."""
    return replace(answered, **dict(zip(KEYS[AnswerRecord], key_of(blank), strict=True)))


def _blank_verdict(answered: AnswerRecord, judge: str) -> VerdictRecord:
    setting = dict(zip(KEYS[AnswerRecord], key_of(answered), strict=True))
    return VerdictRecord(**setting, judge=judge, correct=False)


def write_answers(
    tasks: Sequence[AnswerTask], index: Index, generator: Generator, *, concurrency: int = 1
) -> list[AnswerRecord | VisarError]:
    """Generate the answers of tasks with the same prompt.

    A task whose pages can't be loaded, or that the generator fails to answer, gets an error
    instead. ``concurrency`` is the number of concurrent tasks.
    """
    done: dict[int, AnswerRecord | VisarError] = {}
    prepared: dict[int, tuple[str, list[GivenPage]]] = {}
    for position, task in enumerate(tasks):
        pages = [(task.document, page) for page in task.blank.pages]
        try:
            given = gather_pages(index, generator, pages, [task.document])
        except VisarError as error:
            done[position] = error
        else:
            prepared[position] = task.question, given
    if prepared:
        prompt = tasks[0].prompt
        answers = answer_each(list(prepared.values()), generator, BUDGETS[prompt], prompt=prompt)
        for position, one in zip(prepared, answers, strict=True):
            blank = tasks[position].blank
            done[position] = (
                one if isinstance(one, VisarError) else _fill_in(blank, one, concurrency)
            )
    return [done[position] for position in range(len(tasks))]


def _fill_in(blank: AnswerRecord, answer: GeneratedAnswer, concurrency: int) -> AnswerRecord:
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


def quote_answer(
    task: AnswerTask,
    searcher: Searcher,
    result: SearchResult,
    marked: Sequence[EvidenceBox] = (),
    folder: Path | None = None,
) -> AnswerRecord:
    """Answer a task with the best passages of its pages.

    Their boxes are compared with the ``marked`` ones, if the folder of the page images is known.
    """
    started = time.perf_counter()
    page_ids = [(task.document, page) for page in task.blank.pages]
    weighted = searcher.weigh(result.query, result.token_weights, page_ids)
    passages = find_quotes(task.question, weighted).quotes(page_ids)
    pages = [one.page for one in weighted]
    strength = searcher.strength(task.question, result.match, pages, quoted=bool(passages))
    if strength == "none":
        passages = ()
    text = extractive.quote(passages)
    seconds = time.perf_counter() - started
    box_f1 = quotes_f1(passages, marked, folder) if marked and folder is not None else None
    return replace(task.blank, text=text, raw=text, seconds=seconds, box_f1=box_f1)
