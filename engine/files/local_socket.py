"""A Unix socket in a store's directory: where its daemon is asked.

A socket's address is short (107 bytes); the path of a store may be longer. Then the socket is named through /proc, by a
descriptor of its directory. Only the owner may connect. What a killed daemon has left is replaced: whoever listens
here holds the store's lock.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from engine.errors import from_os_error

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS_MAX = 107
"""Bytes of a socket's path, without the zero at its end. Source: unix(7)."""
_BACKLOG = 16


def listen_at(path: str) -> socket.socket:
    """A listening socket at `path`, whatever lay there before. Raises StorageError."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove(path)
        with _address(path) as address:
            found.bind(address)
        os.chmod(path, 0o600)  # before anybody can connect
        found.listen(_BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        raise from_os_error(error, "making the daemon's socket", path) from None
    return found


def connect_to(path: str, timeout_s: float) -> socket.socket | None:
    """Who listens at `path`; None when nobody does. Raises StorageError: it may not be asked."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(timeout_s)
    try:
        with _address(path) as address:
            found.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        found.close()
        return None
    except OSError as error:
        found.close()
        raise from_os_error(error, "asking the daemon", path) from None
    return found


def remove(path: str) -> None:
    """Take the socket away; nothing when there is none. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@contextlib.contextmanager
def _address(path: str) -> Iterator[str]:
    if len(os.fsencode(path)) <= ADDRESS_MAX:
        yield path
        return
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)
