"""Answers as Markdown, for chat programs: quotes, tables, and links to pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from visar.generation import extractive
from visar.library import AnswerStream
from visar.results import NO_CITATION, Answer, Citation, Passage, QuotedCell
from visar.retrieval.wording import nothing_found
from visar.text import clean_line

PageUrl = Callable[[str, int], str]
"""Function that returns the URL of a page, given the document's id and the page number."""
# Quotes may be hostile: they must not become links, images or HTML.
_SPECIAL = re.compile(r"([\\`*_\[\]<>!#|~&])")
_LINK = re.compile(
    r"(?:^- \[\d+\] )?\[(?:\\.|[^\]\\])*\]\(\S+/api/v1/documents/\w+/pages/\d+/image\)"
    r"(?: \(unverified[^)]*\))?|^- \[\d+\] page \S+ \(unverified[^)]*\)",
    re.MULTILINE,
)

_UNCITED = f"*{NO_CITATION}*"


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a page in a text."""

    start: int
    """Position of its first character."""
    end: int
    """Position after its last character."""
    title: str
    url: str


@dataclass(slots=True)
class MarkdownAnswer:
    """The Markdown of an answer that is being written."""

    page_url: PageUrl
    text: str = ""
    links: list[Link] = field(default_factory=list)

    def write(self, stream: AnswerStream) -> Generator[str, None, Answer]:
        """Yield pieces of Markdown while the answer is written, and return the answer."""
        first = next(stream, "")
        # Quotes come as one piece. It is replaced by the passages, with their tables and links.
        second = next(stream, None)
        if second is not None:
            for piece in chain((first, second), stream):
                yield self._add(piece)
        answer = stream.answer
        if answer.problem is not None:
            yield self._add(f"{self._gap()}*{escape(clean_line(answer.problem))}*")
        if not answer.found:
            yield from self._say_not_found(answer)
        elif answer.generator == extractive.NAME:
            yield from self._quote(answer)
        else:
            yield from self._name_sources(answer)
        return answer

    def _say_not_found(self, answer: Answer) -> Iterator[str]:
        nearest = answer.search.pages[0]
        message = nothing_found(answer.search.documents, nearest)
        yield self._add(f"{self._gap()}{escape(message)}\n\n")
        yield self._link(nearest.name, nearest.document, nearest.page)

    def _quote(self, answer: Answer) -> Iterator[str]:
        names = {one.id: one.name for one in answer.search.documents}
        for passage in answer.passages:
            yield self._add(f"{self._gap()}{quote(passage)}\n\n")
            yield self._link(names[passage.document], passage.document, passage.page)

    def _name_sources(self, answer: Answer) -> Iterator[str]:
        """Yield the rest of a generator's answer, and a list of the pages it cites."""
        if answer.text.startswith(self.text) and len(answer.text) > len(self.text):
            yield self._add(answer.text[len(self.text) :])
        names = {one.id: one.name for one in answer.search.documents}
        separator = "\n\n"
        if answer.lacks_citations:
            yield self._add(f"{separator}{_UNCITED}")
        sources: dict[int, list[Citation]] = {}
        for cited in answer.citations:
            sources.setdefault(cited.number, []).append(cited)
        for number, citations in sources.items():
            document, page = citations[0].document, citations[0].page
            yield self._add(f"{separator}- [{number}] ")
            separator = "\n"
            if document is None or page is None:
                label = escape(clean_line(citations[0].label))
                yield self._add(f"page {label}")
            else:
                yield self._link(names[document], document, page)
            if doubt := next(filter(None, (one.doubt for one in citations)), ""):
                yield self._add(f" ({doubt})")

    def _add(self, piece: str) -> str:
        self.text += piece
        return piece

    def _gap(self) -> str:
        return "\n\n" if self.text else ""

    def _link(self, name: str, document: str, page: int) -> str:
        title, url = f"{clean_line(name)}, page {page}", self.page_url(document, page)
        start = len(self.text)
        link = self._add(f"[{escape(title)}]({url})")
        self.links.append(Link(start, len(self.text), title, url))
        return link


def quote(passage: Passage) -> str:
    """Return a passage as a Markdown quote, or as a table if it is from one."""
    if passage.cells:
        title = extractive.table_title(passage)
        return f"{escape(title)}\n\n{table(passage.cells)}".lstrip()
    return "\n".join(f"> {escape(line)}" for line in passage.text.splitlines())


def table(cells: Sequence[QuotedCell]) -> str:
    """Return quoted cells as a Markdown table. A wide cell is in the first of its columns."""
    width = max(cell.column + cell.span for cell in cells)
    header = [""] * width
    body: dict[int, list[str]] = {}
    for cell in sorted(cells, key=lambda one: (one.row, one.column)):
        text = escape(clean_line(cell.text))
        if cell.header:
            # Markdown has a single header row: repeat a wide header above each of its columns.
            for column in range(cell.column, cell.column + cell.span):
                header[column] = f"{header[column]} {text}".strip()
        else:
            row = body.setdefault(cell.row, [""] * width)
            row[cell.column] = f"**{text}**" if cell.answer else text
    rows = [header, ["---"] * width, *body.values()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escape(text: str) -> str:
    r"""Escape a text, so that Markdown shows it unchanged.

    >>> escape("a [link](x) <b> 2*3")
    'a \\[link\\](x) \\<b\\> 2\\*3'
    """
    return _SPECIAL.sub(r"\\\1", text)


def without_links(text: str) -> str:
    r"""Return the text of an answer without the links and quote marks of `MarkdownAnswer`.

    >>> without_links("Seven years [1].\n\n- [1] [a, page 2](http://h/api/v1/documents/f0/pages/2/image)")
    'Seven years [1].'
    >>> without_links("> Seven\\* years.\n\n[a, page 2](http://h/api/v1/documents/f0/pages/2/image)")
    'Seven* years.'
    """
    text = _LINK.sub("", text).replace(_UNCITED, "")
    text = re.sub(r"^> ", "", text, flags=re.MULTILINE)
    return re.sub(r"\\([\\`*_\[\]<>!#|~&])", r"\1", text).strip()
