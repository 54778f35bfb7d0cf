"""The second stage of a run: the pages that methods choose, with one encoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from visar.core import select
from visar.encoders.protocol import Encoder
from visar.evaluation.details import details_path, read_inputs, write_details
from visar.evaluation.inputs import digest
from visar.evaluation.methods import ComparedMethod
from visar.evaluation.records import Asked, Retrieved
from visar.evaluation.state import CORRECTED, planned_retrievals
from visar.evaluation.work import Row, Work
from visar.evaluation.workers import Searched, Task, retrieve
from visar.results import EncoderRef

Missing = dict[tuple[str, str], dict[str, str]]
"""Methods whose choice is missing, each with the digest of its inputs, by question."""


class Search:
    """Searches for the questions of a run with one encoder, each at most once.

    ``keep_weights`` is whether quotes follow: they need the weights that a search gave.
    """

    def __init__(
        self, work: Work, encoder: Encoder, methods: list[ComparedMethod], *, keep_weights: bool
    ) -> None:
        self._work = work
        self._encoder = encoder
        self._adaptive = {method.name: method.adaptive for method in methods}
        self._keep_weights = keep_weights
        self._searched: dict[tuple[str, str], Searched] = {}

    def retrieve(self) -> None:
        """Have the methods choose pages where their choice is missing or stale."""
        work = self._work
        with work.writer(Retrieved) as writer:

            def keep(found: list[Retrieved]) -> None:
                found = [replace(one, inputs=work.state.inputs(one) or "") for one in found]
                work.keep(writer, found)
                work.outcome.retrieved += len(found)

            def keep_searched(searched: Searched) -> None:
                keep(searched.retrieved)
                self._keep_searched(searched)

            # The second time, questions with the same inputs as others take over their results.
            for _ in range(2):
                missing = self._missing()
                keep(list(self._taken_over(missing)))
                retrieve(
                    work.index.location,
                    list(self._tasks(missing)),
                    keep_searched,
                    partial(work.listener.step, "retrieval"),
                    alone=work.plan.measure_latency,
                    ray=work.ray,
                )

    def weights(self, rows: list[Row]) -> dict[tuple[str, str], Searched]:
        """Return the searches for some questions, by the digests of question and document."""
        work = self._work
        tasks = [
            task
            for row in sorted(rows, key=lambda row: row.search_order)
            # The pages were chosen in an earlier call, whose weights are gone.
            if search_key(row.asked) not in self._searched
            for task in self._task(row, ())
        ]
        progress = partial(work.listener.step, "retrieval")
        retrieve(work.index.location, tasks, self._keep_searched, progress, ray=work.ray)
        return self._searched

    def write_details(self) -> None:
        """Write the similarity matrix and J(k) of the questions that the plan names."""
        work, name = self._work, self._encoder.name
        for row in work.rows.values():
            asked = row.asked
            if asked.question not in work.plan.details or asked.dataset.endswith(CORRECTED):
                continue
            path = details_path(work.folder, asked, name)
            definitions = work.state.definitions
            inputs = digest(definitions.retrieval(asked, name, "visar"), asked.evidence_pages)
            query = work.encode(self._encoder, row.question)
            if query is not None and read_inputs(path) != inputs:
                searcher = work.index.searcher([work.document(row).id], work.addresses[name])
                selection = select(query, searcher.pages, full_matrix=True)
                write_details(path, asked, name, selection, inputs)

    def _missing(self) -> Missing:
        work, encoder = self._work, self._encoder.name
        missing: Missing = {}
        for setting in planned_retrievals(work.manifest, work.asked):
            question, method = setting[:2], setting[3]
            asked = work.rows[question].asked
            if setting[2] == encoder and not self._is_kept(
                work.state.retrieved.get(setting), asked
            ):
                inputs = work.state.definitions.retrieval(asked, encoder, method)
                missing.setdefault(question, {})[method] = inputs
        return missing

    def _is_kept(self, found: object, asked: Asked) -> bool:
        """Return whether a retrieval is there, deep enough for the budgets, and timed if asked."""
        if not isinstance(found, Retrieved):
            return False
        plan = self._work.plan
        depth = 1 if self._adaptive[found.method] else min(plan.depth, asked.pages)
        return len(found.pages) >= depth and (found.alone or not plan.measure_latency)

    def _taken_over(self, missing: Missing) -> Iterator[Retrieved]:
        """Yield choices that were made from the same inputs for another question."""
        for (dataset, question), methods in missing.items():
            asked = self._work.rows[dataset, question].asked
            for method, inputs in list(methods.items()):
                known = self._work.state.known.get(inputs)
                if isinstance(known, Retrieved) and self._is_kept(known, asked):
                    del methods[method]
                    yield replace(known, dataset=dataset, question=question)

    def _tasks(self, missing: Missing) -> Iterator[Task]:
        given: set[str] = set()
        for key in sorted(missing, key=lambda key: self._work.rows[key].search_order):
            methods = tuple(name for name, inputs in missing[key].items() if inputs not in given)
            given.update(missing[key].values())
            if methods:
                yield from self._task(self._work.rows[key], methods)

    def _task(self, row: Row, methods: tuple[str, ...]) -> Iterator[Task]:
        """Yield the search for a question, if its document and its words can be encoded."""
        work = self._work
        document, reference = work.document(row), EncoderRef.of(self._encoder)
        query = work.encode(self._encoder, row.question) if document.has(reference) else None
        if query is not None:
            invalid = document.count_invalid(self._encoder.name)
            yield Task(row.asked, document.id, reference, query, methods, work.plan.depth, invalid)

    def _keep_searched(self, searched: Searched) -> None:
        if self._keep_weights:
            self._searched[search_key(searched.asked)] = searched


def search_key(asked: Asked) -> tuple[str, str]:
    """Return what a search depends on, beside the encoder."""
    return asked.text_digest, asked.document_digest
