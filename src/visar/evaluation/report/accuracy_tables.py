"""Tables of judged answers: accuracy (3, 4, S2 to S7, S10 b) and the agreement of judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

from visar.evaluation.findings import Findings
from visar.evaluation.judge.agreement import Agreement, count_agreement
from visar.evaluation.records import key_of
from visar.evaluation.report.markup import Cell, Row, Table, make_key, mark_best
from visar.evaluation.report.paper import Comparison, short_name, the_paper
from visar.evaluation.report.scope import (
    LATE,
    SIGNIFICANT,
    answer_notes,
    is_adaptive,
    is_main,
    label,
    name_generator,
)
from visar.evaluation.statistics import bootstrap, mcnemar
from visar.generation import extractive
from visar.generation.registry import PUBLISHED

_OBJECTIVES = ("visar", "visar top-k", "visar largest-gap", "visar score-cluster")
_INTERVALS = "In parentheses 95 % of 10,000 bootstrap samples over questions."
_MCNEMAR = (
    "p is that of McNemar's exact test against fixed top-k late interaction with the same encoder, "
    "generator and budget, on the questions both answered"
)

Verdicts = Mapping[str, bool]
"""Whether the answer is right, by question."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What a judge says of a generator's answers to the questions of a data set."""

    findings: Findings
    dataset: str
    generator: str
    prompt: str
    judge: str

    @cached_property
    def verdicts(self) -> dict[str, dict[str, dict[int, Verdicts]]]:
        """By encoder, method and budget."""
        found: dict[str, dict[str, dict[int, Verdicts]]] = {}
        for key, by_method in self.findings.verdicts.items():
            if key[:4] == (self.dataset, self.generator, self.prompt, self.judge):
                for method, verdicts in by_method.items():
                    of_encoder = found.setdefault(key.encoder, {})
                    of_encoder.setdefault(method, {})[key.max_k] = verdicts
        return found

    @cached_property
    def budgets(self) -> list[int]:
        found = self.verdicts.values()
        return sorted({k for by_method in found for by_k in by_method.values() for k in by_k})

    @cached_property
    def paper(self) -> Comparison:
        return Comparison.of_answers(
            self.findings, self.dataset, self.generator, self.prompt, self.judge
        )

    @property
    def name(self) -> str:
        generator = name_generator(self.generator, self.prompt)
        return f"{self.dataset}, {generator}, judged by {self.judge}"

    @property
    def key(self) -> str:
        prompt = "" if self.prompt == "default" else f"{self.prompt} prompt"
        return make_key(self.dataset, self.generator, prompt, self.judge)

    def accuracy(self, encoder: str, method: str, k: int, verdicts: Verdicts) -> Cell:
        """The share of right answers with its interval."""
        if not verdicts:
            return Cell(None)
        interval = bootstrap([float(verdicts[question]) for question in sorted(verdicts)])
        return Cell(
            100 * interval.mean,
            2,
            interval=(100 * interval.low, 100 * interval.high),
            paper=self.paper.value("accuracy", encoder, method, len(verdicts), k),
        )


def settings_of(findings: Findings) -> list[Setting]:
    """Return the settings of a run whose answers were judged."""
    return [Setting(findings, *key) for key in dict.fromkeys(key[:4] for key in findings.verdicts)]


def accuracy_tables(findings: Findings) -> list[Table]:
    """Tables 3 and S2: which answers are right, with every encoder and method in one table."""
    tables = []
    settings = settings_of(findings)
    for setting in settings:
        companions = [one for one in settings if _joins(one, setting)]
        if any(_joins(setting, other) for other in settings):
            continue
        counts: dict[tuple[str, str], int] = {}
        rows = [
            row
            for one in (*companions, setting)
            for row in _accuracy_rows(one, setting.budgets, counts)
        ]
        if not rows:
            continue
        mark_best(rows, [f"Max-{k} %" for k in setting.budgets])
        notes = [
            f"{_INTERVALS} Bold: the highest of a column. {_MCNEMAR}.",
            *answer_notes(findings, setting.dataset, counts),
            *setting.paper.notes(counts),
        ]
        if any(row["Method"] == _M3DOCRAG for row in rows):
            notes.append(
                "M3DocRAG is late interaction over ColPali's vectors with fixed top-k: the paper's "
                "Tables 3 and 4 have the same numbers for both."
            )
        title = f"Tables 3 and S2. Accuracy: {setting.name}"
        tables.append(Table.of(make_key("table-3-s2", setting.key), title, rows, notes))
    return tables


