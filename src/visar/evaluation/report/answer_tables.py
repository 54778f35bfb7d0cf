"""Tables of judged answers: 3, 4, S2 to S7, S9, the second half of S10, budgets and judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from visar.evaluation.authors import paper_encoder, paper_generator
from visar.evaluation.frames import ANSWER_KEY, Results
from visar.evaluation.judge.agreement import count_agreement
from visar.evaluation.methods import PAPER_INACTIVE
from visar.evaluation.report.markup import Cell, Row, Table, make_key, mark_best
from visar.evaluation.report.methods import (
    LATE,
    is_adaptive,
    is_compared,
    is_main,
    is_timed,
    label,
    name_generator,
    where,
)
from visar.evaluation.report.notes import INTERVALS, SIGNIFICANT, answer_notes
from visar.evaluation.report.paper import Comparison, the_paper
from visar.evaluation.report.retrieval_tables import on_shared_questions
from visar.evaluation.statistics import bootstrap, mcnemar, summarize
from visar.generation import extractive
from visar.generation.registry import PUBLISHED

_OBJECTIVES = ("visar", "visar top-k", "visar largest-gap", "visar score-cluster")
_MCNEMAR = (
    "p is that of McNemar's exact test against fixed top-k late interaction with the same encoder, "
    "generator and budget, on the questions both answered"
)
_M3DOCRAG = "Late-Interaction (M3DocRAG)"
# The paper's tables of ViSAR against fixed top-k, by generator.
_MATCH_TABLES = {
    "qwen2.5-vl": ("4", "S3"),
    "qwen3-vl": ("S4",),
    "internvl3.5": ("S5",),
    "idefics3": ("S6",),
    "llava-onevision": ("S7",),
}


@dataclass(frozen=True, eq=False)
class Setting:
    """The verdicts of a judge on a generator's answers to the questions of a data set."""

    dataset: str
    generator: str
    prompt: str
    judge: str
    verdicts: pd.DataFrame
    paper: Comparison

    @property
    def budgets(self) -> list[int]:
        return sorted(map(int, self.verdicts.max_k.unique()))

    @property
    def name(self) -> str:
        generator = name_generator(self.generator, self.prompt)
        return f"{self.dataset}, {generator}, judged by {self.judge}"

    @property
    def key(self) -> str:
        prompt = "" if self.prompt == "default" else f"{self.prompt} prompt"
        return make_key(self.dataset, self.generator, prompt, self.judge)

    def of(self, encoder: str, method: str, max_k: int) -> pd.DataFrame:
        """Return the verdicts of one encoder, method and budget."""
        frame = self.verdicts
        return frame[(frame.encoder == encoder) & (frame.method == method) & (frame.max_k == max_k)]

    def accuracy(self, group: pd.DataFrame, table: str | None = None) -> Cell:
        """Return the share of right answers of one encoder, method and budget."""
        if group.empty:
            return Cell(None)
        found = bootstrap(100 * group.correct.astype(float))
        encoder, method, max_k = group.iloc[0][["encoder", "method", "max_k"]]
        paper = self.paper.value("accuracy", encoder, method, int(max_k), table)
        return Cell(found.mean, 2, interval=(found.low, found.high), paper=paper)


def settings_of(results: Results) -> list[Setting]:
    """Return the settings of a run whose answers were judged."""
    names = ["dataset", "generator", "prompt", "judge"]
    return [
        Setting(dataset, generator, prompt, judge, frame, Comparison.of_answers(results, *key))
        for key, frame in results.verdicts.groupby(names, sort=False)
        for dataset, generator, prompt, judge in [key]
    ]


