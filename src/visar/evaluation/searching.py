"""Stage two of a run: let methods choose pages, with one encoder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from visar.core import select
from visar.encoders.encoder import Encoder
from visar.evaluation.details import details_path, read_inputs, write_details
from visar.evaluation.methods import ComparedMethod
from visar.evaluation.records import QuestionRecord, RetrievalRecord
from visar.evaluation.state import CORRECTED, Setting, planned_retrievals
from visar.evaluation.work import Row, Work
from visar.evaluation.workers import SearchResult, Task, retrieve
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
        missing = self._missing()
        with work.writer(RetrievalRecord) as writer:

            def keep(chosen: RetrievalRecord, inputs: str) -> None:
                found = [
                    replace(chosen, dataset=dataset, question=question, inputs=inputs)
                    for dataset, question, *_ in missing.pop(inputs)
                ]
                work.keep(writer, found)
                work.outcome.retrieved += len(found)

            def keep_result(result: SearchResult) -> None:
                for chosen in result.retrieved:
                    keep(chosen, work.state.inputs(chosen) or "")
                self._keep_result(result)

            for inputs, settings in list(missing.items()):
                known = work.state.known.get(inputs)
                if isinstance(known, RetrievalRecord) and self._is_sufficient(known, settings[0]):
                    keep(known, inputs)
            methods: dict[tuple[str, str], list[str]] = {}
            for (dataset, question, _, method), *_ in missing.values():
                methods.setdefault((dataset, question), []).append(method)
            tasks = [
                task
                for key in sorted(methods, key=lambda key: work.rows[key].search_order)
                for task in self._task(work.rows[key], tuple(methods[key]))
            ]
            retrieve(
                work.index.location,
                tasks,
                keep_result,
                partial(work.listener.step, "retrieval"),
                alone=work.plan.measure_latency,
                ray=work.ray,
            )

    def weights(self, rows: list[Row]) -> dict[tuple[str, str], SearchResult]:
        """Return the search results for questions, by `search_key`."""
        work = self._work
        tasks = [
            task
            for row in sorted(rows, key=lambda row: row.search_order)
            # Search again for pages chosen in an earlier call, whose weights weren't stored.
            if search_key(row.asked) not in self._results
            for task in self._task(row, ())
        ]
        progress = partial(work.listener.step, "retrieval")
        retrieve(work.index.location, tasks, self._keep_result, progress, ray=work.ray)
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

    def _missing(self) -> dict[str, list[Setting]]:
        """Return the settings of missing retrievals, by the digest of their inputs."""
        work, missing = self._work, defaultdict(list)
        for setting in planned_retrievals(work.manifest, work.asked):
            dataset, question, encoder, method = setting
            if encoder == self._encoder.name and not self._is_sufficient(
                work.state.retrieved.get(setting), setting
            ):
                asked = work.rows[dataset, question].asked
                inputs = work.state.definitions.retrieval(asked, encoder, method)
                missing[inputs].append(setting)
        return missing

    def _is_sufficient(self, found: RetrievalRecord | None, setting: Setting) -> bool:
        """Return whether a retrieval has enough pages for the budgets, and is timed if needed."""
        if found is None:
            return False
        plan, asked = self._work.plan, self._work.rows[setting[:2]].asked
        depth = 1 if self._adaptive[found.method] else min(plan.depth, asked.pages)
        return len(found.pages) >= depth and (found.alone or not plan.measure_latency)

    def _task(self, row: Row, methods: tuple[str, ...]) -> Iterator[Task]:
        """Yield the task for a question, if its document and words can be encoded."""
        work = self._work
        document, reference = work.document(row), EncoderRef.of(self._encoder)
        query = work.encode(self._encoder, row.question) if document.has(reference) else None
        if query is not None:
            invalid = len(document.failed_pages(self._encoder.name))
            yield Task(row.asked, document.id, reference, query, methods, work.plan.depth, invalid)

    def _keep_result(self, result: SearchResult) -> None:
        if self._keep_weights:
            self._results[search_key(result.asked)] = result


def search_key(asked: QuestionRecord) -> tuple[str, str]:
    """Return the digests of the question and document that a search depends on."""
    return asked.text_digest, asked.document_digest
