"""Parse the names of encoders, whose syntax is `GRAMMAR`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from visar.encoders.coding import CODINGS, CodingName
from visar.errors import InvalidOption

GRAMMAR = "[KNOWN=]NAME[@REVISION][+patches][+authors][+dimN][+poolN][+int8|+bits]"
_SUFFIX = re.compile(r"(.*)\+(patches|authors|int8|bits|(?:dim|pool)[^/+]*)", re.DOTALL)
_KNOWN = re.compile(r"([a-z][a-z0-9.-]*)=(.+)", re.DOTALL)
_NUMBER = re.compile(r"(dim|pool)([1-9][0-9]{0,5})")
# An @ after a port or in a path starts a revision; before the host it ends user and password.
_ADDRESS = re.compile(r"(.+://(?:[^/@]+:[0-9]+|[^@]+/[^@]*))@([^@]*)")


@dataclass(frozen=True, slots=True)
class EncoderName:
    """The parsed name of an encoder."""

    base: str
    """NAME in `GRAMMAR`."""
    revision: str | None = None
    """A branch, tag or commit of a checkpoint on the hub."""
    patches: bool = False
    """True to leave out the vectors of the instruction."""
    pool: int | None = None
    """The pooling factor: number of page vectors merged into one."""
    authors: bool = False
    """True to run it as the paper's authors did, where that differs."""
    kind: str | None = None
    """KNOWN in `GRAMMAR`: the published encoder that a checkpoint is declared to be."""
    dim: int | None = None
    """The number of leading components of each vector to keep."""
    coding: CodingName = "float16"
    """The coding of stored vectors."""

    @property
    def is_address(self) -> bool:
        return "://" in self.base

    @property
    def is_vllm(self) -> bool:
        """True for the address of a vLLM server."""
        return self.base.startswith("vllm+")

    @property
    def is_reduced(self) -> bool:
        """True if vectors are cut, pooled or stored with fewer bits."""
        return self.dim is not None or self.pool is not None or self.coding != "float16"

    @property
    def unreduced(self) -> str:
        """The name without ``+dimN``, ``+poolN``, ``+int8`` and ``+bits``."""
        kind = "" if self.kind is None else f"{self.kind}="
        revision = "" if self.revision is None else f"@{self.revision}"
        parts = ("+patches" if self.patches else "") + ("+authors" if self.authors else "")
        return f"{kind}{self.base}{revision}{parts}"

    @property
    def published(self) -> str:
        """The published encoder it is comparable to, or else the whole name.

        >>> parse_name("colmodernvbert@main+authors").published
        'colmodernvbert'
        >>> parse_name("colpali=./mine").published, parse_name("colpali+patches").published
        ('colpali', 'colpali+patches')
        """
        if self.patches or self.is_reduced:
            return str(self)
        return self.kind or self.base

    def __str__(self) -> str:
        dim = "" if self.dim is None else f"+dim{self.dim}"
        pool = "" if self.pool is None else f"+pool{self.pool}"
        coding = "" if self.coding == "float16" else f"+{self.coding}"
        return f"{self.unreduced}{dim}{pool}{coding}"


def parse_name(text: str) -> EncoderName:
    """Parse the name of an encoder. The name of an existing folder is never split.

    Raises InvalidOption if a part is missing, repeated or not a valid number.

    >>> name = parse_name("vidore/colpali-v1.2@refs/pr/7+pool2")
    >>> name.base, name.revision, name.pool
    ('vidore/colpali-v1.2', 'refs/pr/7', 2)
    >>> str(parse_name("colmodernvbert+int8+patches+dim64"))
    'colmodernvbert+patches+dim64+int8'
    >>> parse_name("colpali=./my-colpali").kind
    'colpali'
    """
    known = None if _is_folder(text) else _KNOWN.fullmatch(text)
    if known is not None:
        return replace(parse_name(known[2]), kind=known[1])
    whole, fields = text, dict[str, Any]()
    while not _is_folder(whole) and (found := _SUFFIX.fullmatch(whole)):
        if "@" in found[2] and _is_folder(_split_revision(whole)[0]):
            break  # the suffix belongs to the name of a folder, before its revision
        whole = found[1]
        for name, value in _parse_suffix(found[2]):
            if name in fields:
                mark = "+int8 or +bits" if name == "coding" else f"+{name}"
                raise InvalidOption(f"The encoder's name has more than one {mark}: remove one.")
            fields[name] = value
    base, revision = (whole, None) if _is_folder(whole) else _split_revision(whole)
    # Don't echo the input, because an address may contain a password.
    if not base:
        raise InvalidOption(f"The encoder's name is empty. Use the form {GRAMMAR}.")
    if revision == "":
        raise InvalidOption("The encoder's name has no revision after the @: add one.")
    return EncoderName(base, revision, **fields)


def no_authors_mode(name: str) -> InvalidOption:
    """Return the error for an encoder without an ``+authors`` mode."""
    return InvalidOption(f"{name} has no +authors mode, only ColModernVBERT does: remove +authors.")


def _parse_suffix(suffix: str) -> Iterator[tuple[str, Any]]:
    """Yield the field that a suffix sets, and its value."""
    number = _NUMBER.fullmatch(suffix)
    if suffix in ("patches", "authors"):
        yield suffix, True
    elif suffix in CODINGS:
        yield "coding", suffix
    elif number is None or (suffix.startswith("pool") and int(number[2]) < 2):
        form = "+poolN with N of at least 2" if suffix.startswith("pool") else "+dimN with N > 0"
        raise InvalidOption(
            f"Invalid suffix +{suffix} in the encoder's name: use {form}, such as colpali+pool3."
        )
    else:
        yield number[1], int(number[2])


def _split_revision(text: str) -> tuple[str, str | None]:
    if "://" in text:
        found = _ADDRESS.fullmatch(text)
        return (found[1], found[2]) if found else (text, None)
    signs = [index for index, character in enumerate(text) if character == "@"]
    folders = [index for index in reversed(signs) if _is_folder(text[:index])]
    if folders:
        return text[: folders[0]], text[folders[0] + 1 :]
    if not signs or text.startswith((".", "/", "~")):
        return text, None  # report a path that doesn't exist as it was typed
    return text[: signs[0]], text[signs[0] + 1 :]


def _is_folder(name: str) -> bool:
    try:
        return bool(name) and Path(name).expanduser().is_dir()
    except (OSError, RuntimeError):  # name too long, or ~user of an unknown user
        return False
