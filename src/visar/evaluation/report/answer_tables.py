"""Tables of answers: 3, 4, S2 to S7, S10 (b), boxes and judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from visar.evaluation.authors import paper_encoder, paper_generator
from visar.evaluation.frames import ANSWER_KEY, Results
from visar.evaluation.judge.agreement import count_agreement
from visar.evaluation.report.markup import Cell, Row, Table, make_key, mark_best
from visar.evaluation.report.methods import (
    LATE,
    is_adaptive,
    is_compared,
    is_main,
    label,
    name_generator,
    where,
)
from visar.evaluation.report.notes import INTERVALS, SIGNIFICANT, Counts, answer_notes
from visar.evaluation.report.paper import Comparison, the_paper
from visar.evaluation.report.retrieval_tables import on_shared_questions
from visar.evaluation.statistics import bootstrap, mcnemar
from visar.generation import extractive
from visar.generation.registry import PUBLISHED

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

    def notes(self, results: Results, counts: Counts) -> list[str]:
        """Return notes on the questions in rows, on cut prompts, and on the paper's numbers."""
        frame = results.answers
        frame = frame[(frame.dataset == self.dataset) & (frame.generator == self.generator)]
        frame = frame[frame.prompt == self.prompt]
        cut = int(frame.note.notna().sum())
        verb = "was" if cut == 1 else "were"
        return [
            *answer_notes(results, self.dataset, counts),
            *([f"{cut} of {len(frame)} prompts {verb} cut to the model's context."] if cut else []),
            *self.paper.notes(counts),
        ]

    def of(self, encoder: str, method: str, max_k: int) -> pd.DataFrame:
        """Return the verdicts for an encoder, method and budget."""
        frame = self.verdicts
        return frame[(frame.encoder == encoder) & (frame.method == method) & (frame.max_k == max_k)]

    def accuracy(self, group: pd.DataFrame, table: str | None = None) -> Cell:
        """Return the accuracy of verdicts for an encoder, method and budget."""
        if group.empty:
            return Cell(None)
        found = bootstrap(100 * group.correct.astype(float))
        encoder, method, max_k = group.iloc[0][["encoder", "method", "max_k"]]
        paper = self.paper.value("accuracy", encoder, method, int(max_k), table)
        return Cell(found.mean, 2, interval=(found.low, found.high), paper=paper)


def settings_of(results: Results) -> list[Setting]:
    """Return the settings of a run with judged answers."""
    names = ["dataset", "generator", "prompt", "judge"]
    return [
        Setting(dataset, generator, prompt, judge, frame, Comparison.of_answers(results, *key))
        for key, frame in results.verdicts.groupby(names, sort=False)
        for dataset, generator, prompt, judge in [key]
    ]


def by_generator(results: Results) -> list[tuple[str, str, list[Setting]]]:
    """Return the settings by generator with prompt and judge, for a figure each."""
    found: dict[tuple[str, str], list[Setting]] = {}
    for setting in settings_of(results):
        generator = name_generator(setting.generator, setting.prompt)
        found.setdefault((generator, setting.judge), []).append(setting)
    return [(*key, settings) for key, settings in found.items()]


def accuracy_tables(results: Results) -> list[Table]:
    """Return the paper's Tables 3 and S2, and the accuracy of all encoders and methods."""
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
            f"{INTERVALS} Bold: the highest in a column. {_MCNEMAR}.",
            *setting.notes(results, counts),
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
            table_key = make_key(key, setting.key)
            tables.append(Table.of(table_key, f"{title}: {setting.name}", shown, notes + more))
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


def _p_value(group: pd.DataFrame, fixed: pd.DataFrame) -> float | None:
    one, other = on_shared_questions(group, fixed, ["correct"])
    return None if one.empty else mcnemar(one.correct, other.correct)


@dataclass(frozen=True, slots=True)
class _Match:
    """A comparison of a method with fixed top-k on the questions that both answered."""

    setting: Setting
    own: pd.DataFrame
    fixed: pd.DataFrame
    p_value: float

    @property
    def outcome(self) -> str:
        """The result of the test: "better", "worse" or "equal"."""
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
    """Return Tables 4 and S3 to S7, which compare ViSAR with fixed top-k, and their summary."""
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
    # Sorts "4" before "S3" … "S7", and these before "other".
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
        "Only ViSAR correct": int((gain > 0).sum()),
        "Only fixed correct": int((gain < 0).sum()),
        "p": Cell(match.p_value, 4, marked=is_significant),
        "ViSAR is": match.outcome,
    }


def _match_notes(results: Results, matches: list[_Match]) -> list[str]:
    notes = [
        f"{INTERVALS} {_MCNEMAR}; bold if p < {SIGNIFICANT}. The interval of the difference uses "
        "the same samples for both."
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
    """Return how often each method is better than, equal to or worse than fixed top-k."""
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
            # The paper's numbers include all its settings.
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
            "Settings are combinations of data set, encoder, generator and budget; the paper's are "
            f"those of its Tables 4 and S3 to S7. “Better” and “worse” mean p < {SIGNIFICANT} in "
            "McNemar's exact test, “equal” means no significant difference. About one in twenty "
            "settings is significant by chance."
        )
        title = f"Better, equal or worse than fixed top-k: {suffix}"
        tables.append(Table.of(make_key("outcomes", suffix), title, rows, [note]))
    return tables


def box_tables(results: Results) -> list[Table]:
    """Return a table of the boxes of quotes, for data sets in which annotators marked boxes."""
    rows: list[Row] = []
    known = where(results.answers.dropna(subset="box_f1"), is_main)
    names = ["dataset", "encoder", "method", "max_k"]
    for (dataset, encoder, method, max_k), group in known.groupby(names, sort=False):
        found = bootstrap(100 * group.box_f1.astype(float))
        rows.append(
            {
                "Data set": dataset,
                "Encoder": encoder,
                "Method": label(method),
                "Max-k": int(max_k),
                "Questions": len(group),
                "F1 of boxes %": Cell(found.mean, 2, interval=(found.low, found.high)),
            }
        )
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


def objective_tables(results: Results) -> list[Table]:
    """Return Table S10 (b): other cuts of ViSAR's ranking."""
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
                paper_k = setting.paper.value("mean_k", encoder, method)
                row["Mean k*"] = Cell(mean.mean, 1, interval=(mean.low, mean.high), paper=paper_k)
            for k in setting.budgets:
                group = setting.of(encoder, method, k)
                counts[f"{label(method)}, Max-{k}", encoder] = len(group)
                row[f"n, Max-{k}"] = setting.paper.count(len(group), encoder, method)
                row[f"Max-{k} %"] = setting.accuracy(group)
            rows.append(row)
        mark_best(rows, [f"Max-{k} %" for k in setting.budgets], "Encoder")
        notes = [
            f"{INTERVALS} Bold: the highest per encoder. Mean k* is over all questions, before any "
            "budget.",
            *setting.notes(results, counts),
        ]
        title = f"Table S10 (b). Other cuts of ViSAR's ranking: {setting.name}"
        tables.append(Table.of(make_key("table-s10-b", setting.key), title, rows, notes))
    return tables
