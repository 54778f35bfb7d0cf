"""Tables of answers: 3, 4, S2 to S7, S10 (b), boxes and judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import pandas as pd

from visar.evaluation.authors import paper_encoder, paper_generator
from visar.evaluation.frames import ANSWER_KEY, Results
from visar.evaluation.judge.agreement import count_agreement
from visar.evaluation.report.columns import ACCURACY, INTERVALS, SIGNIFICANT, Column
from visar.evaluation.report.markup import Cell, Row, Table, mark_best
from visar.evaluation.report.methods import (
    LATE,
    is_adaptive,
    is_compared,
    is_main,
    label,
    name_generator,
    where,
)
from visar.evaluation.report.notes import Counts, question_notes
from visar.evaluation.report.paper import Comparison, the_paper
from visar.evaluation.statistics import bootstrap, mcnemar
from visar.generation import extractive
from visar.generation.registry import PUBLISHED

_SETTING = ["dataset", "generator", "prompt", "judge"]
_OBJECTIVES = ("visar", "visar top-k", "visar largest-gap", "visar score-cluster")
_MCNEMAR = (
    "p: McNemar's exact test against fixed top-k late interaction with the same encoder, generator "
    "and budget, on the questions that both answered"
)
_M3DOCRAG = "Late-Interaction (M3DocRAG)"
# The paper's tables that compare ViSAR with fixed top-k, by generator.
_MATCH_TABLES = {
    "qwen2.5-vl": ("4", "S3"),
    "qwen3-vl": ("S4",),
    "internvl3.5": ("S5",),
    "idefics3": ("S6",),
    "llava-onevision": ("S7",),
}


@dataclass(frozen=True, eq=False)
class Setting:
    """A judge's verdicts on a generator's answers to the questions of a data set."""

    results: Results
    dataset: str
    generator: str
    prompt: str
    judge: str
    verdicts: pd.DataFrame
    """The verdicts, with columns of the answer and its retrieval: sent, the number of pages, and
    input_tokens and paper_sparsity (NaN if unknown)."""

    @cached_property
    def paper(self) -> Comparison:
        key = (self.dataset, self.generator, self.prompt, self.judge)
        return Comparison.of_answers(self.results, *key)

    @cached_property
    def groups(self) -> dict[tuple[Any, ...], pd.DataFrame]:
        """The verdicts by encoder, method and budget."""
        return dict(iter(self.verdicts.groupby(["encoder", "method", "max_k"], sort=False)))

    @cached_property
    def budgets(self) -> list[int]:
        return sorted(map(int, self.verdicts.max_k.unique()))

    @property
    def model(self) -> str:
        """The name of the generator with its prompt."""
        return name_generator(self.generator, self.prompt)

    @property
    def name(self) -> str:
        return f"{self.dataset}, {self.model}, judged by {self.judge}"

    @property
    def key(self) -> str:
        prompt = "" if self.prompt == "default" else f"{self.prompt} prompt"
        return f"{self.dataset} {self.generator} {prompt} {self.judge}"

    def table(self, key: str, title: str, rows: Sequence[Row], notes: Iterable[str]) -> Table:
        """Create a table of the setting."""
        return Table.of(f"{key} {self.key}", f"{title}: {self.name}", rows, notes)

    def notes(self, counts: Counts) -> list[str]:
        """Return notes on the questions in rows, on cut prompts, and on the paper's numbers."""
        frame = self.results.answers
        frame = frame[(frame.dataset == self.dataset) & (frame.generator == self.generator)]
        frame = frame[frame.prompt == self.prompt]
        cut = int(frame.note.notna().sum())
        verb = "was" if cut == 1 else "were"
        return [
            *question_notes(self.results, self.dataset, counts, has_answers=True),
            *([f"{cut} of {len(frame)} prompts {verb} cut to the model's context."] if cut else []),
            *self.paper.notes(counts),
        ]

    def of(self, encoder: str, method: str, max_k: int) -> pd.DataFrame:
        """Return the verdicts for an encoder, method and budget."""
        return self.groups.get((encoder, method, max_k), self.verdicts[:0])

    def accuracy(self, group: pd.DataFrame, table: str | None = None) -> Cell:
        """Return the accuracy of verdicts for an encoder, method and budget."""
        if group.empty:
            return Cell(None)
        encoder, method, max_k = group.iloc[0][["encoder", "method", "max_k"]]
        paper = self.paper.value("accuracy", encoder, method, int(max_k), table)
        return ACCURACY.cell(group, paper=paper)

    def by_budget(
        self, encoder: str, method: str, name: str, counts: dict[Any, int], budgets: Iterable[int]
    ) -> Row:
        """Return the number of questions, accuracy and p for each budget, and update counts."""
        row: Row = {}
        for k in budgets:
            group, fixed = self.of(encoder, method, k), self.of(encoder, LATE, k)
            counts[f"{name}, Max-{k}", encoder] = len(group)
            one, other = ACCURACY.pair(group, fixed)
            is_tested = method != LATE and len(one) > 0
            row[f"n, Max-{k}"] = self.paper.count(len(group), encoder, method)
            row[f"Max-{k} %"] = self.accuracy(group)
            row[f"p, Max-{k}"] = Cell(mcnemar(one, other), 4) if is_tested else None
        return row


