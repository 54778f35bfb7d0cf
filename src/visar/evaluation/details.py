"""The similarity matrix and J(k) of single questions, for a figure each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from visar.core import Selection
from visar.core.baselines import oracle
from visar.evaluation.records import Asked


def details_path(folder: Path, asked: Asked, encoder: str) -> Path:
    """Return the file in a run's folder for the details of a question with an encoder."""
    names = (asked.dataset, encoder, asked.question)
    return folder / "details" / f"{'-'.join(map(_slug, names))}.npz"


def read_inputs(path: Path) -> str | None:
    """Return the digest of what a file of details was computed from; None if there is none."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as details:
        return str(details["inputs"]) if "inputs" in details else None


def write_details(
    path: Path, asked: Asked, encoder: str, selection: Selection, inputs: str
) -> None:
    """Write what ViSAR saw of a question; the selection has the full matrix."""
    assert selection.similarity is not None  # noqa: S101 - it was asked for
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
