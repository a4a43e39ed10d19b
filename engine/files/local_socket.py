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
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove(path)
        os.fchmod(
            listener.fileno(), 0o600
        )  # what bind makes has it: there is no moment, and no name, to come in between
        with _address(path) as address:
            listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise from_os_error(error, "creating the daemon's socket", path) from None
    return listener


def connect_to(path: str, timeout_s: float) -> socket.socket | None:
    """Who listens at `path`; None when nobody does. Raises StorageError: it may not be asked."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with _address(path) as address:
            connection.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise from_os_error(error, "connecting to the daemon", path) from None
    return connection


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
