"""What took no part in a run, and why: from what its manifests say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visar.evaluation.findings import Findings

# A data set with corrections has its own name, but the documents of the published one.
CORRECTED = ", corrected"


def skipped_documents(findings: Findings, dataset: str) -> dict[str, str]:
    """Documents of a data set that no question was asked about, each with the reason."""
    asked = {one.document for one in findings.questions.get(dataset, {}).values()}
    name = dataset.removesuffix(CORRECTED)
    reasons: dict[str, str] = {}
    for skipped in _entries(findings):
        missing, refused = _of(skipped, "missing", name), _of(skipped, "refused", name)
        if isinstance(missing, list):
            reasons |= {str(document): "missing" for document in missing}
        if isinstance(refused, Mapping):
            reasons |= {str(document): str(why) for document, why in refused.items()}
    # A later call of the run may have found what an earlier one missed.
    return {document: reasons[document] for document in sorted(reasons.keys() - asked)}


def questions_with_pages_outside(findings: Findings, dataset: str) -> list[str]:
    """Questions with evidence on pages that their document does not have."""
    found: set[str] = set()
    for skipped in _entries(findings):
        outside = _of(skipped, "pages_outside", dataset)
        if isinstance(outside, list):
            found.update(map(str, outside))
    return sorted(found & findings.questions.get(dataset, {}).keys())


def invalid_pages(findings: Findings) -> dict[str, int]:
    """By encoder: pages it could make nothing of, as the last call that met some says."""
    found: dict[str, int] = {}
    for skipped in _entries(findings):
        pages = skipped.get("invalid_pages")
        if isinstance(pages, Mapping):
            found |= {str(name): count for name, count in pages.items() if isinstance(count, int)}
    return found


def _entries(findings: Findings) -> list[Mapping[str, Any]]:
    entries = [manifest.get("skipped") for manifest in findings.manifests]
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _of(skipped: Mapping[str, Any], kind: str, dataset: str) -> object:
    by_dataset = skipped.get(kind)
    return by_dataset.get(dataset) if isinstance(by_dataset, Mapping) else None