_M3DOCRAG = "Late-Interaction (M3DocRAG)"


def _reads_text(generator: str) -> bool:
    """Whether a language model is given the words of pages and not their images."""
    published = PUBLISHED.get(short_name(generator))
    is_text_model = published is not None and published.reads == "text"
    return is_text_model or generator.startswith("openai-text:")


def _joins(text: Setting, visual: Setting) -> bool:
    """Whether rows of a text model stand in the table of one that sees pages, as ColBERTv2's do."""
    same = (text.dataset, text.prompt, text.judge) == (visual.dataset, visual.prompt, visual.judge)
    is_visual = visual.generator != extractive.NAME and not _reads_text(visual.generator)
    return same and _reads_text(text.generator) and is_visual


def _accuracy_rows(
    setting: Setting, budgets: Sequence[int], counts: dict[tuple[str, str], int]
) -> Iterator[Row]:
    for encoder, by_method in setting.verdicts.items():
        for method in filter(is_main, by_method):
            is_m3docrag = method == LATE and short_name(encoder) == "colpali"
            row: Row = {
                "Encoder": encoder,
                "Method": _M3DOCRAG if is_m3docrag else label(method),
                "k": "adaptive" if is_adaptive(method) else "fixed",
                "Generator": setting.generator,
            }
            for k in budgets:
                verdicts = by_method[method].get(k, {})
                counts[f"{label(method)}, {setting.generator}, Max-{k}", encoder] = len(verdicts)
                fixed = by_method.get(LATE, {}).get(k, {}) if method != LATE else {}
                row[f"n, Max-{k}"] = len(verdicts)
                row[f"Max-{k} %"] = setting.accuracy(encoder, method, k, verdicts)
                row[f"p, Max-{k}"] = Cell(_p_value(verdicts, fixed), 4)
            yield row


def _p_value(verdicts: Verdicts, fixed: Verdicts) -> float | None:
    both = sorted(verdicts.keys() & fixed.keys())
    return mcnemar([verdicts[q] for q in both], [fixed[q] for q in both]) if both else None


@dataclass(frozen=True, slots=True)
class _Match:
    """A method against fixed top-k on the questions that both answered."""

    setting: Setting
    encoder: str
    method: str
    max_k: int
    own: Verdicts
    fixed: Verdicts

    @property
    def p_value(self) -> float:
        return mcnemar([self.own[q] for q in self.own], [self.fixed[q] for q in self.own])

    @property
    def paper_accuracy(self) -> float | None:
        paper, count = self.setting.paper, len(self.own)
        return paper.value("accuracy", self.encoder, self.method, count, self.max_k)

    @property
    def outcome(self) -> str:
        """Whether it is "better" or "worse" by the test, otherwise "equal"."""
        if self.p_value >= SIGNIFICANT:
            return "equal"
        return "better" if sum(self.own.values()) > sum(self.fixed.values()) else "worse"


def _matches(settings: Sequence[Setting]) -> Iterator[_Match]:
    for setting in settings:
        for encoder, by_method in setting.verdicts.items():
            for method in filter(is_main, by_method):
                if method == LATE or not is_adaptive(method):
                    continue
                for k, verdicts in sorted(by_method[method].items()):
                    fixed = by_method.get(LATE, {}).get(k, {})
                    both = sorted(verdicts.keys() & fixed.keys())
                    if both:
                        own, late = ({q: of[q] for q in both} for of in (verdicts, fixed))
                        yield _Match(setting, encoder, method, k, own, late)


