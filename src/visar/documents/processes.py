"""Child processes: their environment, and Python ones that are asked over pipes.

Messages are JSON and raw bytes, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from typing import IO, Any, BinaryIO

from visar.text import clean_line

# The only variables that programs which read files are given: paths and languages, no secrets.
_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TMP", "TEMP", "TZ", "LANG", "LANGUAGE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
        *("PYTHONHOME", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE"),
        *("TESSDATA_PREFIX", "FONTCONFIG_FILE", "FONTCONFIG_PATH"),
        # Windows: without these no program starts or finds its files.
        *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROGRAMDATA"),
        *("PROGRAMFILES", "PROGRAMFILES(X86)", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    }
)
# These programs compute on one core, and numerical libraries reserve memory for each thread.
_SINGLE_THREADED = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"), "1"
)
# A process that has closed its pipe is about to end.
_DYING_SECONDS = 2.0
_HEADER = struct.Struct(">IQ")
_LONGEST_MESSAGE = 256_000_000


def child_environment() -> dict[str, str]:
    """The environment for a program that reads documents: no keys, tokens or passwords.

    Variables are passed on by name, so that a secret under any other name stays here.
    """
    passed = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _PASSED_ON or name.upper().startswith("LC_")
    }
    return passed | _SINGLE_THREADED


def last_line(complaint: str) -> str:
    """What a program says in the end, where most name the cause, fit for a message."""
    lines = complaint.strip().splitlines()
    return clean_line(lines[-1], 200) if lines else ""


def send(stream: BinaryIO, message: dict[str, Any], payload: bytes = b"") -> None:
    """Write a message, and bytes that go with it."""
    text = json.dumps(message).encode()
    stream.write(_HEADER.pack(len(text), len(payload)) + text)
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO, max_payload: int) -> tuple[dict[str, Any], bytes]:
    """Read what `send` wrote; EOFError when the other side is gone."""
    text_length, payload_length = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if text_length > _LONGEST_MESSAGE or payload_length > max_payload:
        raise EOFError(f"a message of {text_length} + {payload_length} bytes")
    message = json.loads(_exactly(stream, text_length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")  # noqa: TRY004 - of the other side's making
    return message, _exactly(stream, payload_length)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def answer_stream() -> BinaryIO:
    """In a child: the pipe for its answers. What libraries print goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


class ChildDied(Exception):
    """A child that ended instead of answering."""

    def __init__(self, code: int, *, late: bool) -> None:
        super().__init__(f"exit code {code}" if code >= 0 else signal.Signals(-code).name)
        self.code = code
        self.late = late
        """Whether it was ended because its time was over."""


class ChildProcess:
    """A module of this package run as a process, which ends with this object or program."""

    def __init__(self, module: str) -> None:
        # -P and the path: it imports what this program imports, and nothing from the folder it
        # happens to run in.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._popen = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment() | {"PYTHONPATH": path},
        )
        self._pipes = _pipe(self._popen.stdin), _pipe(self._popen.stdout)
        self._finalizer = weakref.finalize(self, _end, self._popen)

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(
        self, request: dict[str, Any], payload: bytes = b"", *, max_answer: int = 0, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and bytes; return the answer and its bytes, ``max_answer`` at most.

        Raises ChildDied if there is none in time.
        """
        requests, answers = self._pipes
        late = threading.Event()
        timer = threading.Timer(seconds, self._kill, [late])
        timer.daemon = True
        timer.start()
        try:
            send(requests, request, payload)
            return receive(answers, max_answer)
        except (EOFError, OSError, ValueError) as error:
            raise ChildDied(self._exit_code(), late=late.is_set()) from error
        except BaseException:
            # Interrupted: its answer would be taken for that of the next request.
            self._popen.kill()
            self._popen.wait()
            raise
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End it, also in the middle of a call from another thread."""
        self._popen.kill()

    def end(self) -> None:
        """End it, wait for it, and close its pipes."""
        self._finalizer()

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._popen.kill()

    def _exit_code(self) -> int:
        try:
            return self._popen.wait(_DYING_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()


def _pipe(stream: IO[bytes] | None) -> Any:
    assert stream is not None  # noqa: S101 - both were asked for
    return stream


def _end(popen: subprocess.Popen[bytes]) -> None:
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            # What was not sent to a dead process cannot be sent.
            with contextlib.suppress(OSError):
                pipe.close()
    popen.kill()
    popen.wait()
