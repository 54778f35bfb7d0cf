"""Sentences and numbers that explain a choice of pages."""

from __future__ import annotations

from collections.abc import Iterator

from visar.results import Decision, SearchResult

# Maximum number of failed pages to name.
_MAX_NAMES = 3


def why_so_many(found: SearchResult) -> str:
    """Return one line with the number of pages used, the reason for it and the time."""
    parts = [f"{_count(found)}."]
    if found.pages_invalid:
        parts.append(f"Not searched: {_failed_pages(found)}.")
    parts.append(f"{found.seconds:.2f} s")
    return " ".join(parts)


def nothing_found(found: SearchResult) -> str:
    """Return the sentences for a question that the documents don't answer."""
    documents, nearest = found.documents, found.closest
    several = len(documents) > 1
    where = f"these {len(documents)} documents" if several else documents[0].name
    of_document = f" of {nearest.name}" if several else ""
    if all(one.no_text for one in documents):
        return f"I couldn't find this in {where}: there is no text on any page."
    return (
        f"I couldn't find this in {where}. Closest page: {nearest.page}{of_document} (probably not "
        "relevant)."
    )


def _failed_pages(found: SearchResult) -> str:
    """Name the first pages that could not be read or encoded, and count the others."""
    failed = [
        f"page {page.number} of {document.name}"
        for document in found.documents
        for page in document.failed_pages(found.encoder.name)
    ]
    more = f" and {len(failed) - _MAX_NAMES} more" if len(failed) > _MAX_NAMES else ""
    return ", ".join(failed[:_MAX_NAMES]) + more


def _count(found: SearchResult) -> str:
    pages = "page" if found.pages_searched == 1 else "pages"
    count = f"{found.k} of {found.pages_searched:,} {pages}"
    if found.candidates is not None:
        count += f" in {len(found.documents):,} documents ({found.candidates} compared closely)"
    if found.strength == "none":
        return f"No page is likely to help: these are the closest {count}"
    if found.k == found.pages_searched:
        return f"Used {count}"
    decision = found.decision
    if decision is None:
        limit = ", the maximum" if found.k == found.query.max_k else ""
        return f"Used {count}{limit}, chosen by {found.method}"
    if decision.fallback:
        return f"Used {count}; no page stands out"
    if found.k < decision.k_star or not decision.exact:
        k_star = f"{decision.k_star}" if decision.exact else f"at least {decision.k_star}"
        return f"Used {count}; the method chose {k_star}"
    return f"Used {count}; more wouldn't help"


def numbers(found: SearchResult) -> Iterator[str]:
    """Yield the numbers behind the choice: k*, J, sparsity, match, calibration, times."""
    decision = found.decision
    if decision is not None:
        yield _cost(decision)
        if decision.sharpness is not None:
            yield f"one page more or fewer makes J {decision.sharpness:.1%} worse"
        inactive = decision.considered_pages - decision.active_pages
        yield (
            f"sparsity {decision.sparsity:.0%}: {inactive} of {decision.considered_pages} "
            "pages are unrelated to the question"
        )
    if found.reader is not None and decision is not None:
        yield f"{found.reader} re-read passages of the best pages to help choose"
    yield f"mean cosine of the question's words with the best page: {found.match:.3f}"
    if found.about is not None:
        yield f"probability that the document is relevant: {found.about:.2f}"
        yield f"probabilities fitted on {found.calibration}"
    if decision is not None:
        yield ", ".join(f"{name} {t * 1e3:.1f} ms" for name, t in decision.timings.items())


def _cost(decision: Decision) -> str:
    line = f"k* {'=' if decision.exact else '≥'} {decision.k_star}"
    if decision.fallback:
        return f"{line}, the best page by late interaction ({decision.fallback})"
    first, last = max(1, decision.k_star - 2), min(len(decision.cost), decision.k_star + 2)
    around = [(k, decision.cost[k - 1]) for k in range(first, last + 1)]
    return line + "".join(f", J({k}) = {value:.5g}" for k, value in around if value is not None)