def match_tables(findings: Findings) -> list[Table]:
    """Tables 4 and S3 to S7: ViSAR against fixed top-k, and how often it is better or worse."""
    tables = []
    settings = settings_of(findings)
    for prompt, judge in dict.fromkeys((one.prompt, one.judge) for one in settings):
        matches = list(
            _matches([one for one in settings if (one.prompt, one.judge) == (prompt, judge)])
        )
        rows = [_match_row(one) for one in matches if one.method == "visar"]
        suffix = f"{'' if prompt == 'default' else f'{prompt} prompt, '}judged by {judge}"
        if rows:
            tables.append(
                Table.of(
                    make_key("table-4-s3-s7", suffix),
                    f"Tables 4 and S3–S7. ViSAR against fixed top-k: {suffix}",
                    rows,
                    _match_notes(findings, [one for one in matches if one.method == "visar"]),
                )
            )
        if matches:
            tables.append(
                Table.of(
                    make_key("outcomes", suffix),
                    f"Tables 4 and S3–S7. Better, equal or worse than fixed top-k: {suffix}",
                    _outcome_rows(matches),
                    [
                        "Settings are those of data set, encoder, generator and budget. Better and "
                        f"worse: McNemar's exact test has p < {SIGNIFICANT}; “equal” means that "
                        "these questions do not tell. With many settings, one in twenty would be "
                        "told apart by chance alone."
                    ],
                )
            )
    return tables


def _match_row(match: _Match) -> Row:
    differences = [
        float(match.own[question]) - match.fixed[question] for question in sorted(match.own)
    ]
    difference = bootstrap(differences)
    is_significant = match.p_value < SIGNIFICANT
    cells = {
        method: match.setting.accuracy(match.encoder, method, match.max_k, verdicts)
        for method, verdicts in ((LATE, match.fixed), (match.method, match.own))
    }
    return {
        "Data set": match.setting.dataset,
        "Generator": match.setting.generator,
        "Encoder": match.encoder,
        "Max-k": match.max_k,
        "Questions": len(match.own),
        "Fixed top-k %": cells[LATE],
        "ViSAR %": cells[match.method],
        "Difference": Cell(
            100 * difference.mean,
            2,
            interval=(100 * difference.low, 100 * difference.high),
            marked=is_significant,
        ),
        "Only ViSAR right": differences.count(1.0),
        "Only fixed right": differences.count(-1.0),
        "p": Cell(match.p_value, 4, marked=is_significant),
        "ViSAR is": match.outcome,
    }


def _match_notes(findings: Findings, matches: Sequence[_Match]) -> list[str]:
    notes = [
        f"{_INTERVALS} {_MCNEMAR}; bold where p < {SIGNIFICANT}. The interval of the difference "
        "draws the same questions for both."
    ]
    differing = []
    for dataset in dict.fromkeys(match.setting.dataset for match in matches):
        counts: dict[tuple[str, str], int] = {}
        for setting in dict.fromkeys(match.setting for match in matches):
            if setting.dataset != dataset:
                continue
            own = {
                (f"{setting.generator}, Max-{match.max_k}", match.encoder): len(match.own)
                for match in matches
                if match.setting == setting
            }
            counts |= own
            said = setting.paper.notes(own)
            differing += [f"{dataset}, {setting.generator}: {note}" for note in said]
        notes += answer_notes(findings, dataset, counts)
    return notes + differing


def _outcome_rows(matches: Sequence[_Match]) -> list[Row]:
    rows: list[Row] = []
    for method in dict.fromkeys(match.method for match in matches):
        of_method = [match for match in matches if match.method == method]
        outcomes = [match.outcome for match in of_method]
        paper = the_paper().outcomes
        # The paper's numbers are of all its settings.
        is_paper = (
            method == "visar"
            and len(of_method) == sum(paper.values())
            and all(match.paper_accuracy is not None for match in of_method)
        )
        row: Row = {"Method": label(method), "Settings": len(of_method)}
        for name, number in paper.items():
            beside = number if is_paper else None
            row[name.capitalize()] = Cell(outcomes.count(name), paper=beside)
        rows.append(row)
    return rows