def accuracy_tables(results: Results) -> list[Table]:
    """Accuracy of every encoder and method, and the rows of it that are the paper's 3 and S2."""
    settings = settings_of(results)
    in_paper = {(row.encoder, row.method) for row in the_paper().rows if row.table in ("3", "S2")}
    tables = []
    for setting in settings:
        if any(_joins(setting, other) for other in settings):
            continue
        budgets = [f"Max-{k} %" for k in setting.budgets]
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
                for k in setting.budgets:
                    group, fixed = one.of(encoder, method, k), one.of(encoder, LATE, k)
                    counts[f"{label(method)}, {one.generator}, Max-{k}", encoder] = len(group)
                    row[f"n, Max-{k}"] = one.paper.count(len(group), encoder, method)
                    row[f"Max-{k} %"] = one.accuracy(group)
                    row[f"p, Max-{k}"] = None if method == LATE else Cell(_p_value(group, fixed), 4)
                rows.append(row)
                if (paper_encoder(encoder), label(method)) in in_paper:
                    of_paper.append(dict(row))
        notes = [
            f"{INTERVALS} Bold: the highest of a column. {_MCNEMAR}.",
            *answer_notes(results, setting.dataset, counts),
            *setting.paper.notes(counts),
        ]
        for key, title, shown in (
            ("table-3-s2", "Tables 3 and S2. Accuracy", of_paper),
            ("accuracy", "Accuracy of every encoder and method", rows),
        ):
            is_paper = shown is of_paper
            if not shown or (is_paper and paper_generator(setting.generator) != "qwen2.5-vl"):
                continue
            mark_best(shown, budgets)
            more = []
            if is_paper and any(row["Method"] == _M3DOCRAG for row in shown):
                more.append(
                    "M3DocRAG is late interaction over ColPali's vectors with fixed top-k: the "
                    "paper's Tables 3 and 4 have the same numbers for both."
                )
            where_from = make_key(key, setting.key)
            tables.append(Table.of(where_from, f"{title}: {setting.name}", shown, notes + more))
    return tables


def _reads_text(generator: str) -> bool:
    """Whether a language model is given the words of pages and not their images."""
    published = PUBLISHED.get(paper_generator(generator))
    is_text_model = published is not None and published.reads == "text"
    return is_text_model or generator.startswith("openai-text:")


def _joins(text: Setting, visual: Setting) -> bool:
    """Whether rows of a text model stand in the table of one that sees pages, as ColBERTv2's do."""
    same = (text.dataset, text.prompt, text.judge) == (visual.dataset, visual.prompt, visual.judge)
    is_visual = visual.generator != extractive.NAME and not _reads_text(visual.generator)
    return same and _reads_text(text.generator) and is_visual


def _p_value(group: pd.DataFrame, fixed: pd.DataFrame) -> float | None:
    one, other = on_shared_questions(group, fixed, ["correct"])
    return None if one.empty else mcnemar(one.correct, other.correct)


@dataclass(frozen=True, slots=True)
class _Match:
    """A method against fixed top-k on the questions that both answered."""

    setting: Setting
    own: pd.DataFrame
    fixed: pd.DataFrame
    p_value: float

    @property
    def outcome(self) -> str:
        """Whether it is "better" or "worse" by the test, otherwise "equal"."""
        if self.p_value >= SIGNIFICANT:
            return "equal"
        return "better" if self.own.correct.sum() > self.fixed.correct.sum() else "worse"


def _matches(setting: Setting) -> Iterator[_Match]:
    compared = where(setting.verdicts, is_compared)
    for (encoder, _, k), group in compared.groupby(["encoder", "method", "max_k"], sort=False):
        late = setting.of(encoder, LATE, k)
        shared = sorted({*group.question} & {*late.question})
        if shared:
            own, fixed = (of[of.question.isin(shared)] for of in (group, late))
            yield _Match(setting, own, fixed, mcnemar(own.correct, fixed.correct))


