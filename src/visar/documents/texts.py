"""Reading text, Markdown, HTML, CSV, TSV and email files, in the worker process."""

from __future__ import annotations

import codecs
import csv
import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from pathlib import Path

from visar.documents.finding import TEXT_CONTROLS, TextFormat
from visar.documents.html import read_html
from visar.documents.parts import Contents, Grid, Paragraph, Part, grid_parts
from visar.documents.worker import ReadError
from visar.text import clean_line

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*["']?([\w.-]{2,30})"""
)
_HEAD = 2048
_DELIMITERS = ",;\t|"
_TAB = 8
# A gap between columns that are aligned with spaces or tabs.
_ALIGNED = re.compile(r"\S(?: {2,}|\t)\S")
_SAMPLE_LINES = 50
_SHOWN_HEADERS = ("From", "To", "Cc", "Date")
_LONGEST_HEADER = 2_000
_MAX_ATTACHMENTS = 100


def read_text(path: Path, text_format: TextFormat) -> Contents:
    """Return the contents of a text file; raise ReadError if it is binary."""
    content = path.read_bytes()
    if text_format == "email":
        return _read_email(content)
    text = decode(content)
    if text_format == "html":
        return read_html(text)
    if text_format == "markdown":
        return _read_markdown(text)
    if text_format in ("csv", "tsv"):
        return Contents(_read_table(text, "\t" if text_format == "tsv" else None))
    return Contents(_paragraphs(text))


def decode(content: bytes) -> str:
    r"""Decode UTF-8, UTF-16 with a byte order mark, the charset of HTML, or else Windows-1252.

    >>> decode(b"\xff\xfeh\0i\0"), decode("né".encode()), decode(b"n\xe9 \x80")
    ('hi', 'né', 'né €')
    """
    text = _decode_text(content)
    if TEXT_CONTROLS.search(text):
        raise ReadError("broken", "is binary or has an unknown encoding: save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_text(content: bytes) -> str:
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    named = _CHARSET.search(content[:_HEAD])
    for encoding in ("utf-8", named[1].decode("ascii") if named else "cp1252"):
        try:
            return content.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    return content.decode("cp1252", "replace")


def _paragraphs(text: str) -> Iterator[Part]:
    """Yield the paragraphs between blank lines; keep the spaces of aligned columns."""
    for part in re.split(r"\n[^\S\n]*(?:\n[^\S\n]*)+|\f", text):
        lines = part.rstrip().strip("\n").split("\n")
        fixed = sum(_ALIGNED.search(line.strip()) is not None for line in lines) > 1
        if fixed:
            yield Paragraph("\n".join(line.expandtabs(_TAB) for line in lines), fixed=True)
        elif any(lines):
            yield Paragraph("\n".join(line.strip() for line in lines))


def _read_markdown(text: str) -> Contents:
    from markdown_it import MarkdownIt

    # Embedded HTML is kept, and read like any other HTML, without scripts.
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    head, _, rest = text.partition("\n")
    if head.strip() == "---" and "\n---" in rest:  # front matter
        _, _, rest = rest.partition("\n---")
        text = rest.partition("\n")[2]
    contents = read_html(parser.render(text))
    title = next(
        (p.text for p in contents.parts if isinstance(p, Paragraph) and p.heading == 1), ""
    )
    return Contents(contents.parts, {"title": title} if title else {})


def _read_table(text: str, delimiter: str | None) -> Iterator[Part]:
    lines = text.split("\n")
    # The default limit is too low for long fields.
    csv.field_size_limit(max(len(text), 1))
    sample = lines[:_SAMPLE_LINES]
    if delimiter is None and sample[0].lower().startswith("sep=") and len(sample[0]) == 5:
        delimiter, lines = sample[0][4], lines[1:]
    chosen = delimiter or _delimiter(sample)
    # Quoted fields may contain line breaks.
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=chosen)
    try:
        yield from grid_parts([[" ".join(cell.split()) for cell in row] for row in reader])
    except csv.Error as error:
        raise ReadError("broken", f"isn't a valid table: {error}") from error


def _delimiter(lines: list[str]) -> str:
    """Return the delimiter with the most consistent number of columns."""

    def score(delimiter: str) -> tuple[int, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        usual = max(set(counts), key=counts.count, default=1)
        return counts.count(usual) if usual > 1 else 0, usual

    return max(_DELIMITERS, key=score)


def _read_email(content: bytes) -> Contents:
    message = email.message_from_bytes(content, policy=email.policy.default)
    subject = _header(message, "Subject")
    sender, date = _header(message, "From"), _header(message, "Date")
    parts: list[Part] = [Paragraph(subject, heading=1)] if subject else []
    headers = [(name, value) for name in _SHOWN_HEADERS if (value := _header(message, name))]
    attachments = [clean_line(name) for part in message.walk() if (name := part.get_filename())]
    if attachments:
        headers.append(("Attachments", ", ".join(attachments[:_MAX_ATTACHMENTS])))
    parts += [Grid(headers)] if headers else []
    body = message.get_body(("plain", "html"))
    if body is not None:
        parts += _body(body)
    metadata: dict[str, str | int] = {"title": subject, "author": sender}
    if year := re.search(r"\b(?:19|20)\d\d\b", date):
        metadata["year"] = int(year[0])
    return Contents(parts, {name: value for name, value in metadata.items() if value})


def _header(message: EmailMessage, name: str) -> str:
    # The standard library raises many types of errors for malformed headers.
    try:
        return clean_line(str(message.get(name, "")), _LONGEST_HEADER)
    except Exception:
        return ""


def _body(body: MIMEPart) -> Iterator[Part]:
    content = body.get_payload(decode=True)
    content = content if isinstance(content, bytes) else b""
    charset = body.get_content_charset() or "utf-8"
    try:
        text = decode(content.decode(charset).encode())
    except (UnicodeError, LookupError):
        text = decode(content)
    yield from (
        read_html(text).parts if body.get_content_subtype() == "html" else _paragraphs(text)
    )
