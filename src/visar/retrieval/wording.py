"""The reasons for a choice of pages, in words and in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visar.results import Decision, Document, PageHit, SearchResult


def why_so_many(found: SearchResult) -> str:
    """Return the number of pages chosen and the reason for it, in plain language."""
    parts = [_count(found)]
    if found.pages_invalid:
        unread = "page was" if found.pages_invalid == 1 else "pages were"
        parts.append(f"{found.pages_invalid} {unread} left out: the encoder failed on them")
    parts.append(f"{found.seconds:.2f} s")
    return " · ".join(parts)


def nothing_found(documents: Sequence[Document], nearest: PageHit) -> str:
    """Return the sentence for a question that these documents don't answer."""
    several = len(documents) > 1
    where = f"these {len(documents)} documents" if several else documents[0].name
    named = f" of {nearest.name}" if several else ""
    if all(one.no_text for one in documents):
        return f"I couldn't find this in {where}: no text was found on any page."
    return (
        f"I couldn't find this in {where}. Closest page: {nearest.page}{named} (probably not "
        "relevant)."
    )


def _count(found: SearchResult) -> str:
    pages = "page" if found.pages_searched == 1 else "pages"
    count = f"{found.k} of {found.pages_searched:,} {pages}"
    if found.candidates is not None:
        count += f" in {len(found.documents):,} documents, {found.candidates} looked at closely"
    if found.strength == "none":
        return f"the nearest {count}; none is likely to help"
    if found.k == found.pages_searched:
        return count
    decision = found.decision
    if decision is None:
        capped = ", the maximum" if found.k == found.query.max_k else ""
        return f"{count}{capped}, chosen by {found.method}"
    if decision.fallback:
        return f"{count}: none stands out from the others"
    if found.k < decision.k_star or not decision.exact:
        wanted = f"{decision.k_star}" if decision.exact else f"at least {decision.k_star}"
        return f"{count}; the method asked for {wanted}"
    return f"{count}; the next page adds little"


def numbers(found: SearchResult) -> Iterator[str]:
    """Yield the numbers behind the choice: k*, J, sparsity, match, calibration, times."""
    decision = found.decision
    if decision is not None:
        yield _cost(decision)
        if decision.sharpness is not None:
            yield f"one page more or less makes J worse by {decision.sharpness:.1%}"
        inactive = decision.considered_pages - decision.active_pages
        yield (
            f"sparsity {decision.sparsity:.0%}: {inactive} of {decision.considered_pages} "
            "pages have nothing to do with the question"
        )
    if found.reader is not None and decision is not None:
        yield f"{found.reader} read passages of the best pages: it helped to decide which are taken"
    yield f"the question's words match the best page with a mean cosine of {found.match:.3f}"
    if found.about is not None:
        yield f"probability that the document is relevant: {found.about:.2f}"
        yield f"probabilities were fitted on {found.calibration}"
    if decision is not None:
        yield ", ".join(f"{name} {t * 1e3:.1f} ms" for name, t in decision.timings.items())


def _cost(decision: Decision) -> str:
    line = f"k* {'=' if decision.exact else '≥'} {decision.k_star}"
    if decision.fallback:
        return f"{line}, the best page by late interaction ({decision.fallback})"
    first, last = max(1, decision.k_star - 2), min(len(decision.cost), decision.k_star + 2)
    around = [(k, decision.cost[k - 1]) for k in range(first, last + 1)]
    return line + "".join(f", J({k}) = {value:.5g}" for k, value in around if value is not None)
