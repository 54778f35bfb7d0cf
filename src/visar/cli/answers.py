"""How an answer and the pages it rests on look in the terminal."""

from __future__ import annotations

from itertools import chain

from rich.padding import Padding
from rich.text import Text

from visar.cli.output import complain, console, errors, plain_table
from visar.cli.tables import table_rows, table_title
from visar.library import AnswerStream
from visar.results import Answer, Generation, PageHit, Passage, SearchResult
from visar.retrieval.wording import nothing_found, numbers
from visar.text import clean_line, counted

WIDEST_BAR = 5
LONGEST_WORD = len("possible")
PAGES_SHOWN = 10
NEAREST_SHOWN = 3
_INDENT = 2


def read_answer(stream: AnswerStream) -> Answer:
    """Return an answer when it is complete; at a terminal, show it while it is written."""
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


def warn_if_interrupted(answer: Answer) -> bool:
    """Say if a model's reply broke off before its end; return whether it did."""
    generation = answer.generation
    if generation is None or generation.finish != "interrupted":
        return False
    complain(f"The reply of {generation.model} broke off. Ask again for the rest.")
    return True


def print_answer(answer: Answer) -> None:
    """Print an answer, and the passages or pages it rests on."""
    console.print()
    if answer.generation is None:
        _print_quotes(answer)
    else:
        _print_written(answer, answer.generation)
    console.print()


def print_pages(found: SearchResult, *, why: bool = False) -> None:
    """Print the pages with their best lines, and the reason for their number."""
    calibrated = found.calibration is not None
    shown = _pages_shown(found)
    # Printed page numbers, if a document has any that differ.
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
        console.print(Text(f"  {_about_left_out(found)}", style="yellow"), soft_wrap=True)
    if not calibrated:
        console.print(_indented(Text(_about_calibration(found), style="dim")))
    if why:
        _print_numbers(found)
    hint = "" if why else " · --why for the numbers"
    console.print(_indented(Text(f"{found.summary}{hint}", style="dim")))


def _pages_shown(found: SearchResult) -> tuple[PageHit, ...]:
    """Return the pages to list: the three nearest if none is likely to help."""
    return found.pages[: NEAREST_SHOWN if found.strength == "none" else PAGES_SHOWN]


def _print_numbers(found: SearchResult) -> None:
    headings = ("PAGE", "PROBABILITY", "s_p", "LATE INTERACTION")
    table = plain_table(*headings, numbers=headings)
    for hit in (*_pages_shown(found), *([found.runner_up] if found.runner_up else [])):
        chance = "" if hit.probability is None else f"{hit.probability:.3f}"
        table.add_row(str(hit.page), chance, f"{hit.score:.4f}", f"{hit.late_interaction:.3f}")
    console.print(Padding(table, (0, 0, 1, 2), expand=False))
    for line in numbers(found):
        console.print(_indented(Text(line)))
    console.print()


def _about_calibration(found: SearchResult) -> str:
    return (
        f"{found.encoder.name} isn't calibrated, so the pages have no probability. Run "
        "`visar calibrate` to add it."
    )


def _about_left_out(found: SearchResult) -> str:
    names = ", ".join(document.name for document in found.left_out[:3])
    others = len(found.left_out) - 3
    more = f" and {others} more" if others > 0 else ""
    encoder = found.encoder.name
    return (
        f"Not searched: {names}{more}, without vectors of {encoder}. "
        f"Run `visar add FILE --encoder {encoder}` to include them."
    )


def _print_quotes(answer: Answer) -> None:
    searched = answer.search.documents
    if not answer.found:
        refusal = nothing_found(searched, answer.search.pages[0])
        console.print(_indented(Text(refusal, style="bold")))
        return
    if answer.search.strength == "weak":
        where = searched[0].name if len(searched) == 1 else f"these {len(searched)} documents"
        console.print(Text(f"  Weak match: the answer may not be in {where}.", style="yellow"))
    named_by = {hit.document: hit.name for hit in answer.search.pages}
    for passage in answer.passages:
        named = f"{named_by[passage.document]}, " if len(searched) > 1 else ""
        _print_quote(passage, f"{named}page {passage.page}")
    console.print("  [dim]Quoted directly. Use --generator for a written answer.[/dim]")


def _print_quote(passage: Passage, page: str) -> None:
    """Print a passage with its page: a table as a table, if it is not too wide."""
    rows = table_rows(passage.cells) if passage.cells else []
    if not rows or max(row.cell_len for row in rows) > console.width - _INDENT:
        console.print(_indented(Text.assemble(passage.text, (f"  {page}", "dim"))))
        return
    title = table_title(passage)
    console.print(_indented(Text.assemble(f"{title}  " if title else "", (page, "dim"))))
    for row in rows:
        console.print(_indented(row))


def _print_written(answer: Answer, generation: Generation) -> None:
    if answer.found:
        console.print(_indented(Text(answer.text, style="bold")))
    else:
        said = f"{answer.generator} didn't find the answer on these pages."
        console.print(_indented(Text(said, style="bold")))
    if answer.found and generation.finish == "length":
        console.print(_indented(Text("Cut off: it reached its maximum length.", "yellow")))
    if generation.note is not None:
        console.print(_indented(Text(generation.note, "yellow")))
    if invented := [cited.label for cited in answer.citations if not cited.was_given]:
        cited = f"It cites page {', '.join(invented)}, which it wasn't given. Check the answer."
        console.print(_indented(Text(cited, style="yellow")))
    console.print(_indented(Text(_how(answer, generation), style="dim")))


def _how(answer: Answer, generation: Generation) -> str:
    """Return the model, the pages and the cost of an answer, in one line."""
    parts = [f"written by {generation.model}"]
    if read := [
        _page_name(answer, cited.document, cited.page)
        for cited in answer.citations
        if cited.was_given
    ]:
        parts.append(f"from page{'s' if len(read) > 1 else ''} {', '.join(read)}")
    sent = f"{counted(len(generation.pages), 'page')} sent"
    if generation.pixels:
        sent += f" ({generation.pixels / 1e6:.1f} megapixels)"
    parts.append(sent)
    if generation.input_tokens is not None and generation.output_tokens is not None:
        parts.append(f"{generation.input_tokens} tokens in, {generation.output_tokens} out")
    parts.append(f"{generation.seconds:.1f} s")
    return " · ".join(parts)


def _page_name(answer: Answer, document: str | None, page: int | None) -> str:
    if len(answer.search.documents) == 1:
        return str(page)
    names = {known.id: known.name for known in answer.search.documents}
    return f"{page} of {names.get(document or '', '')}"


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
    named = f"{hit.name}: " if len(found.documents) > 1 else ""
    width = max(20, min(console.width, 110) - len(line))
    return line.append(clean_line(f"{note}{named}{hit.snippet}", width))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, _INDENT), expand=False)
