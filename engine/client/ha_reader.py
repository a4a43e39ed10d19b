"""Reads any range of a running broker's log over its replication service, as a slave does, and is no slave.

    with HaReader("10.0.0.1", 10912) as reader:
        data = reader.read(offset, length)

Theory (HAConnection, HAService of 4.9.8; REMOTING.md 3). Who connects reports an offset, and is sent the log from there
on, for as long as it reports something within haHousekeepingInterval. A report also says "I have the log up to here":
a SYNC_MASTER answers puts with it. So the first report of a connection is the offset that is read, and each later one
is 0, which confirms nothing, with either broker. What remains is that Apache's master takes the first one for a
confirmation, too:

- Puts whose messages lie before it are answered as replicated. So an offset must not be asked for before the messages
  in front of it have been in the log for longer than syncFlushTimeout (5 s). What this reader has received itself it
  asks for again, after a lost connection, only SETTLED_S after it came; before that it asks for less and drops it. The
  offset that its caller begins with is the caller's matter: ranges of complete segments are old enough.
- A connection counts for isSlaveOK (connectionCount) until the log is haSlaveFallbehindMax (256 MiB) past the highest
  report that there ever was. A SYNC_MASTER that has no slave then lets puts wait for slaveTimeout and answers
  FLUSH_SLAVE_TIMEOUT, in place of SLAVE_NOT_AVAILABLE at once; both mean stored here. rstore's master counts a slave by
  what it reported last, which is 0 here. So where Apache's master is a SYNC_MASTER, read from its slave, whose service
  answers as well (that of an rstore slave is not open); beside a slave that is connected nothing changes.
- slaveReadEnable is about consumers, and not concerned.

Under a controller (ha_protocol.py) a learner connects, for whom no put waits.

Apache's master sends nothing, and logs an error ten times a second, where an offset was deleted by retention: ask for
the log's extent first (remote_broker.py).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING

from engine.client.ha_protocol import PlainHa
from engine.client.stream import Stream, greeted_stream, tls_reason
from engine.errors import FormatError, PeerLost, StorageError
from engine.wire.ha import BadTransfer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from engine.client.ha_protocol import HaProtocol

SETTLED_S = 30.0
"""A message that has been in a log for so long is waited for by no put."""
_CONFIRMS_NOTHING = 0
_FIRST_BYTE = b"\0"
"""Of every log: the highest of a record's length. The first report 0 means "the last segment", so 1 asks for all."""
_PIECE = 1 << 18
_SKIPPED = 1 << 20
"""Bytes that are rather dropped than another connection made."""
_MARK_S = 1.0
_SURE = 2
"""Heartbeats in a row that say that the log ends here."""


class OutsideLog(StorageError):
    """The broker has nothing at `offset`, physical: its log ends before, or begins later."""