def match_tables(results: Results) -> list[Table]:
    """Tables 4 and S3 to S7: ViSAR against fixed top-k, and how often it is better or worse."""
    matches = [match for setting in settings_of(results) for match in _matches(setting)]
    tables = []
    groups: dict[tuple[str, str, str], list[_Match]] = {}
    for match in matches:
        if match.own.method.iloc[0] == "visar":
            key = match.setting.generator, match.setting.prompt, match.setting.judge
            groups.setdefault(key, []).append(match)
    numbered = [
        (number, key)
        for key in groups
        for number in _MATCH_TABLES.get(paper_generator(key[0]), ("other",))
    ]
    # "4" comes before "S3" … "S7", and these before "other".
    for number, (generator, prompt, judge) in sorted(numbered):
        group = groups[generator, prompt, judge]
        who = f"{name_generator(generator, prompt)}, judged by {judge}"
        start = "" if number == "other" else f"Table {number}. "
        tables.append(
            Table.of(
                make_key("match" if number == "other" else f"table-{number}", who),
                f"{start}ViSAR against fixed top-k: {who}",
                [_match_row(match, number) for match in group],
                _match_notes(results, group),
            )
        )
    return [*tables, *_outcome_tables(matches)]


def _match_row(match: _Match, table: str) -> Row:
    first = match.own.iloc[0]
    gain = match.own.correct.to_numpy(float) - match.fixed.correct.to_numpy(float)
    difference = bootstrap(100 * gain)
    is_significant = match.p_value < SIGNIFICANT
    return {
        "Data set": match.setting.dataset,
        "Encoder": first.encoder,
        "Max-k": int(first.max_k),
        "Questions": match.setting.paper.count(len(gain), first.encoder, first.method),
        "Fixed top-k %": match.setting.accuracy(match.fixed, table),
        "ViSAR %": match.setting.accuracy(match.own, table),
        "Difference": Cell(
            difference.mean,
            2,
            interval=(difference.low, difference.high),
            marked=is_significant,
        ),
        "Only ViSAR right": int((gain > 0).sum()),
        "Only fixed right": int((gain < 0).sum()),
        "p": Cell(match.p_value, 4, marked=is_significant),
        "ViSAR is": match.outcome,
    }


def _match_notes(results: Results, matches: list[_Match]) -> list[str]:
    notes = [
        f"{INTERVALS} {_MCNEMAR}; bold where p < {SIGNIFICANT}. The interval of the difference "
        "draws the same questions for both."
    ]
    for setting in dict.fromkeys(match.setting for match in matches):
        counts = {
            (f"Max-{match.own.max_k.iloc[0]}", match.own.encoder.iloc[0]): len(match.own)
            for match in matches
            if match.setting is setting
        }
        notes += answer_notes(results, setting.dataset, counts)
        notes += [f"{setting.dataset}: {note}" for note in setting.paper.notes(counts)]
    return notes


def _outcome_tables(matches: list[_Match]) -> list[Table]:
    """How often each method is better, equal or worse than fixed top-k."""
    frame = pd.DataFrame(
        [
            (
                match.setting.prompt,
                match.setting.judge,
                match.own.method.iloc[0],
                match.outcome,
                match.setting.accuracy(match.own).paper is not None,
            )
            for match in matches
        ],
        columns=["prompt", "judge", "method", "outcome", "in_paper"],
    )
    paper = the_paper().outcomes
    tables = []
    for (prompt, judge), of_judge in frame.groupby(["prompt", "judge"], sort=False):
        rows: list[Row] = []
        for method, group in of_judge.groupby("method", sort=False):
            # The paper's numbers are of all its settings.
            is_paper = method == "visar" and group.in_paper.sum() == len(group) == sum(
                paper.values()
            )
            row: Row = {"Method": label(method), "Settings": len(group)}
            for name, number in paper.items():
                count = int((group.outcome == name).sum())
                row[name.capitalize()] = Cell(count, paper=number if is_paper else None)
            rows.append(row)
        suffix = f"{'' if prompt == 'default' else f'{prompt} prompt, '}judged by {judge}"
        note = (
            "Settings are those of data set, encoder, generator and budget. Better and worse: "
            f"McNemar's exact test has p < {SIGNIFICANT}; “equal” means that these questions do "
            "not tell. With many settings, one in twenty would be told apart by chance alone."
        )
        title = f"Tables 4 and S3–S7. Better, equal or worse than fixed top-k: {suffix}"
        tables.append(Table.of(make_key("outcomes", suffix), title, rows, [note]))
    return tables


