"""OpenTelemetry spans for questions, in programs that use OpenTelemetry.

Spans contain counts and model names, never the text of a question, an answer or an error.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, TypeVar

from visar._version import __version__

T = TypeVar("T")


class Span:
    """A span; does nothing if the program doesn't use OpenTelemetry."""

    def __init__(self, name: str, attributes: Mapping[str, Any]) -> None:
        # Programs that export spans have imported it. Others shouldn't wait for the import.
        self._trace: Any = sys.modules.get("opentelemetry.trace")
        self.is_following = False
        """Whether the span ends with the pieces given to `follow`."""
        if self._trace is not None:
            self._span = self._trace.get_tracer("visar", __version__).start_span(name)
            self.set(attributes)

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes, except those that are None."""
        if self._trace is not None:
            known = {name: value for name, value in attributes.items() if value is not None}
            self._span.set_attributes(known)

    def follow(self, pieces: Generator[str, None, T]) -> Generator[str, None, T]:
        """Return a generator of the same pieces that ends the span when it ends or is closed."""
        self.is_following = True
        steps = self._steps(pieces)
        # Enter the generator: closing it now ends the span, even if no piece was read.
        next(steps)
        return steps

    def _steps(self, pieces: Generator[str, None, T]) -> Generator[str, None, T]:
        try:
            with closing(pieces):
                yield ""
                while True:
                    # Each step may run in another thread, so the span is current within it only.
                    with self.current():
                        try:
                            piece = next(pieces)
                        except StopIteration as end:
                            whole: T = end.value
                            return whole
                    yield piece
        except Exception as error:
            self.fail(error)
            raise
        finally:
            self.end()

    def current(self) -> AbstractContextManager[Any]:
        """Context manager: spans that start inside become children of this one."""
        if self._trace is None:
            return nullcontext()
        context: AbstractContextManager[Any] = self._trace.use_span(
            self._span, record_exception=False, set_status_on_exception=False
        )
        return context

    def fail(self, error: Exception) -> None:
        """Mark the span as failed, without the error's message."""
        if self._trace is not None:
            self.set({"error.type": type(error).__name__})
            self._span.set_status(self._trace.StatusCode.ERROR)

    def end(self) -> None:
        """End the span; a span that has ended stays as it is."""
        if self._trace is not None and self._span.is_recording():
            self._span.end()


@contextmanager
def span(name: str, attributes: Mapping[str, Any] | None = None) -> Iterator[Span]:
    """Context manager: a span that ends with the block, or with the pieces it follows."""
    new_span = Span(name, attributes or {})
    try:
        with new_span.current():
            yield new_span
    except Exception as error:
        new_span.fail(error)
        new_span.end()
        raise
    if not new_span.is_following:
        new_span.end()
