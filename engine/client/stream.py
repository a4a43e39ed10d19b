"""A connection of the replication port: plain or TLS, blocking, for one thread that reads and one that writes.

OpenSSL's object is for one thread at a time, so TLS is done in memory here, under a lock that nobody waits with: what
it makes is sent outside of it, in its order.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from engine.errors import FormatError, StorageError

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

_PIECE = 1 << 16


class Untrusted(FormatError):
    """The peer's certificate is not trusted, or is another host's."""


class Stream:
    """A plain connection.

    Args:
        link: connected; closed by `close`.
        write_s: how long a write may take.
    """

    def __init__(self, link: socket.socket, write_s: float) -> None:
        self._link = link
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(write_s)
        self._readable = select.poll()
        self._readable.register(link, select.POLLIN)

    def greet(self, limit_s: float) -> None:
        """What comes before the first byte. Raises OSError: the peer is not served; TimeoutError."""

    def receive(self, most: int, limit_s: float) -> bytes:
        """Some bytes, b"" at the end. Raises TimeoutError after `limit_s`, OSError."""
        self._wait(limit_s)
        return self._link.recv(most)

    def receive_into(self, buffer: memoryview, limit_s: float) -> int:
        """The same into a buffer; how many, 0 at the end."""
        self._wait(limit_s)
        with contextlib.suppress(BlockingIOError):  # nothing came after all
            return os.readv(self._link.fileno(), [buffer])  # the socket's own call asks once more whether something did
        return self._link.recv_into(buffer)

    def receive_at_once(self, most: int) -> bytes | None:
        """Some bytes that are here, b"" at the end; None: none are. Where there is a descriptor. Raises OSError."""
        try:  # the socket's own calls wait, as long as a write may take
            return os.read(self._link.fileno(), most)
        except BlockingIOError:
            return None

    def send(self, parts: Sequence[bytes | memoryview]) -> None:
        """All of them. Raises OSError, TimeoutError."""
        sent = self.send_at_once(parts) or self._link.sendmsg(parts)
        for part in parts:
            if sent < len(part):
                self._link.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def send_at_once(self, parts: Sequence[bytes | memoryview]) -> int:
        """As many bytes of them as the system takes without a wait; where there is a descriptor. Raises OSError."""
        try:
            return os.writev(self._link.fileno(), parts)
        except BlockingIOError:
            return 0

    def shut(self) -> None:
        """End it for both threads, wherever they wait."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    @property
    def descriptor(self) -> int | None:
        """What is read and written at once; None: what lies between it and the peer (TLS) has bytes of its own."""
        return self._link.fileno()

    def close(self) -> None:
        """Give the descriptor back: no thread uses it any more."""
        self._link.close()

    def _wait(self, limit_s: float) -> None:
        """Until there is something to read: the socket's own time limit is that of writes."""
        if not self._readable.poll(max(0.0, limit_s) * 1000):
            raise TimeoutError


class TlsStream(Stream):
    """One with TLS.

    Args:
        context: of a server or of a client.
        host: whose certificate a client expects; None: we are the server.
    """

    def __init__(self, link: socket.socket, write_s: float, context: ssl.SSLContext, host: str | None = None) -> None:
        super().__init__(link, write_s)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=host is None, server_hostname=host)
        self._state = threading.Lock()
        self._sending = threading.Lock()

    def greet(self, limit_s: float) -> None:
        """The handshake. Raises ssl.SSLError, OSError, TimeoutError."""
        try:
            self._step(self._tls.do_handshake, limit_s)
        finally:  # why it failed is an alert to the peer
            with contextlib.suppress(OSError):
                self._flush()

    def receive(self, most: int, limit_s: float) -> bytes:
        """As of Stream."""
        try:
            return self._step(lambda: self._tls.read(most), limit_s)
        except ssl.SSLEOFError:
            return b""

    def receive_into(self, buffer: memoryview, limit_s: float) -> int:
        """As of Stream."""
        try:
            return self._step(lambda: cast("int", self._tls.read(len(buffer), buffer)), limit_s)
        except ssl.SSLEOFError:
            return 0

    def send(self, parts: Sequence[bytes | memoryview]) -> None:
        """As of Stream."""
        with self._sending:
            for part in parts:
                if len(part):
                    with self._state:
                        self._tls.write(part)
            self._send_made()

    @property
    def descriptor(self) -> None:
        """As of Stream: what TLS has read, and not given on, can't be seen there."""
        return None

    def _step(self, act: Callable[[], T], limit_s: float) -> T:
        end = time.monotonic() + limit_s
        while True:
            with self._state:
                try:
                    return act()
                except ssl.SSLWantReadError:
                    pass
            self._flush()
            self._wait(end - time.monotonic())
            data = self._link.recv(_PIECE)
            with self._state:
                if data:
                    self._in.write(data)
                else:
                    self._in.write_eof()

    def _flush(self) -> None:
        """Send what reading has made; whoever writes just now does it too."""
        if self._out.pending and self._sending.acquire(blocking=False):
            try:
                self._send_made()
            finally:
                self._sending.release()

    def _send_made(self) -> None:
        while True:
            with self._state:
                data = self._out.read()
            if not data:
                return
            self._link.sendall(data)


def greeted_stream(link: socket.socket, host: str, limit_s: float, tls: ssl.SSLContext | None) -> Stream:
    """A slave's connection to the master at `host`, greeted; `tls` None: plain text.

    Raises:
        Untrusted, StorageError, OSError.
    """
    if tls is None:
        return Stream(link, limit_s)
    try:
        stream = TlsStream(link, limit_s, tls, host)
        stream.greet(limit_s)
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(f"the master's certificate is not trusted: {error.verify_message}") from None
    except ssl.SSLError as error:
        why = f"{host}: TLS failed: {tls_reason(error)}"
        raise StorageError(why, hint="--ha-tls must be on at the master, too") from None
    return stream


def tls_reason(error: ssl.SSLError) -> str:
    """Why TLS failed, in OpenSSL's words."""
    return str(error.reason or error).replace("_", " ").lower()