def budget_points(results: Results, setting: Setting) -> pd.DataFrame:
    """Return pages, tokens and accuracy of every encoder, method and budget of a setting.

    Oracle, which knows the evidence, is not among them.
    """
    answers = results.answers.assign(sent=results.answers.pages.map(len))
    both = where(setting.verdicts, is_timed).merge(
        answers[[*ANSWER_KEY, "sent", "input_tokens"]], on=ANSWER_KEY
    )
    both["input_tokens"] = both.input_tokens.astype(float)
    return both.groupby(["encoder", "method", "max_k"], sort=False, as_index=False).agg(
        questions=("question", "size"),
        pages=("sent", "mean"),
        tokens=("input_tokens", "mean"),
        accuracy=("correct", lambda correct: 100 * correct.mean()),
    )


def budget_tables(results: Results) -> list[Table]:
    """Accuracy against the pages and tokens sent: fixed and adaptive k at the same budget."""
    tables = []
    for setting in settings_of(results):
        points = budget_points(results, setting)
        rows: list[Row] = []
        for point in points.itertuples():
            fixed = points[(points.encoder == point.encoder) & (points.method == LATE)]
            fixed = fixed.sort_values("pages")
            group = setting.of(point.encoder, point.method, point.max_k)
            accuracy = setting.accuracy(group)
            same = None
            if is_adaptive(point.method) and fixed.pages.min() <= point.pages <= fixed.pages.max():
                same = float(np.interp(point.pages, fixed.pages, fixed.accuracy))
            rows.append(
                {
                    "Encoder": point.encoder,
                    "Method": label(point.method),
                    "Max-k": int(point.max_k),
                    "Questions": int(point.questions),
                    "Pages sent": Cell(point.pages, 2),
                    "Tokens sent": Cell(None if pd.isna(point.tokens) else point.tokens, 0),
                    "Accuracy %": Cell(accuracy.value, 2, interval=accuracy.interval),
                    "Fixed k, as many pages %": Cell(same, 2),
                    "Difference": Cell(None if same is None else point.accuracy - same, 2),
                }
            )
        if rows:
            notes = [
                f"Means over the judged questions. {INTERVALS} Tokens as the generator counts its "
                "input, if it does. “Fixed k, as many pages”: the accuracy of fixed top-k with "
                "the same mean number of pages, interpolated between the budgets of the run "
                "(--max-k 1 … 10 for a whole curve)."
            ]
            title = f"Budget. Accuracy against pages sent: {setting.name}"
            tables.append(Table.of(make_key("budget", setting.key), title, rows, notes))
    return tables


def agreement_tables(results: Results) -> list[Table]:
    """Where several judges have judged the same answers: how far they agree."""
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
    note = "Over all answers that both have judged, of every encoder, method and budget."
    return [Table.of("agreement", "Agreement of the judges", rows, [note])] if rows else []


