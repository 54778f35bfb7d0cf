"""Everything ViSAR refuses to do, said so that the reader knows what to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from visar._version import DISTRIBUTION


def install_hint(extra: str = "") -> str:
    """Return the command that installs ViSAR with an extra.

    >>> print(install_hint("ocr"))
    pip install 'visar-rag[ocr]'
    >>> print(install_hint())
    pip install visar-rag
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


class VisarError(Exception):
    """Base class of every error that ViSAR raises on purpose."""

    code: str = "failed"
    """The kind of error for programs, as servers send it. It never changes."""

    def __reduce__(self) -> tuple[object, ...]:
        # Made anew from its message: processes send errors to each other, whatever arguments the
        # constructors of subclasses take.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[VisarError], args: tuple[object, ...], state: dict[str, object]
) -> VisarError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidVectors(VisarError, ValueError):
    """Embeddings of the wrong shape, kind, length or content."""


class InvalidOption(VisarError, ValueError):
    """An option outside its range."""

    code = "invalid"


class EmptyQuestion(VisarError, ValueError):
    """A question without anything to look for."""

    code = "empty_question"


class DamagedModel(VisarError):
    """A model file that is not the one this version knows."""


class EncoderUnavailable(VisarError, ImportError):
    """An encoder whose packages are not installed."""


class GeneratorUnavailable(VisarError, ImportError):
    """A generator whose packages or settings are missing."""


class ReaderError(VisarError):
    """A reader that is not installed, cannot be made, or fails."""


class GenerationError(VisarError):
    """An answer that could not be had: the message says from whom, why, and what to do."""

    code = "generator"


class PromptTooLong(GenerationError):
    """A prompt that does not fit into a model's context."""

    share: float = 0.5
    """The share of it that fits; half where the model does not tell."""


class CheckpointError(VisarError):
    """A model's checkpoint that is not to be had, or is of a kind that cannot be used."""


class OutOfMemory(VisarError, MemoryError):
    """A single page that does not fit into the memory of a device."""


class MissingExtra(VisarError, ImportError):
    """An optional part is not installed."""

    code = "extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: {install_hint(extra)}")
        self.extra = extra


@contextmanager
def extra_needed(what: str, extra: str) -> Iterator[None]:
    """Raise MissingExtra if what is imported in the block is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(what, extra) from error


class StoreError(VisarError):
    """The index cannot do what was asked, or holds what it should not."""

    code = "index"


class NotAnIndex(StoreError):
    """The place does not hold an index this version of ViSAR can read."""


class NotInIndex(StoreError, LookupError):
    """No such document in the index, or no such vectors for it."""

    code = "not_found"


class DocumentError(VisarError):
    """A document that cannot be read; the message names it and says why."""

    code = "document"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}.")
        self.name = name


class EncryptedDocument(DocumentError):
    """A document that needs a password, or another one."""

    code = "password"

    HINT = "Give its password with --password, or VISAR_PASSWORD in the environment"

    def __init__(self, name: str, *, wrong_password: bool) -> None:
        state = (
            "is encrypted, and the password does not open it" if wrong_password else "is encrypted"
        )
        super().__init__(name, f"{state}. {self.HINT}")


class PageError(DocumentError):
    """A page that cannot be read; the others of its document may be fine."""

    def __init__(self, name: str, page: int, reason: str) -> None:
        super().__init__(f"{name}, page {page},", reason)
        self.name = name
        self.page = page


class CalibrationError(VisarError):
    """A calibration that cannot be read, written or fitted; the message says what to do."""


class DatasetError(VisarError):
    """A benchmark, or corrections to it, that cannot be had or used; the message says where."""


class MalformedMessage(VisarError, ValueError):
    """A message between an encoder's service and its user that is not as the format says."""


class ServiceError(VisarError):
    """An encoder's service that cannot be started, reached or used; the message says what to do."""


class NotARun(VisarError):
    """The folder does not hold an evaluation's run that this version of ViSAR can read."""


def error_from_code(code: str, message: str) -> VisarError:
    """Return the error that a server reports, of the class that the library there raised."""
    kinds = (
        InvalidOption,
        EmptyQuestion,
        GenerationError,
        StoreError,
        NotInIndex,
        DocumentError,
        EncryptedDocument,
    )
    kind = next((one for one in kinds if one.code == code), ServiceError)
    return _restored(kind, (message,), {})
