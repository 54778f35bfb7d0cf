"""The exceptions of ViSAR, whose messages say what happened and what to do."""

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
    """Base class of all errors that ViSAR raises on purpose."""

    code: str = "failed"
    """Stable code of the error for programs, which servers send."""

    def __reduce__(self) -> tuple[object, ...]:
        # Errors must be picklable, but the constructors of subclasses take different arguments.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(
    kind: type[VisarError], args: tuple[object, ...], state: dict[str, object]
) -> VisarError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidVectors(VisarError, ValueError):
    """Embeddings with an invalid shape, type, length or content."""


class InvalidOption(VisarError, ValueError):
    """An invalid option or argument."""

    code = "invalid"


class EmptyQuestion(VisarError, ValueError):
    """A question without any words to search for."""

    code = "empty_question"


class DamagedModel(VisarError):
    """A model file whose content isn't the expected one."""


class EncoderUnavailable(VisarError, ImportError):
    """An encoder whose packages are not installed."""


class EncoderError(VisarError):
    """An encoder that failed on pages or a question."""


class GeneratorUnavailable(VisarError, ImportError):
    """A generator whose packages or settings are missing."""


class ReaderError(VisarError):
    """A reader that isn't installed, can't be loaded, or fails."""


class GenerationError(VisarError):
    """A generator that failed to write an answer."""

    code = "generator"


class PromptTooLong(GenerationError):
    """A prompt that doesn't fit into a model's context."""

    share: float = 0.5
    """Share of the prompt that fits, or half if it is unknown."""


class CheckpointError(VisarError):
    """A checkpoint of a model that can't be found, downloaded or used."""


class OutOfMemory(VisarError, MemoryError):
    """A single page that doesn't fit into the memory of a device."""


class MissingExtra(VisarError, ImportError):
    """An optional dependency that isn't installed."""

    code = "extra"

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: {install_hint(extra)}")
        self.extra = extra


@contextmanager
def extra_needed(feature: str, extra: str) -> Iterator[None]:
    """Convert an ImportError in the block to MissingExtra."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(feature, extra) from error


class StoreError(VisarError):
    """An index that failed, is damaged, or can't do a request."""

    code = "index"


class DiskFull(StoreError):
    """A full disk."""

    code = "disk_full"


class ReadOnlyIndex(StoreError):
    """An index, or a disk, that can't be written."""

    code = "read_only"


class NotAnIndex(StoreError):
    """A location without an index that this version of ViSAR can read."""


class NotInIndex(StoreError, LookupError):
    """A document, page or vectors that aren't in the index."""

    code = "not_found"


class DocumentError(VisarError):
    """A document that can't be read; the message names it and the reason."""

    code = "document"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}.")
        self.reason = reason
        self.name = name


class EncryptedDocument(DocumentError):
    """A document that needs a password, or whose password is wrong."""

    code = "password"

    HINT = "Give its password with --password, or VISAR_PASSWORD in the environment"

    def __init__(self, name: str, *, wrong_password: bool) -> None:
        problem = "is encrypted, and the password is wrong" if wrong_password else "is encrypted"
        super().__init__(name, f"{problem}. {self.HINT}")


class PageError(DocumentError):
    """A page that can't be read; other pages of its document may be fine."""

    def __init__(self, name: str, page: int, reason: str) -> None:
        super().__init__(f"{name}, page {page},", reason)
        self.name = name
        self.page = page


class CalibrationError(VisarError):
    """A calibration that can't be read, written or fitted."""


class DatasetError(VisarError):
    """A benchmark, or corrections to it, that can't be found, downloaded or used."""


class MalformedMessage(VisarError, ValueError):
    """An invalid message between a remote encoder and its client."""


class ServiceError(VisarError):
    """A service that can't be started, reached or used."""


class NotARun(VisarError):
    """A folder without an evaluation run that this version of ViSAR can read."""


def error_from_code(code: str, message: str) -> VisarError:
    """Return the error that a server reports, with the class of its code."""
    kinds = (
        InvalidOption,
        EmptyQuestion,
        GenerationError,
        StoreError,
        DiskFull,
        ReadOnlyIndex,
        NotInIndex,
        DocumentError,
        EncryptedDocument,
    )
    kind = next((one for one in kinds if one.code == code), ServiceError)
    return _restore(kind, (message,), {})