def settings_of(results: Results) -> list[Setting]:
    """Return the settings of a run with judged answers."""
    answers = results.answers[[*ANSWER_KEY, "input_tokens"]]
    answers = answers.assign(sent=results.answers.pages.map(len))
    chosen = results.retrievals[["dataset", "encoder", "method", "question", "paper_sparsity"]]
    verdicts = results.verdicts.merge(answers, "left", on=ANSWER_KEY)
    verdicts = verdicts.merge(chosen, "left", on=["dataset", "encoder", "method", "question"])
    return [
        Setting(results, dataset, generator, prompt, judge, frame)
        for (dataset, generator, prompt, judge), frame in verdicts.groupby(_SETTING, sort=False)
    ]


def by_generator(settings: Iterable[Setting]) -> dict[tuple[str, str], list[Setting]]:
    """Return the settings by generator with prompt and judge, for a figure each."""
    found: dict[tuple[str, str], list[Setting]] = {}
    for setting in settings:
        found.setdefault((setting.model, setting.judge), []).append(setting)
    return found


def accuracy_tables(settings: Sequence[Setting]) -> list[Table]:
    """Return the paper's Tables 3 and S2, and the accuracy of all encoders and methods."""
    in_paper = {(row.encoder, row.method) for row in the_paper().rows if row.table in ("3", "S2")}
    tables = []
    for setting in settings:
        if any(_joins(setting, other) for other in settings):
            continue
        counts: dict[tuple[str, str], int] = {}
        rows: list[Row] = []
        of_paper: list[Row] = []
        for one in [*(other for other in settings if _joins(other, setting)), setting]:
            main = where(one.verdicts, is_main)
            for encoder, method in main[["encoder", "method"]].drop_duplicates().itertuples(False):
                is_m3docrag = method == LATE and paper_encoder(encoder) == "colpali"
                row: Row = {
                    "Encoder": encoder,
                    "Method": _M3DOCRAG if is_m3docrag else label(method),
                    "k": "adaptive" if is_adaptive(method) else "fixed",
                    "Generator": one.generator,
                }
                name = f"{label(method)}, {one.generator}"
                rows.append(row | one.by_budget(encoder, method, name, counts, setting.budgets))
                if (paper_encoder(encoder), label(method)) in in_paper:
                    of_paper.append(dict(rows[-1]))
        budgets = [f"Max-{k} %" for k in setting.budgets]
        notes = [
            f"{INTERVALS} Bold: the highest in a column. {_MCNEMAR}.",
            *setting.notes(counts),
        ]
        if of_paper and paper_generator(setting.generator) == "qwen2.5-vl":
            mark_best(of_paper, budgets)
            more = []
            if any(row["Method"] == _M3DOCRAG for row in of_paper):
                more.append(
                    "M3DocRAG is late interaction over ColPali's vectors with fixed top-k: the "
                    "paper's Tables 3 and 4 have the same numbers for both."
                )
            title = "Tables 3 and S2. Accuracy"
            tables.append(setting.table("table-3-s2", title, of_paper, notes + more))
        if rows:
            mark_best(rows, budgets)
            title = "Accuracy of every encoder and method"
            tables.append(setting.table("accuracy", title, rows, notes))
    return tables


def _reads_text(generator: str) -> bool:
    """Return whether a generator reads the words of pages instead of images."""
    published = PUBLISHED.get(paper_generator(generator))
    is_text_model = published is not None and published.reads == "text"
    return is_text_model or generator.startswith("openai-text:")


def _joins(text: Setting, visual: Setting) -> bool:
    """Return whether a text model's rows belong in a visual model's table, as ColBERTv2's do."""
    same = (text.dataset, text.prompt, text.judge) == (visual.dataset, visual.prompt, visual.judge)
    is_visual = visual.generator != extractive.NAME and not _reads_text(visual.generator)
    return same and _reads_text(text.generator) and is_visual


