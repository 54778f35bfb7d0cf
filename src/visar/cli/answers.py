"""Answers with their tables and pages, printed in the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from visar.cli.output import complain, console, errors, plain_table
from visar.generation.extractive import table_title
from visar.library import AnswerStream
from visar.results import (
    NO_CITATION,
    Answer,
    Generation,
    PageHit,
    Passage,
    QuotedCell,
    SearchResult,
)
from visar.retrieval.wording import nothing_found, numbers
from visar.text import clean_line, clean_text, counted

WIDEST_BAR = 5
LONGEST_WORD = len("possible")
PAGES_SHOWN = 10
NEAREST_SHOWN = 3
_INDENT = 2
_WIDEST_TEXT = 100
_LONGEST_CLAIM = 100
ANSWER_MARK = "▸"
_GAP = 3
_NUMBER = re.compile(r"[^\w]*\d[^a-z]*[a-z%]{0,3}[^\w]*", re.IGNORECASE)


def read_answer(stream: AnswerStream) -> Answer:
    """Return the complete answer; at a terminal, show it while it is written."""
    with stream:
        if not errors.is_terminal:
            return stream.answer
        first, second = next(stream, ""), next(stream, None)
        if second is None:  # a quotation comes in one piece
            return stream.answer
        from rich.live import Live

        written = Text(first)
        with Live(console=errors, transient=True, refresh_per_second=12) as live:
            for piece in chain([second], stream):
                written.append(piece)
                live.update(_indented(written + " ▌"))
        return stream.answer


def warn_of_problem(answer: Answer) -> bool:
    """Print a warning if the generator failed; return whether it did."""
    if answer.problem is not None:
        complain(f"{answer.problem} Showing quotes instead.")
    return answer.problem is not None


def print_answer(answer: Answer) -> None:
    console.print()
    if answer.generation is None or answer.problem is not None:
        _print_quotes(answer)
    else:
        _print_written(answer, answer.generation)
    console.print()


def print_pages(found: SearchResult, *, why: bool = False) -> None:
    """Print the pages with their best lines, and why there are so many."""
    calibrated = found.calibration is not None
    shown = _pages_shown(found)
    # Page numbers that are printed on the pages, if they differ.
    printed = max((len(hit.label) for hit in shown), default=0)
    if printed:
        printed = max(printed, len("PRINTED"))
    heading = "PAGE  " + (f"{'PRINTED':<{printed}}  " if printed else "")
    chance = " " * (LONGEST_WORD + WIDEST_BAR + 3) if calibrated else ""
    console.print(f"  [bold]{heading}{chance}MATCH[/bold]")
    for hit in shown:
        console.print(_page_line(found, hit, printed), soft_wrap=True)
    refused = found.strength == "none"
    if (following := len(found.pages) - len(shown)) > 0 and not refused:
        more = f"  and {counted(following, 'more page')} (--json shows all)"
        console.print(Text(more, "dim"), soft_wrap=True)
    if found.runner_up is not None and not refused:
        console.print(_page_line(found, found.runner_up, printed, "(runner-up) "), soft_wrap=True)
    console.print()
    if found.left_out:
        console.print(Text(f"  {_about_left_out(found)}", "yellow"), soft_wrap=True)
    if not calibrated:
        uncalibrated = f"{found.encoder.name} isn't calibrated, so pages have no probabilities."
        _print_indented(f"{uncalibrated} Run `visar calibrate` to fit them.", "dim")
    if why:
        _print_numbers(found)
    hint = "" if why else " · --why for details"
    _print_indented(f"{found.summary}{hint}", "dim")


def _pages_shown(found: SearchResult) -> tuple[PageHit, ...]:
    """Return the pages to list: only the nearest few if none is likely to help."""
    return found.pages[: NEAREST_SHOWN if found.strength == "none" else PAGES_SHOWN]


def _print_numbers(found: SearchResult) -> None:
    headings = ("PAGE", "PROBABILITY", "s_p", "LATE INTERACTION")
    rows = (
        (
            str(hit.page),
            "" if hit.probability is None else f"{hit.probability:.3f}",
            f"{hit.score:.4f}",
            f"{hit.late_interaction:.3f}",
        )
        for hit in filter(None, (*_pages_shown(found), found.runner_up))
    )
    table = plain_table(*headings, rows=rows, numbers=headings)
    console.print(Padding(table, (0, 0, 1, _INDENT), expand=False))
    for line in numbers(found):
        _print_indented(line)
    console.print()


def _about_left_out(found: SearchResult) -> str:
    names = ", ".join(document.name for document in found.left_out[:3])
    others = len(found.left_out) - 3
    more = f" and {others} more" if others > 0 else ""
    encoder = found.encoder.name
    return f"Not searched: {names}{more}. Run `visar add FILE --encoder {encoder}` to include them."


def _print_quotes(answer: Answer) -> None:
    searched = answer.search.documents
    if not answer.found:
        refusal = nothing_found(answer.search)
        _print_indented(refusal, "bold")
        return
    if answer.search.strength == "weak":
        where = searched[0].name if len(searched) == 1 else f"these {len(searched)} documents"
        console.print(Text(f"  Weak match: the answer may not be in {where}.", "yellow"))
    names = {hit.document: hit.name for hit in answer.search.pages}
    for passage in answer.passages:
        prefix = f"{names[passage.document]}, " if len(searched) > 1 else ""
        _print_quote(passage, f"{prefix}page {passage.page}")
    if answer.problem is None:
        console.print("  [dim]Quoted directly. Use --generator for a written answer.[/dim]")


def _print_quote(passage: Passage, page: str) -> None:
    """Print a passage with its page: a table as a table, if it is not too wide."""
    rows = table_rows(passage.cells) if passage.cells else []
    if not rows or max(row.cell_len for row in rows) > console.width - _INDENT:
        _print_indented(Text.assemble(passage.text, (f"  {page}", "dim")))
        return
    title = table_title(passage)
    _print_indented(Text.assemble(f"{title}  " if title else "", (page, "dim")))
    for row in rows:
        _print_indented(row)


def _print_written(answer: Answer, generation: Generation) -> None:
    if answer.found:
        from rich.markdown import Markdown

        written = Markdown(clean_text(answer.text), hyperlinks=False)
        console.print(Padding(written, (0, 0, 0, _INDENT)), width=min(console.width, _WIDEST_TEXT))
    else:
        refusal = f"{answer.generator} didn't find the answer on these pages."
        _print_indented(refusal, "bold")
    if answer.found and generation.finish == "length":
        _print_indented("Cut off at the maximum length.", "yellow")
    if generation.note is not None:
        _print_indented(generation.note, "yellow")
    if answer.lacks_citations:
        _print_indented(NO_CITATION, "yellow")
    names = {known.id: known.name for known in answer.search.documents}
    lines: dict[str, str] = {}
    for cited in answer.citations:
        page = str(cited.page) if cited.was_given else cited.label
        if cited.was_given and len(names) > 1:
            page += f" of {names.get(cited.document or '', '')}"
        claim = clean_line(cited.claim, _LONGEST_CLAIM)
        doubt = f" ({cited.doubt}): {claim}" if cited.doubt else ""
        lines[f"[{cited.number}] page {page}{doubt}"] = "yellow" if doubt else ""
    for line, style in lines.items():
        _print_indented(line, style)
    _print_indented(_how(generation), "dim")


def _how(generation: Generation) -> str:
    sent = f"{counted(len(generation.pages), 'page')} sent"
    if generation.pixels:
        sent += f" ({generation.pixels / 1e6:.1f} megapixels)"
    parts = [f"Written by {generation.model}", sent]
    if generation.input_tokens is not None and generation.output_tokens is not None:
        parts.append(f"{generation.input_tokens} tokens in, {generation.output_tokens} out")
    parts.append(f"{generation.seconds:.1f} s")
    return " · ".join(parts)


def _page_line(found: SearchResult, hit: PageHit, printed: int, note: str = "") -> Text:
    line = Text.assemble((f"  {hit.page:>4}  ", "bold cyan"))
    if printed:
        line.append(f"{hit.label[:printed]:<{printed}}  ")
    if hit.probability is not None:
        bar = "█" * max(1, round(WIDEST_BAR * hit.probability))
        line.append(f"{hit.likelihood:<{LONGEST_WORD}} ")
        line.append(f"{bar:<{WIDEST_BAR}}  ", "cyan")
    if hit.beside is not None:
        note = f"(next to page {hit.beside}) "
    prefix = f"{hit.name}: " if len(found.documents) > 1 else ""
    width = max(20, min(console.width, 110) - len(line))
    return line.append(clean_line(f"{note}{prefix}{hit.snippet}", width))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, _INDENT), expand=False)


def _print_indented(line: str | Text, style: str = "") -> None:
    console.print(_indented(Text(line, style) if isinstance(line, str) else line))


def table_rows(cells: Sequence[QuotedCell]) -> list[Text]:
    """Return the rows of a quoted table as lines, with numbers aligned to the right."""
    texts = [_marked(cell) for cell in cells]
    widths = [0] * max(cell.column + cell.span for cell in cells)
    # Cells that span columns come last: they only widen columns that are too narrow.
    for cell, text in sorted(zip(cells, texts, strict=True), key=lambda pair: pair[0].span):
        last = cell.column + cell.span - 1
        widths[last] += max(0, cell_len(text) - _width(widths, cell))
    numeric = _numeric_columns(cells)
    lines = [Text() for _ in range(1 + max(cell.row for cell in cells))]
    for cell, text in sorted(zip(cells, texts, strict=True), key=lambda pair: pair[0].column):
        free = _width(widths, cell) - cell_len(text)
        before = free // 2 if cell.span > 1 else free if cell.column in numeric else 0
        line = lines[cell.row]
        line.append(" " * (_start(widths, cell.column) + before - line.cell_len))
        line.append(text, "bold" if cell.answer else "")
    return lines


def _marked(cell: QuotedCell) -> str:
    return f"{ANSWER_MARK if cell.answer else ''}{clean_line(cell.text)}"


def _start(widths: Sequence[int], column: int) -> int:
    return sum(widths[:column]) + _GAP * column


def _width(widths: Sequence[int], cell: QuotedCell) -> int:
    return sum(widths[cell.column : cell.column + cell.span]) + _GAP * (cell.span - 1)


def _numeric_columns(cells: Sequence[QuotedCell]) -> set[int]:
    """Return the columns most of whose cells below the headers are numbers."""
    columns: dict[int, list[bool]] = {}
    for cell in cells:
        if not cell.header and cell.span == 1 and cell.column:
            columns.setdefault(cell.column, []).append(bool(_NUMBER.fullmatch(cell.text)))
    return {column for column, numbers in columns.items() if 2 * sum(numbers) > len(numbers)}
