"""The names of encoders: ``[KNOWN=]NAME[@REVISION][+patches][+authors][+poolN]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from visar.errors import InvalidOption

_POOL = re.compile(r"(.*)\+pool([^/]*)", re.DOTALL)
_PATCHES = "+patches"
_AUTHORS = "+authors"
_KNOWN = re.compile(r"([a-z][a-z0-9.-]*)=(.+)", re.DOTALL)
_FACTOR = re.compile(r"[1-9][0-9]{0,5}")
# After a port or within a path: before a host the sign belongs to a user and a password.
_ADDRESS = re.compile(r"(.+://(?:[^/@]+:[0-9]+|[^@]+/[^@]*))@([^@]*)")


@dataclass(frozen=True, slots=True)
class EncoderName:
    """The name of an encoder in its parts."""

    base: str
    """NAME in ``[KNOWN=]NAME[@REVISION][+patches][+authors][+poolN]``."""
    revision: str | None = None
    """A branch, tag or commit of a checkpoint at the hub."""
    patches: bool = False
    """Whether the vectors of the instruction are left out."""
    pool: int | None = None
    """How many vectors of a page become one."""
    authors: bool = False
    """Whether it runs as the paper's authors ran it, where that differs."""
    kind: str | None = None
    """KNOWN: the published encoder that a checkpoint is said to be."""

    @property
    def is_address(self) -> bool:
        return "://" in self.base

    @property
    def unpooled(self) -> str:
        """The name without ``+poolN``."""
        kind = "" if self.kind is None else f"{self.kind}="
        revision = "" if self.revision is None else f"@{self.revision}"
        parts = (_PATCHES if self.patches else "") + (_AUTHORS if self.authors else "")
        return f"{kind}{self.base}{revision}{parts}"

    @property
    def published(self) -> str:
        """The published encoder whose numbers its own can stand beside; else the whole name.

        >>> parse_name("colmodernvbert@main+authors").published
        'colmodernvbert'
        >>> parse_name("colpali=./mine").published, parse_name("colpali+patches").published
        ('colpali', 'colpali+patches')
        """
        if self.patches or self.pool is not None:
            return str(self)
        return self.kind or self.base

    def __str__(self) -> str:
        return self.unpooled if self.pool is None else f"{self.unpooled}+pool{self.pool}"


def parse_name(text: str) -> EncoderName:
    """Split the name of an encoder into its parts. The name of an existing folder has no parts.

    Raises InvalidOption if a part is missing, or given twice, or the factor is no whole number from
    2 on.

    >>> name = parse_name("vidore/colpali-v1.2@refs/pr/7+pool2")
    >>> name.base, name.revision, name.pool
    ('vidore/colpali-v1.2', 'refs/pr/7', 2)
    >>> name = parse_name("colmodernvbert+patches+authors")
    >>> name.base, name.patches, name.authors
    ('colmodernvbert', True, True)
    >>> parse_name("colpali=./my-colpali").kind
    'colpali'
    """
    known = None if _is_folder(text) else _KNOWN.fullmatch(text)
    if known is not None:
        return replace(parse_name(known[2]), kind=known[1])
    unpooled, pool = (text, None) if _is_folder(text) else _split_pool(text)
    unmarked, authors = _split_mark(unpooled, _AUTHORS)
    whole, patches = _split_mark(unmarked, _PATCHES)
    base, revision = (whole, None) if _is_folder(whole) else _split_revision(whole)
    # What was typed is not repeated: an address may hold a password.
    if not base:
        raise InvalidOption(
            "The encoder has no name: write NAME[@REVISION][+patches][+authors][+poolN]."
        )
    if pool is not None and not _is_folder(base) and _POOL.fullmatch(whole):
        raise InvalidOption("The encoder's name says twice that it is pooled: give one factor.")
    if revision == "":
        raise InvalidOption("The encoder's name has no revision after the @: add it.")
    return EncoderName(base, revision, patches, pool, authors)


def same_as_authors(name: str) -> InvalidOption:
    """Return the error for an encoder that the paper's authors ran as we do."""
    return InvalidOption(
        f"+authors runs ColModernVBERT as the paper's authors did; {name} has no such mode: leave "
        "it out."
    )


def _split_mark(text: str, mark: str) -> tuple[str, bool]:
    has_mark = text.endswith(mark) and not _is_folder(text)
    return (text.removesuffix(mark) if has_mark else text), has_mark


def _split_pool(text: str) -> tuple[str, int | None]:
    found = _POOL.fullmatch(text)
    if found is None:
        return text, None
    unpooled, factor = found[1], found[2]
    if not _FACTOR.fullmatch(factor) or int(factor) < 2:
        raise InvalidOption(
            f"Vectors are pooled by a whole number from 2 on, not by {factor!r}: write "
            "NAME[@REVISION]+poolN, such as colpali+pool3."
        )
    return unpooled, int(factor)


def _split_revision(text: str) -> tuple[str, str | None]:
    if "://" in text:
        found = _ADDRESS.fullmatch(text)
        return (found[1], found[2]) if found else (text, None)
    signs = [place for place, character in enumerate(text) if character == "@"]
    folders = [place for place in reversed(signs) if _is_folder(text[:place])]
    if folders:
        return text[: folders[0]], text[folders[0] + 1 :]
    if not signs or text.startswith((".", "/", "~")):
        return text, None  # a path that does not exist is reported as it was typed
    return text[: signs[0]], text[signs[0] + 1 :]


def _is_folder(name: str) -> bool:
    try:
        return bool(name) and Path(name).expanduser().is_dir()
    except (OSError, RuntimeError):  # a name too long for a path, the home of nobody
        return False