def objective_tables(results: Results) -> list[Table]:
    """Table S10 (b): other ways to cut ViSAR's ranking."""
    tables = []
    for setting in settings_of(results):
        frame = setting.verdicts[setting.verdicts.method.isin(_OBJECTIVES)]
        if not set(frame.method) - {"visar"}:
            continue
        counts: dict[tuple[str, str], int] = {}
        rows: list[Row] = []
        retrievals = results.retrievals[results.retrievals.dataset == setting.dataset]
        for encoder, method in frame[["encoder", "method"]].drop_duplicates().itertuples(False):
            row: Row = {"Encoder": encoder, "Variant": label(method), "Mean k*": None}
            chosen = (retrievals.encoder == encoder) & (retrievals.method == method)
            ks = retrievals.k[chosen]
            if len(ks) and is_adaptive(method):
                mean = bootstrap(ks)
                beside = setting.paper.value("mean_k", encoder, method)
                row["Mean k*"] = Cell(mean.mean, 1, interval=(mean.low, mean.high), paper=beside)
            for k in setting.budgets:
                group = setting.of(encoder, method, k)
                counts[f"{label(method)}, Max-{k}", encoder] = len(group)
                row[f"n, Max-{k}"] = setting.paper.count(len(group), encoder, method)
                row[f"Max-{k} %"] = setting.accuracy(group)
            rows.append(row)
        mark_best(rows, [f"Max-{k} %" for k in setting.budgets], "Encoder")
        notes = [
            f"{INTERVALS} Bold: the highest of an encoder. Mean k* is that of all questions, "
            "before any budget.",
            *answer_notes(results, setting.dataset, counts),
            *setting.paper.notes(counts),
        ]
        title = f"Table S10 (b). Other cuts of ViSAR's ranking: {setting.name}"
        tables.append(Table.of(make_key("table-s10-b", setting.key), title, rows, notes))
    return tables


def sparsity_points(results: Results, setting: Setting) -> pd.DataFrame:
    """Return sparsity in per cent and verdict of ViSAR's answers, by encoder and budget."""
    name = "paper_sparsity" if results.has_paper_sparsity else "sparsity"
    visar = results.retrievals[results.retrievals.method == "visar"]
    key = ["dataset", "encoder", "method", "question"]
    both = setting.verdicts.merge(visar[[*key, name]], on=key)
    both["sparsity"] = 100 * both[name].astype(float)
    return both.dropna(subset="sparsity")[["encoder", "max_k", "question", "sparsity", "correct"]]


def define_sparsity(results: Results) -> str:
    """Say which pages count as inactive."""
    inactive = f"pages whose s_p, rescaled to [0, 1], is at most {PAPER_INACTIVE}"
    if results.has_paper_sparsity:
        return f"Sparsity is the share of {inactive}, as in the paper."
    return (
        "Sparsity is the share of pages without any weight: the records were written before the "
        f"paper's, the share of {inactive}, was kept."
    )


def sparsity_tables(results: Results) -> list[Table]:
    """Table S9: how sparse the similarity matrix is where the answer is right, and where wrong."""
    tables = []
    for setting in settings_of(results):
        points = sparsity_points(results, setting)
        counts: dict[tuple[str, str], int] = {}
        rows: list[Row] = []
        for encoder, of_encoder in points.groupby("encoder"):
            for kind, verdicts in (("Correct", [True]), ("Wrong", [False]), ("All", [True, False])):
                row: Row = {"Encoder": encoder, "Answers": kind}
                for k in setting.budgets:
                    of_budget = of_encoder[of_encoder.max_k == k]
                    values = of_budget.sparsity[of_budget.correct.isin(verdicts)]
                    counts[f"Max-{k}", encoder] = len(of_budget)
                    row[f"n, Max-{k}"] = len(values)
                    row[f"Sparsity, Max-{k} %"] = None
                    if len(values):
                        found, measure = summarize(values), f"sparsity_{kind.lower()}_mean"
                        beside = None
                        if results.has_paper_sparsity:
                            beside = setting.paper.value(measure, encoder, "visar", k)
                        row[f"Sparsity, Max-{k} %"] = Cell(
                            found.mean,
                            2,
                            spread=found.std,
                            remark=f"{values.min():.2f}–{values.max():.2f}",
                            paper=beside,
                        )
                rows.append(row)
        if rows:
            notes = [
                f"{define_sparsity(results)} Of ViSAR: mean ± standard deviation, smallest–largest "
                "in parentheses.",
                *answer_notes(results, setting.dataset, counts),
                *setting.paper.notes(counts),
            ]
            title = f"Table S9. Sparsity given the answer: {setting.name}"
            tables.append(Table.of(make_key("table-s9", setting.key), title, rows, notes))
    return tables