def match_tables(settings: Sequence[Setting]) -> list[Table]:
    """Return Tables 4 and S3 to S7, which compare ViSAR with fixed top-k, and their summary."""
    matches = pd.DataFrame([match for setting in settings for match in _matches(setting)])
    if matches.empty:
        return []
    visar = matches[matches.method == "visar"]
    groups = dict(iter(visar.groupby(["generator", "prompt", "judge"], sort=False)))
    numbered = [
        (number, key)
        for key in groups
        for number in _MATCH_TABLES.get(paper_generator(key[0]), ("other",))
    ]
    tables = []
    # Sorts "4" before "S3" … "S7", and these before "other".
    for number, (generator, prompt, judge) in sorted(numbered):
        group = groups[generator, prompt, judge]
        who = f"{name_generator(generator, prompt)}, judged by {judge}"
        start = "" if number == "other" else f"Table {number}. "
        tables.append(
            Table.of(
                f"{'match' if number == 'other' else f'table-{number}'} {who}",
                f"{start}ViSAR against fixed top-k: {who}",
                [_match_row(match, number) for match in group.itertuples()],
                _match_notes(group),
            )
        )
    return [*tables, *_outcome_tables(matches)]


def _matches(setting: Setting) -> Iterator[dict[str, Any]]:
    """Yield comparisons with fixed top-k, on the questions that both answered."""
    for (encoder, method, max_k), group in setting.groups.items():
        if not is_compared(method):
            continue
        late = setting.of(encoder, LATE, max_k)
        own, fixed = (
            one[one.question.isin(other.question)] for one, other in ((group, late), (late, group))
        )
        if own.empty:
            continue
        p = mcnemar(own.correct, fixed.correct)
        is_better = own.correct.sum() > fixed.correct.sum()
        outcome = "equal" if p >= SIGNIFICANT else "better" if is_better else "worse"
        names = own.iloc[0][[*_SETTING, "encoder", "method", "max_k"]].to_dict()
        yield names | {"setting": setting, "own": own, "fixed": fixed, "p": p, "outcome": outcome}


def _match_row(match: Any, table: str) -> Row:
    setting, own, fixed = match.setting, match.own, match.fixed
    gain = own.accuracy.to_numpy() - fixed.accuracy.to_numpy()
    is_significant = match.p < SIGNIFICANT
    return {
        "Data set": match.dataset,
        "Encoder": match.encoder,
        "Max-k": match.max_k,
        "Questions": setting.paper.count(len(own), match.encoder, match.method),
        "Fixed top-k %": setting.accuracy(fixed, table),
        "ViSAR %": setting.accuracy(own, table),
        "Difference": Cell.of(bootstrap(gain), 2, marked=is_significant),
        "Only ViSAR correct": int((gain > 0).sum()),
        "Only fixed correct": int((gain < 0).sum()),
        "p": Cell(match.p, 4, marked=is_significant),
        "ViSAR is": match.outcome,
    }


def _match_notes(matches: pd.DataFrame) -> list[str]:
    notes = [
        f"{INTERVALS} {_MCNEMAR}; bold if p < {SIGNIFICANT}. The interval of the difference uses "
        "the same samples for both."
    ]
    for dataset, group in matches.groupby("dataset", sort=False):
        setting = group.setting.iloc[0]
        counts = {(f"Max-{one.max_k}", one.encoder): len(one.own) for one in group.itertuples()}
        notes += question_notes(setting.results, dataset, counts, has_answers=True)
        notes += [f"{dataset}: {note}" for note in setting.paper.notes(counts)]
    return notes


def _outcome_tables(matches: pd.DataFrame) -> list[Table]:
    """Return how often each method is better than, equal to or worse than fixed top-k."""
    paper = the_paper().outcomes
    tables = []
    for (prompt, judge), of_judge in matches.groupby(["prompt", "judge"], sort=False):
        rows: list[Row] = []
        for method, group in of_judge.groupby("method", sort=False):
            in_paper = [
                one.setting.paper.value("accuracy", one.encoder, method, one.max_k) is not None
                for one in group.itertuples()
            ]
            # The paper's numbers include all its settings.
            is_paper = method == "visar" and all(in_paper) and len(group) == sum(paper.values())
            row: Row = {"Method": label(method), "Settings": len(group)}
            for name, number in paper.items():
                count = int((group.outcome == name).sum())
                row[name.capitalize()] = Cell(count, paper=number if is_paper else None)
            rows.append(row)
        suffix = f"{'' if prompt == 'default' else f'{prompt} prompt, '}judged by {judge}"
        note = (
            "Settings are combinations of data set, encoder, generator and budget; the paper's are "
            f"those of its Tables 4 and S3 to S7. “Better” and “worse” mean p < {SIGNIFICANT} in "
            "McNemar's exact test, “equal” means no significant difference. About one in twenty "
            "settings is significant by chance."
        )
        title = f"Better, equal or worse than fixed top-k: {suffix}"
        tables.append(Table.of(f"outcomes {suffix}", title, rows, [note]))
    return tables


