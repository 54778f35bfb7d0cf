"""Who may use an encoder's service: those on the same machine, and those who have its token."""

from __future__ import annotations

from ipaddress import ip_address

TOKEN_VARIABLE = "VISAR_TOKEN"  # noqa: S105 - where it is, not what it is
DEFAULT_PORT = 8765


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or address alone.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "gpu.lan")]
    [True, True, True, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
