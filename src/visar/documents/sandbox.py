"""A sandbox for the processes that read documents: Landlock for files, seccomp for the rest.

A process restricts itself permanently before it reads the first byte of a document. Afterwards it
can only open its document and the libraries it needs. It can't open sockets, start programs
(unless it is meant to), or access other processes.

If the kernel doesn't support a part (Landlock needs Linux 5.13), the process runs without it, and
`visar doctor` reports that. If a supported part fails, the process ends.

As a script, this file restricts itself and then executes another program. It only imports the
standard library, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

# Public system files: libraries, fonts, the type of processor.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/gnu/store"),
    *("/usr/share", "/usr/local/share", "/var/cache/fontconfig"),
    *("/etc/fonts", "/etc/ld.so.cache", "/etc/localtime"),
    *("/etc/libreoffice", "/var/lib/libreoffice", "/var/spool/libreoffice"),
    *("/dev/urandom", "/dev/random", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
_PROGRAMS = ("/bin", "/usr/bin", "/usr/libexec")
_USER_FONTS = ("~/.fonts", "~/.local/share/fonts")
_DEVICES = ("/dev/null", "/dev/zero")
# Variables of `processes.child_environment` that contain paths.
_VARIABLES = ("LD_LIBRARY_PATH", "TESSDATA_PREFIX", "FONTCONFIG_FILE", "FONTCONFIG_PATH")

_Calls: TypeAlias = dict[str, tuple[int | None, int | None]]


def _numbers(*lines: str) -> _Calls:
    """Parse system calls and their numbers on x86_64 and aarch64, which lacks the oldest."""
    calls: _Calls = {}
    for call in ", ".join(lines).split(", "):
        name, first, second = call.split()
        calls[name] = int(first), None if second == "-" else int(second)
    return calls


_BLOCKED_CALLS = _numbers(
    # New connections.
    "connect 42 203",
    # Changes to files that Landlock doesn't cover.
    "chmod 90 -, fchmod 91 52, fchmodat 268 53",
    "chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54",
    "utime 132 -, utimes 235 -, futimesat 261 -",
    "utimensat 280 88, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7",
    "removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16",
    "truncate 76 45, name_to_handle_at 303 264, open_by_handle_at 304 265",
    # Other processes, and shared memory and messages.
    "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271",
    "pidfd_open 434 434, pidfd_getfd 438 438, pidfd_send_signal 424 424",
    "rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240",
    "shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186",
    "mq_open 240 180",
    # A process that leaves its group would survive the end of the group.
    "setsid 112 157, setpgid 109 154",
    # Features of the kernel that reading documents doesn't need.
    "add_key 248 217, request_key 249 218, keyctl 250 219",
    "bpf 321 280, perf_event_open 298 241, userfaultfd 323 282",
    "unshare 272 97, setns 308 268",
)
_BLOCKED_FOR_READERS = _numbers(
    "socket 41 198, socketpair 53 199, creat 85 -, fork 57 -, vfork 58 -",
    "execve 59 221, execveat 322 281, kill 62 129, tkill 200 130",
)
# The first makes calls that bypass the filter; the others have arguments in memory, which the
# filter can't read. The C library works without them.
_MISSING_CALLS = _numbers("io_uring_setup 425 425, openat2 437 437, clone3 435 435")
# Allowed only with some arguments.
_CONDITIONAL_CALLS = _numbers(
    "open 2 -, openat 257 56, clone 56 220, tgkill 234 131, prlimit64 302 261",
    "socket 41 198, socketpair 53 199, access 21 -, faccessat 269 48",
)
# The kernel's code for an architecture, and its column in the tables above.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Calls that are newer than the tables are also reported as missing.
_FIRST_UNKNOWN = 449

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD, _CLONE_NAMESPACES = 0x10000, 0x7E020000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES, _TRUNCATE, _IOCTL = 1 << 6 | 1 << 11, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
# Number of rights in each version of Landlock, from version 0.
_RIGHTS = (0, 13, 14, 15, 15, 16)
_TCP, _ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11

_PR_SET_SECCOMP, _SECCOMP_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_CAPABILITIES_3 = 0x20080522
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, with which root can read the files of all users.
_ALLOWED_CAPABILITIES = 0b110


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The parts of the sandbox that this system supports."""

    files: bool
    """True if Landlock can restrict the files that a process opens."""
    calls: bool
    """True if seccomp can block sockets, programs and access to other processes."""


