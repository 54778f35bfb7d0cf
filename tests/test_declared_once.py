"""Every result type is declared once, in `visar.results`.

No other class may have three or more of its fields, with the same names and types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import visar

PACKAGE = Path(visar.__file__).parent
RESULTS = (*(f"results/{path.name}" for path in (PACKAGE / "results").glob("*.py")), "query.py")
# The core imports none of our packages. Results are created from its numpy records.
CORE = "core/"
ALLOWED = {
    "documents/page.py: Cell": "a cell on a page, by the indices of its words",
    "encoders/remote.py: Description": "a message of the encoder service, not of a library",
    "evaluation/records.py: AnswerRecord": "a line of an evaluation's record, about one answer",
    "evaluation/report/paper.py: PaperRow": "a row of the paper's tables",
    "generation/generator.py: Reply": "what plug-in generators return",
    "library.py: SearchOptions": "the type of keyword arguments that become a Query",
    "retrieval/candidates.py: Candidate": "a page found by the first stage of a search",
    "store/lance/catalog.py: DocumentState": "a document as table rows",
}


def classes_in(path: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the names of a file's classes with the fields that each declares."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            names = [
                f"{field.target.id}: {ast.unparse(field.annotation)}"
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            ]
            yield node.name, frozenset(names)


def test_no_other_class_has_three_fields_of_a_result() -> None:
    results = {
        name: fields for file in RESULTS for name, fields in classes_in(PACKAGE / file) if fields
    }
    assert {"Answer", "Document", "Explanation", "Job", "PageHit", "SearchResult"} <= set(results)
    repetitions = [
        f"{declaration} repeats {sorted(fields & known)} of {result}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (relative := path.relative_to(PACKAGE).as_posix()) not in RESULTS
        and not relative.startswith(CORE)
        for name, fields in classes_in(path)
        if (declaration := f"{relative}: {name}") not in ALLOWED
        for result, known in results.items()
        if len(fields & known) >= 3
    ]
    assert not repetitions, "\n".join(repetitions)