class HaReader:
    """See the module. A context manager; connects when something is read, and again after a lost connection.

    Not thread-safe.

    Args:
        host, port: of the replication service.
        tls: None: plain text.
        timeout_s: how long is waited for a connection, and for the next byte of what is asked for.
        protocol: what the service speaks; None: the plain one.
        heartbeat_s: what is asked for nothing reports that often (haHousekeepingInterval is 20 s).

    Attributes:
        connections: how many were made.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 15.0,
        heartbeat_s: float = 5.0,
        protocol: HaProtocol | None = None,
    ) -> None:
        self._protocol = protocol or PlainHa()
        self._host, self._port = host, port
        self._where = f"{host}:{port}"
        self._tls = tls
        self._timeout_s = timeout_s
        self._heartbeat_s = heartbeat_s
        self._stream: Stream | None = None
        self._transfers = self._protocol.reader()
        self._held: deque[memoryview] = deque()
        self._next = self._size = 0  # the physical offset after what is held, and how much that is
        self._idle = 0
        self._reported = 0.0
        self._heard = False
        self._run_from = self._run_to = -1  # what has been received in one go, over all connections
        self._marks: deque[tuple[float, int]] = deque()
        self.connections = 0

    def __enter__(self) -> HaReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a later read makes another one."""
        stream, self._stream = self._stream, None
        self._held.clear()
        self._size = 0
        if stream is not None:
            stream.shut()
            stream.close()

    @property
    def is_connected(self) -> bool:
        """Whether the next read may go on where the last one ended."""
        return self._stream is not None

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes of the log from physical offset `offset` on.

        Raises:
            OutsideLog: the broker does not have all of them. PeerLost: it can't be reached, or has gone: the next read
            connects again. Untrusted, FormatError: it is no replication service.
        """
        out = bytearray()
        while len(out) < length:
            piece = self.read_some(offset + len(out), length - len(out), self._timeout_s)
            if not piece:
                missing = offset + len(out)
                raise OutsideLog(f"{self._where} has nothing at {missing}: its log ends there", offset=missing)
            out += piece
        return bytes(out)

    def read_some(self, offset: int, most: int, wait_s: float) -> bytes:
        """Up to `most` bytes from `offset` on: what there is, b"" where nothing comes within `wait_s` or by two
        heartbeats. Raises as `read`; OutsideLog: the broker says that it does not have that offset."""
        try:
            with self._errors():
                self._demand(offset)
                self._receive_until(time.monotonic() + wait_s)
                return self._taken(most)
        except BaseException:
            self.close()
            raise

    def beat(self) -> None:
        """A sign of life, if it is time: for who holds the connection and reads nothing for long. Never raises."""
        with contextlib.suppress(OSError):
            self._beat()

    # --- the connection ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BadTransfer as error:
            raise FormatError(f"{self._where} is no replication service: {error.message}") from None
        except TimeoutError:
            raise PeerLost(f"{self._where} took nothing for {self._timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise PeerLost(f"{self._where}: TLS failed: {tls_reason(error)}") from None
        except OSError as error:
            raise PeerLost(f"{self._where}: {(error.strerror or str(error)).lower()}") from None

    def _demand(self, offset: int) -> None:
        """Have a connection whose next byte is that of `offset`."""
        if self._stream is not None and not 0 <= offset - (self._next - self._size) <= self._size + _SKIPPED:
            self.close()
        if self._stream is None:
            self._connect(self._safe(offset))
        self._drop(offset)

    def _connect(self, offset: int) -> None:
        limit_s = self._timeout_s
        try:
            link = socket.create_connection((self._host, self._port), limit_s)
        except TimeoutError:
            raise PeerLost(f"{self._where} did not answer within {limit_s:g} s") from None
        try:
            stream = greeted_stream(link, self._host, limit_s, self._tls)
            self._protocol.greet(stream, limit_s)
            stream.send([self._protocol.report(offset or 1)])
        except BaseException:
            link.close()
            raise
        self.connections += 1
        self._stream, self._transfers = stream, self._protocol.reader()
        self._next, self._idle, self._heard = offset or 1, 0, False
        self._reported = time.monotonic()
        if not offset:
            self._hold(memoryview(_FIRST_BYTE))
            self._next = 1

    def _safe(self, offset: int) -> int:
        """Where to begin so that no put takes the first report for a copy of its message (see the module)."""
        if not self._run_from <= offset <= self._run_to:
            self._run_from = self._run_to = offset
            self._marks.clear()
            return offset
        settled = self._run_from
        for when, end in self._marks:
            if time.monotonic() - when < SETTLED_S:
                break
            settled = end
        return min(offset, settled)

    def _drop(self, offset: int) -> None:
        """Receive up to `offset`, and forget it."""
        until = time.monotonic() + self._timeout_s
        while self._next - self._size < offset:
            if not self._size:
                self._receive_until(until)
                if not self._size:
                    at = self._next
                    raise OutsideLog(f"{self._where} has nothing at {at}: its log ends there", offset=at)
            self._taken(offset - (self._next - self._size))

    # --- what comes -------------------------------------------------------------------------------------------------

    def _receive_until(self, until: float) -> None:
        """Until something is held, the time is over, or the master has nothing."""
        self._idle = 0
        while not self._size and self._idle < _SURE:
            self._beat()
            left = until - time.monotonic()
            if not self._receive(max(0.0, min(left, self._heartbeat_s))) and left <= 0:
                return

    def _receive(self, limit_s: float) -> bool:
        """What has come; False: nothing came in time."""
        assert self._stream is not None
        try:
            data = self._stream.receive(_PIECE, limit_s)
        except TimeoutError:
            return False
        if not data:
            raise PeerLost(f"{self._where}: the connection was closed")
        self._heard = True
        for transfer in self._transfers.feed(data):
            if transfer.offset != self._next:
                self._elsewhere(transfer.offset, len(transfer.body))
            if len(transfer.body):
                self._hold(memoryview(transfer.body))
                self._next = transfer.end
                self._note()
            else:
                self._idle += 1
        return True

    def _elsewhere(self, offset: int, size: int) -> None:
        """rstore's master says with a heartbeat that it does not have what was asked for."""
        if size:
            raise FormatError(f"{self._where} sent offset {offset}, expected {self._next}", offset=offset)
        what = "begins" if offset > self._next else "ends"
        raise OutsideLog(f"{self._where} has nothing at {self._next}: its log {what} at {offset}", offset=self._next)

    def _hold(self, piece: memoryview) -> None:
        self._held.append(piece)
        self._size += len(piece)

    def _taken(self, most: int) -> bytes:
        out = bytearray()
        while self._held and len(out) < most:
            piece = self._held[0]
            take = min(len(piece), most - len(out))
            out += piece[:take]
            self._size -= take
            if take == len(piece):
                self._held.popleft()
            else:
                self._held[0] = piece[take:]
        return bytes(out)

    def _note(self) -> None:
        now = time.monotonic()
        self._run_to = max(self._run_to, self._next)
        if not self._marks or now - self._marks[-1][0] >= _MARK_S:
            self._marks.append((now, self._run_to))
            while len(self._marks) > 1 and now - self._marks[1][0] >= SETTLED_S:
                self._marks.popleft()

    def _beat(self) -> None:
        # Not before the master has answered the first report: of several that come together the last one counts.
        now = time.monotonic()
        if self._stream is not None and self._heard and now - self._reported >= self._heartbeat_s:
            self._stream.send([self._protocol.report(_CONFIRMS_NOTHING)])
            self._reported = now