def objective_tables(findings: Findings) -> list[Table]:
    """Table S10 (b): other ways to cut ViSAR's ranking."""
    tables = []
    for setting in settings_of(findings):
        counts: dict[tuple[str, str], int] = {}
        rows = list(_objective_rows(setting, counts))
        if rows:
            mark_best(rows, [f"Max-{k} %" for k in setting.budgets], "Encoder")
            notes = [
                f"{_INTERVALS} Bold: the highest of an encoder. Mean k* is that of all questions, "
                "before any budget.",
                *answer_notes(findings, setting.dataset, counts),
                *setting.paper.notes(counts),
            ]
            title = f"Table S10 (b). Other cuts of ViSAR's ranking: {setting.name}"
            tables.append(Table.of(make_key("table-s10-b", setting.key), title, rows, notes))
    return tables


def _objective_rows(setting: Setting, counts: dict[tuple[str, str], int]) -> Iterator[Row]:
    if not any(method in by for by in setting.verdicts.values() for method in _OBJECTIVES[1:]):
        return
    for encoder, by_method in setting.verdicts.items():
        for method in [one for one in _OBJECTIVES if one in by_method]:
            row: Row = {"Encoder": encoder, "Variant": label(method)}
            row["Mean k*"] = _mean_k(setting, encoder, method)
            for k in setting.budgets:
                verdicts = by_method[method].get(k, {})
                counts[f"{label(method)}, Max-{k}", encoder] = len(verdicts)
                row[f"Max-{k} %"] = setting.accuracy(encoder, method, k, verdicts)
            yield row


def _mean_k(setting: Setting, encoder: str, method: str) -> Cell:
    chosen = setting.findings.choices.get((setting.dataset, encoder), {}).get(method, {})
    ks = [one.k for one in chosen.values()]
    if not ks or not is_adaptive(method):
        return Cell(None)
    interval = bootstrap(ks)
    return Cell(
        fmean(ks),
        1,
        interval=(interval.low, interval.high),
        paper=setting.paper.value("mean_k", encoder, method, len(ks)),
    )


def agreement_tables(findings: Findings) -> list[Table]:
    """Where several judges have judged the same answers: how far they agree."""
    rows: list[Row] = [
        {
            "Data set": dataset,
            "Generator": generator,
            "Judges": f"{found.first}; {found.second}",
            "Answers": found.cases,
            "Both correct": found.both_correct,
            "Only the first": found.only_first,
            "Only the second": found.only_second,
            "Both incorrect": found.both_incorrect,
            "Agreement %": Cell(100 * found.share, 2),
            "Cohen's κ": Cell(found.kappa, 3),
        }
        for dataset, generator, found in _agreements(findings)
    ]
    note = "Over all answers that both have judged, of every encoder, method and budget."
    return [Table.of("agreement", "Agreement of the judges", rows, [note])] if rows else []


def _agreements(findings: Findings) -> Iterator[tuple[str, str, Agreement]]:
    verdicts: dict[tuple[str, str], dict[str, dict[tuple[object, ...], bool]]] = {}
    for one in findings.judged:
        setting = (one.dataset, name_generator(one.generator, one.prompt))
        by_judge = verdicts.setdefault(setting, {})
        # The judge is the last part of the key.
        by_judge.setdefault(one.judge, {})[key_of(one)[:-1]] = one.correct
    for (dataset, generator), by_judge in sorted(verdicts.items()):
        for first, second in combinations(sorted(by_judge), 2):
            shared = by_judge[first].keys() & by_judge[second].keys()
            if shared:
                pairs = ((by_judge[first][case], by_judge[second][case]) for case in shared)
                yield dataset, generator, count_agreement(first, second, pairs)
