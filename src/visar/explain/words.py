"""The method's decision in words a person understands."""

from __future__ import annotations

from visar.results import SearchResult

# How much worse J gets beside its minimum.
CLEAR_CUT = 0.05
FAIR_CUT = 0.01


def why_so_many(found: SearchResult) -> str:
    """One sentence: how many pages, how sure that is, how localized the question is."""
    selection = found.selection
    parts = [f"{found.k} of {found.pages_searched} pages"]
    if found.method != "visar":
        parts.append(f"chosen by {found.method}; ViSAR would take {found.k_star}")
    elif selection.fallback:
        parts.append(f"the best match ({selection.fallback})")
    else:
        parts.append(_cut(found))
        parts.append(f"{selection.sparsity:.0%} of the pages have nothing to do with the question")
    if found.pages_invalid:
        unread = "page was" if found.pages_invalid == 1 else "pages were"
        parts.append(f"{found.pages_invalid} {unread} left out: the encoder failed on them")
    parts.append(f"{found.seconds:.2f} s")
    return " · ".join(parts)


def _cut(found: SearchResult) -> str:
    wanted = f"k* = {found.k_star}"
    if found.k < found.k_star:
        wanted += f", capped at {found.k}"
    sharpness = found.sharpness
    if sharpness is None:
        return wanted
    if sharpness >= CLEAR_CUT:
        kind = "a clear cut"
    else:
        kind = "a fair cut" if sharpness >= FAIR_CUT else "a soft cut"
    return f"{wanted}, {kind} (one page more or less costs {sharpness:.1%})"
