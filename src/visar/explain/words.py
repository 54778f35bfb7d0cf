"""The method's decision in words a person understands, and in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visar.results import PageHit, SearchResult


def why_so_many(found: SearchResult) -> str:
    """How many pages were chosen, and why no more, in plain language."""
    parts = [_count(found)]
    if found.pages_invalid:
        unread = "page was" if found.pages_invalid == 1 else "pages were"
        parts.append(f"{found.pages_invalid} {unread} left out: the encoder failed on them")
    parts.append(f"{found.seconds:.2f} s")
    return " · ".join(parts)


def nothing_found(documents: Sequence[str], nearest: PageHit) -> str:
    """That nothing in the documents of these names speaks of the question, and what is nearest."""
    several = len(documents) > 1
    where = f"these {len(documents)} documents" if several else documents[0]
    named = f" of {nearest.name}" if several else ""
    return (
        f"Nothing in {where} speaks of this. What comes nearest is page {nearest.page}{named}, "
        "and it is unlikely to help."
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
    wanted = f"{found.k_star}" if found.selection.k_star_exact else f"at least {found.k_star}"
    if found.method != "visar":
        return f"{count}, chosen by {found.method}; ViSAR would take {wanted}"
    if found.selection.fallback:
        return f"{count}: none stands out from the others"
    if found.k < found.k_star or not found.selection.k_star_exact:
        return f"{count}; without the cap it would be {wanted}"
    return f"{count}; the next page adds little"


def numbers(found: SearchResult) -> Iterator[str]:
    """What decided how many pages, line by line: k*, J, sparsity, match, calibration, times."""
    selection = found.selection
    decided = f"k* {'=' if selection.k_star_exact else '≥'} {found.k_star}"
    if selection.fallback:
        decided += f", the best page by late interaction ({selection.fallback})"
    elif len(selection.cost):
        # J is NaN where it was proved not to matter.
        around = range(max(1, found.k_star - 2), min(len(selection.cost), found.k_star + 2) + 1)
        known = [(k, value) for k in around if (value := selection.cost[k - 1]) == value]
        decided += "".join(f", J({k}) = {value:.5g}" for k, value in known)
    yield decided
    if found.sharpness is not None:
        yield f"one page more or less makes J worse by {found.sharpness:.1%}"
    considered = len(selection.ranking)
    yield (
        f"sparsity {selection.sparsity:.0%}: {considered - len(selection.active)} of {considered} "
        "pages have nothing to do with the question"
    )
    yield f"the question's words match the best page with a mean cosine of {found.match:.3f}"
    if found.about is not None:
        yield f"that the pages are about the question has a probability of {found.about:.2f}"
        yield f"probabilities were fitted on {found.calibration}"
    yield ", ".join(f"{name} {t * 1e3:.1f} ms" for name, t in selection.timings.items())
