"""The third and fourth stage of a run: answers from the chosen pages, and verdicts on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from visar.encoders.protocol import Encoder
from visar.errors import VisarError
from visar.evaluation.calls import ONE_BY_ONE, Pace, group_by
from visar.evaluation.judge import Case, Judge, Verdict, judge_each
from visar.evaluation.records import KEYS, Answered, Judged, key_of
from visar.evaluation.searching import Search, search_key
from visar.evaluation.state import planned_answers
from visar.evaluation.work import Work
from visar.evaluation.workers import Searched
from visar.generation import extractive
from visar.generation.answering import BUDGETS, GeneratedAnswer, answer_each, gather_pages
from visar.generation.prompts import GivenPage, PromptName
from visar.generation.protocol import Generator
from visar.index import Index
from visar.quotes.choice import find_quotes
from visar.retrieval.search import Searcher
from visar.text import encodable


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A question to answer from the pages that a method has chosen."""

    question: str
    document: str
    """The document's id in the index."""
    blank: Answered
    """The record of its answer, without the answer."""
    prompt: PromptName = "default"


def quote(work: Work, search: Search, encoder: Encoder) -> None:
    """Answer with quotes from the pages that were chosen with an encoder."""
    tasks = [
        task for task in _answer_tasks(work, extractive.NAME) if task.blank.encoder == encoder.name
    ]
    tasks.sort(key=lambda task: work.rows[_question_of(task)].search_order)
    questions = dict.fromkeys(_question_of(task) for task in tasks)
    searched = search.weights([work.rows[question] for question in questions])
    searchers: dict[str, Searcher] = {}

    def quote_one(batch: Sequence[AnswerTask]) -> list[Answered]:
        (task,) = batch
        if task.document not in searchers:
            # Tasks of one document come one after another.
            searchers.clear()
            address = work.addresses[encoder.name]
            searchers[task.document] = work.index.searcher([task.document], address)
        key = search_key(work.rows[_question_of(task)].asked)
        return [quote_answer(task, searchers[task.document], searched[key])]

    _keep_answers(work, extractive.NAME, tasks, quote_one, ONE_BY_ONE)


def answer(work: Work, generator: Generator, pace: Pace) -> None:
    """Have a generator answer from the chosen pages."""
    tasks = list(_answer_tasks(work, generator.name))
    if pace.batch > 1:
        # Prompts of a batch are padded to the longest.
        tasks.sort(key=lambda task: len(task.blank.pages))
    concurrency = max(pace.threads, pace.batch)
    write = partial(write_answers, index=work.index, generator=generator, concurrency=concurrency)
    _keep_answers(work, generator.name, tasks, write, pace)


def judge_answers(work: Work, judge: Judge, pace: Pace) -> None:
    """Have a judge decide about all answers of the run that count and have a reference."""
    blanks = []
    for setting, answered in work.state.answered.items():
        row = work.rows.get(setting[:2])
        if row is not None and row.asked.answers_digest:
            blank = _blank_verdict(answered, judge.name)
            if key_of(blank) not in work.state.judged:
                blanks.append(replace(blank, inputs=work.state.inputs(blank) or ""))

    def case_of(blank: Judged) -> Case:
        question = work.rows[blank.dataset, blank.question].question
        said = work.state.answered[key_of(blank)[:-1]].said
        return Case(question.text, question.answers, said, question.kind)

    with work.writer(Judged) as writer:

        def keep(group: Sequence[Judged], verdict: Verdict | Judged) -> None:
            found = [
                replace(blank, correct=verdict.correct, reason=verdict.reason, model=verdict.model)
                for blank in group
            ]
            work.keep(writer, found)
            work.outcome.judged += len(group)

        groups = group_by(blanks, lambda blank: blank.inputs)
        for group in groups:
            known = work.state.known.get(group[0].inputs)
            if isinstance(known, Judged):
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
    """Yield the answers of a generator that are missing and whose pages are chosen."""
    for setting in planned_answers(work.manifest, work.asked):
        chosen = work.state.retrieved.get(setting[:4])
        if setting[4] != generator or setting in work.state.answered or chosen is None:
            continue
        dataset, question, encoder, method, _, max_k, prompt = setting
        row = work.rows[dataset, question]
        pages = chosen.pages[:max_k]
        inputs = work.state.definitions.answer(row.asked, encoder, generator, prompt, pages)
        blank = Answered(
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


def _keep_answers(
    work: Work,
    generator: str,
    tasks: Sequence[AnswerTask],
    call: Callable[[Sequence[AnswerTask]], Sequence[Answered | Exception]],
    pace: Pace,
) -> None:
    """Answer tasks, those with the same inputs once, and keep the answers."""
    with work.writer(Answered) as writer:

        def keep(group: Sequence[AnswerTask], answered: Answered) -> None:
            found = [_with_setting(answered, task.blank) for task in group]
            work.keep(writer, found)
            work.outcome.answered += len(group)

        groups = group_by(tasks, lambda task: task.blank.inputs)
        for group in groups:
            known = work.state.known.get(group[0].blank.inputs)
            if isinstance(known, Answered):
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


def _with_setting(answered: Answered, blank: Answered) -> Answered:
    """Return an answer under the setting of another one with the same inputs."""
    return replace(answered, **dict(zip(KEYS[Answered], key_of(blank), strict=True)))


def _blank_verdict(answered: Answered, judge: str) -> Judged:
    setting = dict(zip(KEYS[Answered], key_of(answered), strict=True))
    return Judged(**setting, judge=judge, correct=False)


def write_answers(
    tasks: Sequence[AnswerTask], index: Index, generator: Generator, *, concurrency: int = 1
) -> list[Answered | VisarError]:
    """Have a generator answer tasks with the same prompt.

    In place of an answer stands the error of a task whose pages cannot be shown, or which the
    generator fails to answer. ``concurrency`` is the number of tasks under way at a time.
    """
    done: dict[int, Answered | VisarError] = {}
    given: dict[int, tuple[str, list[GivenPage]]] = {}
    for position, task in enumerate(tasks):
        pages = [(task.document, page) for page in task.blank.pages]
        try:
            shown = gather_pages(index, generator, pages, [task.document])
        except VisarError as error:
            done[position] = error
        else:
            given[position] = task.question, shown
    if given:
        prompt = tasks[0].prompt
        written = answer_each(list(given.values()), generator, BUDGETS[prompt], prompt=prompt)
        for position, one in zip(given, written, strict=True):
            blank = tasks[position].blank
            done[position] = (
                one if isinstance(one, VisarError) else _written(blank, one, concurrency)
            )
    return [done[position] for position in range(len(tasks))]


def _written(blank: Answered, answer: GeneratedAnswer, concurrency: int) -> Answered:
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


def quote_answer(task: AnswerTask, searcher: Searcher, searched: Searched) -> Answered:
    """Answer a task with the best passages of its pages."""
    started = time.perf_counter()
    page_ids = [(task.document, page) for page in task.blank.pages]
    weighted = searcher.weigh(searched.query, searched.token_weights, page_ids)
    passages = find_quotes(task.question, weighted).quotes(page_ids)
    pages = [one.page for one in weighted]
    strength = searcher.strength(task.question, searched.match, pages, quoted=bool(passages))
    text = extractive.quote(passages) if strength != "none" else ""
    return replace(task.blank, text=text, raw=text, seconds=time.perf_counter() - started)
