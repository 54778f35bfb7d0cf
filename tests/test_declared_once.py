"""Every result is declared once, in results.py: no other class repeats three of its fields.

The same field has the same name and the same type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import visar

PACKAGE = Path(visar.__file__).parent
RESULTS = ("results.py", "query.py")
# The method itself imports nothing of ours: its selection is the numpy record that results are
# read from.
METHOD = "core/"
ALLOWED = {
    "documents/page.py: Cell": "a cell of a page by the indices of its words, before any result",
    "encoders/wire.py: Description": "a message of the encoder service, which knows no results",
    "evaluation/records.py: Answered": "a line of an evaluation's record, about one answer",
    "evaluation/report/paper.py: PaperRow": "a row of the paper's tables",
    "generation/protocol.py: Reply": "what plug-in generators return",
    "library.py: SearchOptions": "the type of keyword arguments that become a Query",
    "retrieval/candidates.py: Candidate": "a page by a first stage, before any result",
    "store/lance/catalog.py: DocumentState": "a document as rows of tables",
}


def declared(path: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the classes of a file with the fields that they declare themselves."""
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
        name: fields for file in RESULTS for name, fields in declared(PACKAGE / file) if fields
    }
    assert {"Answer", "Document", "Explanation", "Job", "PageHit", "SearchResult"} <= set(results)
    again = [
        f"{declaration} repeats {sorted(fields & known)} of {result}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (relative := path.relative_to(PACKAGE).as_posix()) not in RESULTS
        and not relative.startswith(METHOD)
        for name, fields in declared(path)
        if (declaration := f"{relative}: {name}") not in ALLOWED
        for result, known in results.items()
        if len(fields & known) >= 3
    ]
    assert not again, "\n".join(again)
