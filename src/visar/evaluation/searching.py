"""Stage two of a run: let methods choose pages, with one encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from visar.core import select
from visar.encoders.encoder import Encoder
from visar.evaluation.details import details_path, read_inputs, write_details
from visar.evaluation.methods import ComparedMethod
from visar.evaluation.records import QuestionRecord, RetrievalRecord
from visar.evaluation.state import CORRECTED, Setting, planned
from visar.evaluation.work import Row, Work
from visar.evaluation.workers import SearchResult, Task, run_tasks
from visar.results import EncoderRef


class Search:
    """The searches for a run's questions with one encoder, each done at most once.

    With ``keep_weights``, search results are kept for quotes, which need the weights.
    """

    def __init__(
        self, work: Work, encoder: Encoder, methods: list[ComparedMethod], *, keep_weights: bool
    ) -> None:
        self._work = work
        self._encoder = encoder
        self._adaptive = {method.name: method.adaptive for method in methods}
        self._keep_weights = keep_weights
        self._results: dict[tuple[str, str], SearchResult] = {}

    def retrieve(self) -> None:
        """Let methods choose pages for all missing or stale retrievals.

        Questions with the same inputs share one result.
        """
        work = self._work
        settings = [
            setting
            for setting in planned(work.manifest, work.asked)["retrieved"]
            if setting[2] == self._encoder.name
            and not self._is_sufficient(work.state.retrieved.get(setting), setting)
        ]
        missing: dict[Setting, list[Setting]] = {}
        methods: dict[Setting, list[str]] = {}
        for group in work.reuse(RetrievalRecord, settings, self._is_sufficient):
            missing[group[0]] = group
            methods.setdefault(group[0][:2], []).append(group[0][-1])

        def keep(result: SearchResult) -> None:
            for chosen in result.retrieved:
                work.keep(chosen, missing[chosen.key])

        rows = [work.rows[key] for key in methods]
        self._run([(row, tuple(methods[row.asked.key])) for row in rows], keep)

    def weights(self, rows: list[Row]) -> dict[tuple[str, str], SearchResult]:
        """Return the search results for questions, by `search_key`."""
        # Search again for pages chosen in an earlier call, whose weights weren't stored.
        self._run([(row, ()) for row in rows if search_key(row.asked) not in self._results])
        return self._results

    def write_details(self) -> None:
        """Write the similarity matrix and J(k) of the questions in the plan's details."""
        work, name = self._work, self._encoder.name
        for row in work.rows.values():
            asked = row.asked
            if asked.question not in work.plan.details or asked.dataset.endswith(CORRECTED):
                continue
            path = details_path(work.folder, asked, name)
            inputs = work.state.definitions.detail(asked, name)
            if read_inputs(path) == inputs:
                continue
            query = work.encode(self._encoder, row.question)
            if query is not None:
                searcher = work.index.searcher([work.document(row).id], work.addresses[name])
                selection = select(query, searcher.pages, full_matrix=True)
                write_details(path, asked, name, selection, inputs)

    def _is_sufficient(self, found: RetrievalRecord | None, setting: Setting) -> bool:
        """Return whether a retrieval has enough pages for the budgets, and is timed if needed."""
        if found is None:
            return False
        plan, asked = self._work.plan, self._work.rows[setting[:2]].asked
        depth = 1 if self._adaptive[found.method] else min(plan.depth, asked.pages)
        return len(found.pages) >= depth and (found.alone or not plan.measure_latency)

    def _run(
        self,
        asked: Iterable[tuple[Row, tuple[str, ...]]],
        keep: Callable[[SearchResult], None] = lambda _: None,
    ) -> None:
        """Run methods on questions, and call ``keep`` with each result."""
        work, done = self._work, 0
        ordered = sorted(asked, key=lambda pair: pair[0].search_order)
        tasks = [task for row, methods in ordered if (task := self._task(row, methods))]

        def receive(result: SearchResult) -> None:
            nonlocal done
            if self._keep_weights:
                self._results[search_key(result.asked)] = result
            keep(result)
            done += 1
            work.step("retrieval", done, len(tasks))

        if tasks:
            work.step("retrieval", 0, len(tasks))
            run_tasks(work.index.location, tasks, receive, ray=work.ray)

    def _task(self, row: Row, methods: tuple[str, ...]) -> Task | None:
        """Return the task for a question; None if its document or words can't be encoded."""
        work = self._work
        document, reference = work.document(row), EncoderRef.of(self._encoder)
        query = work.encode(self._encoder, row.question) if document.has(reference) else None
        if query is None:
            return None
        return Task(
            asked=row.asked,
            document=document.id,
            encoder=reference,
            query=query,
            methods=methods,
            depth=work.plan.depth,
            invalid_pages=len(document.failed_pages(self._encoder.name)),
            # Without methods, there is nothing to time.
            alone=work.plan.measure_latency and bool(methods),
        )


def search_key(asked: QuestionRecord) -> tuple[str, str]:
    """Return the digests of the question and document that a search depends on."""
    return asked.text_digest, asked.document_digest
