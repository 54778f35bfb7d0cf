"""Child processes: their environment, and requests to Python processes over pipes.

Messages consist of JSON and raw bytes.
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

# The only environment variables for programs that read files: paths and languages, no secrets.
_ALLOWED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "TMP", "TEMP", "TZ", "LANG", "LANGUAGE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
        *("PYTHONHOME", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE"),
        *("TESSDATA_PREFIX", "FONTCONFIG_FILE", "FONTCONFIG_PATH"),
        # On Windows, programs need these to start and to find their files.
        *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROGRAMDATA"),
        *("PROGRAMFILES", "PROGRAMFILES(X86)", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    }
)
# These programs use one core, and numerical libraries allocate memory for each thread.
_SINGLE_THREADED = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT"), "1"
)
# Timeout for a process that has closed its pipe to exit.
_DYING_SECONDS = 2.0
_HEADER = struct.Struct(">IQ")
_LONGEST_MESSAGE = 256_000_000


def child_environment() -> dict[str, str]:
    """Return the environment for a program that reads documents, without keys and passwords.

    It only contains known variables, so that no secret is passed on.
    """
    passed = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _ALLOWED_VARIABLES or name.upper().startswith("LC_")
    }
    return passed | _SINGLE_THREADED


def last_line(output: str) -> str:
    """Return the last line of a program's error output, safe to use in an error message."""
    lines = output.strip().splitlines()
    return clean_line(lines[-1], 200) if lines else ""


def send(stream: BinaryIO, message: dict[str, Any], payload: bytes = b"") -> None:
    text = json.dumps(message).encode()
    stream.write(_HEADER.pack(len(text), len(payload)) + text)
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO, max_payload: int) -> tuple[dict[str, Any], bytes]:
    """Read a message of `send`; raise EOFError if the other side has closed the pipe."""
    text_length, payload_length = _HEADER.unpack(_read_exactly(stream, _HEADER.size))
    if text_length > _LONGEST_MESSAGE or payload_length > max_payload:
        raise EOFError(f"a message of {text_length} + {payload_length} bytes")
    message = json.loads(_read_exactly(stream, text_length))
    if not isinstance(message, dict):
        raise ValueError("the message isn't an object")  # noqa: TRY004 - invalid data, not a bug
    return message, _read_exactly(stream, payload_length)


def _read_exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def answer_stream() -> BinaryIO:
    """Return the pipe for answers of a child; redirect the output of libraries to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


class ChildDied(Exception):
    """The end of a child process that didn't answer."""

    def __init__(self, code: int, *, late: bool) -> None:
        super().__init__(f"exit code {code}" if code >= 0 else signal.Signals(-code).name)
        self.code = code
        self.late = late
        """True if the process was killed because of a timeout."""


class ChildProcess:
    """A process that runs a Python module, and ends with this object or program."""

    def __init__(self, module: str) -> None:
        # -P and PYTHONPATH: the child imports the same modules as this program, and nothing from
        # the current folder.
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
        """Send a request; return the answer and its payload of at most ``max_answer`` bytes.

        Raises ChildDied if the process ends or doesn't answer in time.
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
            # After an interruption, the answer could be mistaken for that of the next request.
            self._popen.kill()
            self._popen.wait()
            raise
        finally:
            timer.cancel()

    def kill(self) -> None:
        """Kill the process, even during a request from another thread."""
        self._popen.kill()

    def end(self) -> None:
        """Kill the process, wait for it, and close its pipes."""
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
    assert stream is not None  # noqa: S101 - both are pipes
    return stream


def _end(popen: subprocess.Popen[bytes]) -> None:
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            # Closing flushes, which fails if the process is dead.
            with contextlib.suppress(OSError):
                pipe.close()
    popen.kill()
    popen.wait()
