"""How an answer and the pages it rests on look in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.padding import Padding
from rich.text import Text

from visar.cli.output import console, errors, plain_table
from visar.retrieval.wording import nothing_found, numbers, why_so_many
from visar.generation import extractive
from visar.generation.protocol import Generator, OnText, ignore_text
from visar.results import Answer, Generation, PageHit, SearchResult
from visar.text import clean_line, counted

WIDEST_BAR = 5
LONGEST_WORD = len("possible")
PAGES_SHOWN = 10


@contextmanager
def shown_while_written(generator: str | Generator) -> Iterator[OnText]:
    """Show an answer on stderr while it is written, and take it away when it is done."""
    if generator == extractive.NAME:  # a quotation is there at once
        yield ignore_text
        return
    from rich.live import Live

    written = Text()
    with Live(console=errors, transient=True, refresh_per_second=12) as live:

        def show(piece: str) -> None:
            written.append(piece)
            live.update(_indented(written + " ▌"))

        yield show


def print_answer(answer: Answer) -> None:
    """The answer itself, and what it rests on."""
    console.print()
    if answer.generation is None:
        _print_quotes(answer)
    else:
        _print_written(answer, answer.generation)
    console.print()


def print_pages(found: SearchResult, *, why: bool = False) -> None:
    """The pages with what matched there, and how many there are; with ``why``, all numbers."""
    calibrated = found.calibration is not None
    shown = found.pages[:PAGES_SHOWN]
    # The numbers printed on pages, where a document has others than those of its file.
    printed = max((len(hit.label) for hit in shown), default=0)
    if printed:
        printed = max(printed, len("PRINTED"))
    heading = "PAGE  " + (f"{'PRINTED':<{printed}}  " if printed else "")
    chance = " " * (LONGEST_WORD + WIDEST_BAR + 3) if calibrated else ""
    console.print(f"  [bold]{heading}{chance}MATCH[/bold]")
    for hit in shown:
        console.print(_page_line(found, hit, printed), soft_wrap=True)
    if (following := len(found.pages) - PAGES_SHOWN) > 0:
        pages = "page follows" if following == 1 else "pages follow"
        console.print(Text(f"  {following} more {pages}: --json has all", "dim"), soft_wrap=True)
    if found.runner_up is not None:
        console.print(_page_line(found, found.runner_up, printed, "(runner-up) "), soft_wrap=True)
    console.print()
    if found.left_out:
        console.print(Text(f"  {_about_left_out(found)}", style="yellow"), soft_wrap=True)
    if not calibrated:
        console.print(_indented(Text(_about_calibration(found), style="dim")))
    if why:
        _print_numbers(found)
    more = "" if why else " · --why for the numbers"
    console.print(_indented(Text(f"{why_so_many(found)}{more}", style="dim")))


def _print_numbers(found: SearchResult) -> None:
    headings = ("PAGE", "PROBABILITY", "s_p", "LATE INTERACTION")
    table = plain_table(*headings, numbers=headings)
    for hit in (*found.pages[:PAGES_SHOWN], *([found.runner_up] if found.runner_up else [])):
        chance = "" if hit.probability is None else f"{hit.probability:.3f}"
        table.add_row(str(hit.page), chance, f"{hit.score:.4f}", f"{hit.late_interaction:.3f}")
    console.print(Padding(table, (0, 0, 1, 2), expand=False))
    for line in numbers(found):
        console.print(_indented(Text(line)))
    console.print()


def _about_calibration(found: SearchResult) -> str:
    return (
        f"{found.encoder.name} is not calibrated: the pages are in order, but how likely each is "
        "cannot be said (visar calibrate)."
    )


def _about_left_out(found: SearchResult) -> str:
    names = ", ".join(document.name for document in found.left_out[:3])
    others = len(found.left_out) - 3
    more = f" and {others} more" if others > 0 else ""
    encoder = found.encoder.name
    return (
        f"Left out: {names}{more}, without vectors of {encoder}. "
        f"To include: visar add FILE --encoder {encoder}"
    )


def _print_quotes(answer: Answer) -> None:
    searched = answer.search.documents
    if not answer.found:
        names = [document.name for document in searched]
        console.print(_indented(Text(nothing_found(names, answer.search.pages[0]), style="bold")))
        return
    if answer.search.strength == "weak":
        where = searched[0].name if len(searched) == 1 else f"these {len(searched)} documents"
        console.print(Text(f"  A weak match: the answer may not be in {where}.", style="yellow"))
    named_by = {hit.document: hit.name for hit in answer.search.pages}
    for passage in answer.passages:
        named = f"{named_by[passage.document]}, " if len(searched) > 1 else ""
        quoted = Text(passage.text)
        if passage.answer:
            quoted.stylize("bold", *passage.answer)
        console.print(_indented(Text.assemble(quoted, (f"  {named}page {passage.page}", "dim"))))
    console.print("  [dim]quoted from the pages: no language model was asked (--generator)[/dim]")


def _print_written(answer: Answer, generation: Generation) -> None:
    if answer.found:
        console.print(_indented(Text(answer.text, style="bold")))
    else:
        said = f"{answer.generator} does not find the answer on these pages."
        console.print(_indented(Text(said, style="bold")))
    if answer.found and not generation.complete:
        console.print(_indented(Text("It was cut off at the limit of its length.", "yellow")))
    if invented := [cited.label for cited in answer.citations if not cited.was_given]:
        cited = f"It cites page {', '.join(invented)}, which it was not given: check the answer."
        console.print(_indented(Text(cited, style="yellow")))
    console.print(_indented(Text(_how(answer, generation), style="dim")))


def _how(answer: Answer, generation: Generation) -> str:
    """Who wrote the answer from what, in one line."""
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
        note = f"(beside page {hit.beside}) "
    named = f"{hit.name}: " if len(found.documents) > 1 else ""
    width = max(20, min(console.width, 110) - len(line))
    return line.append(clean_line(f"{note}{named}{hit.snippet}", width))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)