def box_tables(results: Results) -> list[Table]:
    """Return a table of the boxes of quotes, for data sets in which annotators marked boxes."""
    known = where(results.answers.dropna(subset="box_f1"), is_main)
    known = known.assign(box_f1=100 * known.box_f1.astype(float))
    column = Column("F1 of boxes %", 2, ("box_f1",))
    names = ["dataset", "encoder", "method", "max_k"]
    rows: list[Row] = [
        {
            "Data set": dataset,
            "Encoder": encoder,
            "Method": label(method),
            "Max-k": int(max_k),
            "Questions": len(group),
            column.heading: column.cell(group),
        }
        for (dataset, encoder, method, max_k), group in known.groupby(names, sort=False)
    ]
    note = (
        f"{INTERVALS} F1 of the areas of the quoted and the marked boxes, with the best matching "
        "annotator; 0 if nothing was quoted. Over questions with marked boxes."
    )
    title = "Boxes. Quotes compared with what annotators marked"
    return [Table.of("boxes", title, rows, [note])] if rows else []


def agreement_tables(results: Results) -> list[Table]:
    """Return a table of the agreement of judges on the same answers."""
    rows: list[Row] = []
    names = ["dataset", "generator", "prompt"]
    for (dataset, generator, prompt), frame in results.verdicts.groupby(names, sort=False):
        by_judge = frame.pivot(index=ANSWER_KEY, columns="judge", values="correct")
        for first, second in combinations(by_judge.columns, 2):
            both = by_judge[[first, second]].dropna().astype(bool)
            if both.empty:
                continue
            found = count_agreement(first, second, both.itertuples(index=False, name=None))
            rows.append(
                {
                    "Data set": dataset,
                    "Generator": name_generator(generator, prompt),
                    "Judges": f"{first}; {second}",
                    "Answers": found.cases,
                    "Both correct": found.both_correct,
                    "Only the first": found.only_first,
                    "Only the second": found.only_second,
                    "Both incorrect": found.both_incorrect,
                    "Agreement %": Cell(100 * found.share, 2),
                    "Cohen's κ": Cell(found.kappa, 3),
                }
            )
    note = "Over all answers that both judged, with all encoders, methods and budgets."
    return [Table.of("agreement", "Agreement of judges", rows, [note])] if rows else []


def objective_tables(settings: Sequence[Setting]) -> list[Table]:
    """Return Table S10 (b): other cuts of ViSAR's ranking."""
    column = Column("Mean k*", 1, ("k",))
    tables = []
    for setting in settings:
        frame = setting.verdicts[setting.verdicts.method.isin(_OBJECTIVES)]
        if not set(frame.method) - {"visar"}:
            continue
        counts: dict[tuple[str, str], int] = {}
        rows: list[Row] = []
        retrievals = setting.results.retrievals
        retrievals = retrievals[retrievals.dataset == setting.dataset]
        for encoder, method in frame[["encoder", "method"]].drop_duplicates().itertuples(False):
            row: Row = {"Encoder": encoder, "Variant": label(method), "Mean k*": None}
            if is_adaptive(method):
                chosen = (retrievals.encoder == encoder) & (retrievals.method == method)
                paper_k = setting.paper.value("mean_k", encoder, method)
                row["Mean k*"] = column.cell(retrievals[chosen], paper=paper_k)
            row |= setting.by_budget(encoder, method, label(method), counts, setting.budgets)
            rows.append({name: cell for name, cell in row.items() if not name.startswith("p, ")})
        mark_best(rows, [f"Max-{k} %" for k in setting.budgets], "Encoder")
        notes = [
            f"{INTERVALS} Bold: the highest per encoder. Mean k* is over all questions, before any "
            "budget.",
            *setting.notes(counts),
        ]
        title = "Table S10 (b). Other cuts of ViSAR's ranking"
        tables.append(setting.table("table-s10-b", title, rows, notes))
    return tables