def detect_sandbox() -> Sandbox:
    """Return the parts of the sandbox that this system supports."""
    if sys.platform != "linux":
        return Sandbox(files=False, calls=False)
    # With a null filter, a kernel that supports filters returns EFAULT.
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_FILTER, None, 0, 0)
    filters = ctypes.get_errno() == errno.EFAULT and platform.machine() in _MACHINES
    return Sandbox(files=_landlock_version() > 0, calls=filters)


def restrict(
    readable: Iterable[str | os.PathLike[str]],
    writable: Iterable[str | os.PathLike[str]] = (),
    *,
    programs: bool = False,
) -> None:
    """Permanently restrict this process, its future threads and its children.

    This must be called before other threads start. ``readable`` and ``writable`` are files, and
    folders with their contents, in addition to Python and the system's libraries. ``programs``
    allows starting programs of the system and in readable folders; without it, the process can't
    write. Raises OSError if the kernel supports a part of the sandbox, but it fails.
    """
    if sys.platform != "linux":
        return
    sandbox = detect_sandbox()
    _call_or_raise("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities()
    if sandbox.files:
        _restrict_files(readable, writable, programs=programs)
    if sandbox.calls:
        _restrict_calls(programs=programs)


def limit_memory(size: int) -> None:
    """Limit this process's address space, where it works: macOS and Windows have no such limit."""
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        size = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def sandbox_command(
    command: Sequence[str], folder: Path | None = None, memory: int | None = None
) -> list[str]:
    """Return a command that runs another one, a program by its path, in the sandbox.

    ``folder`` is the only folder that it may read and write, besides libraries and programs, and
    ``memory`` the limit of its address space in bytes.
    """
    if sys.platform != "linux":
        return list(command)
    launch = json.dumps({"folder": folder and str(folder), "memory": memory})
    return [sys.executable, "-I", __file__, launch, *command]


def _main() -> None:
    launch, *command = sys.argv[1:]
    settings = json.loads(launch)
    if settings["memory"] is not None:
        limit_memory(settings["memory"])
    folders = [settings["folder"]] if settings["folder"] else []
    restrict(_installation(command[0]), folders, programs=True)
    os.execv(command[0], command)  # noqa: S606


def _installation(program: str) -> Iterator[Path]:
    """Yield the folders of a program, such as /opt/libreoffice/program and …/share."""
    for path in {Path(program), Path(program).resolve()}:
        yield path.parent
        yield from (path.parent.parent / name for name in ("lib", "share", "presets"))


def _libraries() -> Iterator[Path]:
    """Yield the folders that Python imports from, except the folder of a user's script."""
    for prefix in {sys.prefix, sys.base_prefix}:
        yield from (Path(prefix, name) for name in ("bin", "lib", "lib64", "pyvenv.cfg"))
    yield Path(__file__).parents[1]
    for entry in map(Path, filter(None, sys.path)):
        if next(entry.glob("*.dist-info"), None):
            yield entry


# Landlock


def _landlock_version() -> int:
    return _call("syscall", _LANDLOCK_CREATE, None, 0, 1)


def _restrict_files(
    readable: Iterable[str | os.PathLike[str]],
    writable: Iterable[str | os.PathLike[str]],
    *,
    programs: bool,
) -> None:
    version = _landlock_version()
    handled = (1 << _RIGHTS[min(version, len(_RIGHTS) - 1)]) - 1
    reading = _READ_FILE | _READ_DIR
    rules = struct.pack(
        "=QQQ",
        handled,
        _TCP if version >= 4 else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
    )
    ruleset = _call_or_raise("syscall", _LANDLOCK_CREATE, rules, len(rules), 0)
    try:
        libraries = reading | _EXECUTE if programs else reading
        own: list[str | os.PathLike[str]] = [*_SYSTEM, *_libraries()]
        for variable in _VARIABLES:
            own += filter(None, os.environ.get(variable, "").split(os.pathsep))
        if programs:
            own += [*_PROGRAMS, *map(os.path.expanduser, _USER_FONTS), *readable]
        else:
            _allow(ruleset, readable, reading)
        _allow(ruleset, own, libraries)
        _allow(ruleset, _DEVICES, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
        _allow(ruleset, writable, handled & ~(_EXECUTE | _MAKE_DEVICES | _IOCTL))
        _call_or_raise("syscall", _LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, paths: Iterable[str | os.PathLike[str]], rights: int) -> None:
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # the process can't open it later either
            continue
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            rule = struct.pack("=Qi", rights if is_folder else rights & _FILE_RIGHTS, descriptor)
            _call_or_raise("syscall", _LANDLOCK_ADD, ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(descriptor)


# seccomp


def _restrict_calls(*, programs: bool) -> None:
    code = b"".join(_filter(programs=programs))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    _call_or_raise("prctl", _PR_SET_SECCOMP, _SECCOMP_FILTER, program, 0, 0)


def _filter(*, programs: bool) -> Iterator[bytes]:
    """Yield the filter as a program of the kernel's packet filter, which only jumps forward."""
    machine, column = _MACHINES[platform.machine()]
    yield _step(_LOAD, 4)
    yield _step(_EQUAL, machine, 1, 0)
    yield _step(_RETURN, _KILL)
    yield _step(_LOAD, 0)
    # This includes the calls of the 32-bit variant of x86_64.
    yield _step(_AT_LEAST, _FIRST_UNKNOWN, 0, 1)
    yield _step(_RETURN, _ERRNO | errno.ENOSYS)

    def block(calls: _Calls, error: int = errno.EPERM) -> Iterator[bytes]:
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                yield _step(_EQUAL, number, 0, 1)
                yield _step(_RETURN, _ERRNO | error)

    def block_unless(name: str, *conditions: tuple[int, int, int, bool]) -> Iterator[bytes]:
        """Block a call unless each condition (argument, test, value, result) holds."""
        number = _CONDITIONAL_CALLS[name][column]
        if number is not None:
            left = 2 * len(conditions)
            yield _step(_EQUAL, number, 0, left + 2)
            for argument, test, value, result in conditions:
                left -= 2
                yield _step(_LOAD, 16 + 8 * argument)
                yield _step(test, value, *((0, left + 1) if result else (left + 1, 0)))
            yield _step(_RETURN, _ALLOW)
            yield _step(_RETURN, _ERRNO | errno.EPERM)

    yield from block(_MISSING_CALLS, errno.ENOSYS)
    yield from block(_BLOCKED_CALLS)
    # A process may read its own limits; 0 means itself.
    yield from block_unless("prlimit64", (0, _EQUAL, 0, True))
    if programs:
        yield from block_unless("clone", (0, _ANY_BIT, _CLONE_NAMESPACES, False))
        # LibreOffice doesn't start without a socket for requests of later processes. Sockets that
        # can send without a connection are blocked.
        local = (0, _EQUAL, socket.AF_UNIX, True), (1, _ANY_BIT, socket.SOCK_DGRAM, False)
        yield from block_unless("socket", *local)
        yield from block_unless("socketpair", *local)
        # LibreOffice creates that socket in OSL_SOCKET_PATH only if /tmp seems read-only, which it
        # is in the sandbox.
        yield from block_unless("access", (1, _EQUAL, os.W_OK, False))
        yield from block_unless("faccessat", (2, _EQUAL, os.W_OK, False))
    else:
        yield from block(_BLOCKED_FOR_READERS)
        yield from block_unless("clone", (0, _ANY_BIT, _CLONE_THREAD, True))
        # abort() sends a signal to its own process.
        yield from block_unless("tgkill", (0, _EQUAL, os.getpid(), True))
        # Before Linux 6.2, Landlock can't prevent truncating a file.
        yield from block_unless("open", (1, _ANY_BIT, _WRITING, False))
        yield from block_unless("openat", (2, _ANY_BIT, _WRITING, False))
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


# Both


def _drop_capabilities() -> None:
    """Drop all capabilities of root except those for reading files."""
    header = struct.pack("=Ii", _CAPABILITIES_3, 0)
    buffer = ctypes.create_string_buffer(24)
    _call_or_raise("capget", header, buffer)
    sets = struct.unpack("=6I", buffer.raw)
    if any(sets):
        capabilities = [part & _ALLOWED_CAPABILITIES for part in sets[:3]]
        _call_or_raise("capset", header, struct.pack("=6I", *capabilities, 0, 0, 0))


def _call(function: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call a function of the C library; integers are passed as long."""
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return int(getattr(ctypes.CDLL(None, use_errno=True), function)(*values))


def _call_or_raise(
    function: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None
) -> int:
    result = _call(function, *arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    _main()
