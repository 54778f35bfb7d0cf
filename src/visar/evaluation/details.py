"""Files with the similarity matrix and J(k) of selected questions, for figures."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from visar.core import Selection
from visar.core.baselines import oracle
from visar.evaluation.records import QuestionRecord


def details_path(folder: Path, asked: QuestionRecord, encoder: str) -> Path:
    """Return the path of the details of a question with an encoder."""
    names = (asked.dataset, encoder, asked.question)
    # Ids such as "q.1" and "q-1" have the same slug.
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    return folder / "details" / f"{'-'.join(map(_slug, names))}-{digest}.npz"


def read_inputs(path: Path) -> str | None:
    """Return the digest of the inputs of a details file; None if there is none."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as details:
        return str(details["inputs"]) if "inputs" in details else None


def write_details(
    path: Path, asked: QuestionRecord, encoder: str, selection: Selection, inputs: str
) -> None:
    """Write the details of a question; the selection must have the full matrix."""
    assert selection.similarity is not None  # noqa: S101 - full_matrix was set
    path.parent.mkdir(exist_ok=True)
    evidence = [page - 1 for page in asked.evidence_pages]
    np.savez_compressed(
        path,
        similarity=selection.similarity,
        cost=selection.cost,
        ranking=selection.ranking,
        k_star=selection.k_star,
        k_oracle=oracle(selection.late_interaction, evidence).k if evidence else 0,
        id=np.array(asked.question),
        encoder=np.array(encoder),
        dataset=np.array(asked.dataset),
        inputs=np.array(inputs),
    )


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)
