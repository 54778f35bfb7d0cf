"""Files with the similarity matrix and J(k) of selected questions, for figures."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visar.core import Selection
from visar.core.baselines import oracle
from visar.errors import NotARun
from visar.evaluation.records import QuestionRecord


@dataclass(frozen=True, slots=True, eq=False)
class Detail:
    """The similarity matrix and the costs of one question."""

    dataset: str
    encoder: str
    question: str
    """The question's id."""
    inputs: str | None
    """Digest of what it was computed from; None where the file has none."""
    similarity: NDArray[np.float64]
    cost: NDArray[np.float64]
    k_star: int
    k_oracle: int
    """The oracle's k; 0 without evidence."""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.dataset, self.encoder, self.question)))


def details_path(folder: Path, asked: QuestionRecord, encoder: str) -> Path:
    """Return the path of the details of a question with an encoder."""
    names = (asked.dataset, encoder, asked.question)
    # Ids such as "q.1" and "q-1" have the same slug.
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    slugs = ("".join(c if c.isalnum() else "-" for c in name) for name in names)
    return folder / "details" / f"{'-'.join(slugs)}-{digest}.npz"


def read_inputs(path: Path) -> str | None:
    """Return the digest of the inputs of a details file; None if there is none."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as details:
        return str(details["inputs"]) if "inputs" in details else None


def read_details(folder: Path) -> list[Detail]:
    """Read the details of selected questions, ``details/*.npz`` in a run's folder.

    Raises NotARun if a file is damaged or invalid.
    """
    return [_read_detail(path) for path in sorted((folder / "details").glob("*.npz"))]


def _read_detail(path: Path) -> Detail:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            detail = Detail(
                dataset=str(arrays["dataset"]) if "dataset" in arrays else "",
                encoder=str(arrays["encoder"]) if "encoder" in arrays else "",
                question=str(arrays["id"]) if "id" in arrays else "",
                inputs=str(arrays["inputs"]) if "inputs" in arrays else None,
                similarity=np.asarray(arrays["similarity"], np.float64),
                cost=np.asarray(arrays["cost"], np.float64),
                k_star=int(arrays["k_star"]),
                k_oracle=int(arrays["k_oracle"]) if "k_oracle" in arrays else 0,
            )
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise NotARun(f"Can't read the details in {path}: {error}. Delete the file.") from None
    if detail.similarity.ndim != 2 or detail.cost.ndim != 1:
        raise NotARun(f"{path} must contain a matrix and its costs. Delete the file.")
    return detail


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
