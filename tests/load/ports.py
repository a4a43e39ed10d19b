"""Ports that nobody has: for a broker that must be found again where it was. And who has one that is taken."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

_LOWEST, _HIGHEST = 20_002, 32_000
"""Below those that the system gives to connections that go out (ip_local_port_range, from 32768)."""
_APART = 8
_LISTENS = "0A"


def free_ports(count: int) -> list[int]:
    """So many, with free ones two below (the VIP port) and one above."""
    found: list[int] = []
    while len(found) < count:
        port = any_port()
        if all(abs(port - other) > 4 for other in found) and all(is_free(port + more) for more in (-2, 0, 1)):
            found.append(port)
    return found


def any_port() -> int:
    """One that was not given before, nor any near it: a broker takes those two below and one above, too, later than
    another one is asked for. Each worker of a run of pytest has ports of its own: what is free for two is taken by one.
    """
    return next(_ports())


@functools.cache
def _ports() -> Iterator[int]:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = (_HIGHEST - _LOWEST) // workers
    first = _LOWEST + share * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    slots = share // 2 // _APART  # the other half is left: some take many ports in a row
    start = random.randrange(slots)
    return (first + (start + i) % slots * _APART for i in itertools.count())


def is_free(port: int) -> bool:
    """Whether it can be listened on now, at every address: Apache's broker does."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def holders(port: int) -> str:
    """The processes that listen on it, for a message."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, or another user's
            if any(_leads_to(link) in sockets for link in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{process.name} ({words.strip()[:200]})")
    return f"port {port}: {', '.join(found) or 'no process that can be looked into'}"


def _leads_to(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed since, like that of the listing itself
        return ""


def _listening(port: int) -> list[str]:
    """Inodes of sockets. Source: proc(5), /proc/net/tcp."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if os.path.exists(table) else ():
            words = line.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                found.append(words[9])
    return found
