"""One slave's connection, at its master: who reads its reports, and who writes the log to it.

Two threads read and write. Where puts wait for slaves, and without TLS, most of it is done by the loop that puts: it
sends what there is when the writing thread has nothing left to do, and reads the reports in place of the other.

A report says what the slave has. The first one says where to begin, and confirms nothing; each later one confirms what
was sent on this connection, and one beyond that is a fault that ends it: nobody can acknowledge what he was not sent.
The handshake and the first report have haHousekeepingInterval together, and so has each whole report after it.

Source: HAConnection (4.9.8); REMOTING.md 3.
"""

from __future__ import annotations

import enum
import ssl
import threading
import time
from typing import TYPE_CHECKING, Protocol

from engine.client.stream import tls_reason
from engine.errors import FormatError, RStoreError
from engine.wire.ha import AckReader, BadTransfer, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.ha.settings import HaSettings
    from engine.client.stream import Stream
    from engine.log.commitlog import CommitLog

_LOOK_S = 1.0
_PIECE = 1 << 12
_AT_ONCE = 8
"""Transfers that are handed to the system together."""
_END_S = 5.0


class Rejection(enum.Enum):
    """Why a connection is no slave, or no longer: the labels of a metric."""

    ADDRESS = "address"
    LIMIT = "limit"
    TLS = "tls"
    SILENT = "silent"
    REPLACED = "replaced"
    FAULT = "fault"


class LinkEvents(Protocol):
    """Who is told."""

    def greeted(self, link: Link) -> None:
        """It may copy: it is a slave from now on."""

    def reported(self, offset: int) -> None:
        """It confirmed that it has the log up to `offset`."""

    def rejected(self, address: str, why: Rejection, text: str) -> None:
        """It is closed."""

    def lost(self, link: Link, why: str) -> None:
        """It has gone."""


class Reads(Protocol):
    """An event loop that reads for a thread."""

    def __call__(self, descriptor: int, look: Callable[[], bool]) -> Callable[[], None]:
        """Have `look` called, in the loop's thread, when there is something to read, until it gives False.

        Returns what ends that; when it returns, `look` is not called any more.
        """
        ...


class Link:
    """See the module. Thread-safe.

    Args:
        events: is told what happens.
        log: that is sent.
        stream: of the slave; its greeting is waited for here.
        peer: `ip:port`; `host`: its address alone.
        settings: times and sizes.
        gather_s: what comes within this time goes together.
        reads: the loop that senders are answered in: it reads the reports after the first, where it can; None: our
            thread does.

    Attributes:
        acked: physical offset that it reported last, None before its first report.
        confirmed: the same of reports after the first: of what was sent here, and came back as stored.
        is_slave: whether it may copy: its greeting is over.
        began: when it was made, s of the monotonic clock.
    """

    def __init__(
        self,
        events: LinkEvents,
        log: CommitLog,
        stream: Stream,
        peer: tuple[str, str],
        settings: HaSettings,
        gather_s: float,
        reads: Reads | None = None,
    ) -> None:
        self._reads = reads
        self._acks = AckReader()
        self._failure: OSError | RStoreError | None = None
        self._gather_s = gather_s
        self._events = events
        self._log = log
        self._stream = stream
        self._settings = settings
        self._condition = threading.Condition()
        self._woken = False
        self._closed = False
        self._next = self._sent = 0
        self._idle = False
        self._rest = b""  # of a transfer of which the system took a part
        self._written = 0.0
        self._threads: list[threading.Thread] = []
        self._running = 0
        self.host, self.address = peer
        self.began = self._moved = self._heard = time.monotonic()
        self.is_slave = False
        self.acked: int | None = None
        self.confirmed: int | None = None

    def start(self) -> None:
        """Begin to read and write."""
        self._begin(self._read, "HAConnection-read")

    def join(self) -> None:
        """Wait for what `close` has ended."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_END_S)

    def wake(self) -> None:
        """There is more to send.

        Where nothing is gathered, and the writing thread waits, it is sent here, as far as the system takes it: a
        sender waits for its way to the slave and back, and each change of threads is part of that.
        """
        if not self._woken:
            with self._condition:
                if not (self._idle and not self._woken and self._send_at_once()):
                    self._woken = True
                    self._condition.notify_all()

    def close(self, why: str = "closed") -> None:
        """Let it go; a second time does nothing."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify_all()
            self._stream.shut()
            if not self._running:
                self._stream.close()
        self._events.lost(self, why)

    def is_stalled(self, end: int) -> bool:
        """Whether it is behind the log's `end` and has reported nothing new for two heartbeats."""
        behind = self.acked is not None and self.acked < end
        return behind and time.monotonic() - self._moved > 2 * self._settings.heartbeat_ms / 1000

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
        with self._condition:
            if self._closed:
                return
            self._running += 1
            self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            self._ended()
            raise

    def _ended(self) -> None:
        # The last one closes: a descriptor that is given away while the other still writes to it is another slave's.
        with self._condition:
            self._running -= 1
            if not self._running:
                self._stream.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        why = "the connection was closed"
        try:
            work()
        except TimeoutError:
            why = f"no data for {self._settings.housekeeping_ms} ms"
        except (OSError, RStoreError, RuntimeError) as error:
            why = str(error)
        finally:
            self.close(why)
            self._ended()

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        if not self._greet():
            return
        limit_s = self._settings.housekeeping_ms / 1000
        while data := self._receive(self._heard + limit_s):
            self._take(data)
            descriptor = self._stream.descriptor
            if self.acked is not None and self._reads is not None and descriptor is not None:
                self._watch(self._reads(descriptor, self._look), limit_s)
                break

    def _take(self, data: bytes) -> None:
        """What the slave says. Raises BadTransfer, FormatError: no slave says that."""
        try:
            offset = self._acks.feed(data)
        except BadTransfer as error:
            self._events.rejected(self.address, Rejection.FAULT, str(error))
            raise
        if offset is None:
            return
        self._heard = time.monotonic()  # a whole report: a byte now and then is no sign of life
        if self.acked is None:
            self._start_at(offset, self._log.max_offset)
        else:
            self._report(offset)

    def _watch(self, end: Callable[[], None], limit_s: float) -> None:
        """Wait while the loop reads. Raises what it met; TimeoutError: it heard nothing."""
        try:
            while self._failure is None and not self._closed:
                left = self._heard + limit_s - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                with self._condition:
                    self._condition.wait_for(lambda: self._closed or self._failure is not None, left)
        finally:
            end()
        if self._failure is not None:
            raise self._failure

    def _look(self) -> bool:
        """In the loop: take what has come; False: nothing more will."""
        try:
            data = self._stream.receive_at_once(_PIECE)
            if data == b"":
                raise ConnectionError("the connection was closed")
            if data:
                self._take(data)
        except (OSError, RStoreError) as error:
            with self._condition:
                self._failure = error
                self._condition.notify_all()
            return False
        return True

    def _greet(self) -> bool:
        """TLS, where it is wanted, within the time for the first report."""
        try:
            self._stream.greet(self._settings.housekeeping_ms / 1000)
        except TimeoutError:
            self._events.rejected(self.address, Rejection.SILENT, "no TLS handshake in time")
        except ssl.SSLError as error:
            self._events.rejected(self.address, Rejection.TLS, f"TLS: {tls_reason(error)}")
        else:
            self.is_slave = True
            self._events.greeted(self)
            return True
        return False

    def _receive(self, until: float) -> bytes:
        try:
            return self._stream.receive(_PIECE, until - time.monotonic())
        except TimeoutError:
            if self.acked is None and not self._closed:
                why = f"no first report within {self._settings.housekeeping_ms} ms"
                self._events.rejected(self.address, Rejection.SILENT, why)
            raise

    def _report(self, offset: int) -> None:
        """A later report. Raises FormatError: it can't be true."""
        if offset > self._sent:
            why = f"slave reported offset {offset}, but was sent the log up to {self._sent}"
            self._events.rejected(self.address, Rejection.FAULT, why)
            raise FormatError(why)
        if offset != self.acked:
            self._moved = time.monotonic()
        self.acked = self.confirmed = offset
        self._events.reported(offset)

    def _start_at(self, offset: int, end: int) -> None:
        """The first report, which confirms nothing. Raises FormatError: there is nothing to send from there."""
        first = max(self._log.min_offset, 0)
        start = offset or end - end % self._log.file_size
        if start > max(end, 1):
            self._stream.send([encode_header(end, 0)])
            why = f"slave reported offset {offset}, after the log end {end}"
            self._events.rejected(self.address, Rejection.FAULT, why)
            raise FormatError(why)
        if start < first:
            self._stream.send([encode_header(first, 0)])
            raise FormatError(f"slave requested offset {start}, before the log start {first}")
        self._next = start
        self._sent = max(start, offset)
        self._moved = time.monotonic()
        self.acked = min(offset, end)
        self._begin(self._write, "HAConnection-write")

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        heartbeat_s = self._settings.heartbeat_ms / 1000
        self._written = time.monotonic()
        while not self._closed:
            self._woken = False
            if self._rest:
                rest, self._rest = self._rest, b""
                self._stream.send([rest])
            sent = self._send(self._next)
            now = time.monotonic()
            if sent:
                self._next, self._written = self._next + sent, now
                if self._gather_s and sent < self._settings.batch:
                    time.sleep(self._gather_s)
            elif now - self._written >= heartbeat_s:
                self._stream.send([encode_header(self._next, 0)])
                self._written = now
            else:
                self._wait(heartbeat_s - (now - self._written))

    def _wait(self, most_s: float) -> None:
        """Until there is more to send than `wake` could, or for a while."""
        with self._condition:
            self._idle = not self._gather_s and self._stream.descriptor is not None
            self._condition.wait_for(lambda: self._closed or self._woken, min(_LOOK_S, most_s))
            self._idle = False

    def _send_at_once(self) -> bool:
        """Send the next transfer in place of the writing thread, which waits; False: it has to do the rest."""
        before = self._sent
        try:
            body = self._log.read(self._next, self._settings.batch)
            if not len(body) or self._closed:
                return False
            header = encode_header(self._next, len(body))
            self._sent = self._next + len(body)  # before: as in `_send`
            done = self._stream.send_at_once((header, body))
        except (OSError, RStoreError):  # the writing thread meets it, too
            done = 0
        if not done:
            self._sent = before
            return False
        self._next, self._written = self._sent, time.monotonic()
        if done < len(header) + len(body):
            self._rest = (header + bytes(body))[done:]
        return not self._rest and self._next >= self._log.max_offset  # a transfer ends with its file

    def _send(self, offset: int) -> int:
        """Some transfers; how many bytes of the log they have, 0: there is nothing more."""
        parts: list[bytes | memoryview] = []
        at = offset
        batch = self._settings.batch
        while len(parts) < 2 * _AT_ONCE:
            body = self._log.read(at, batch)
            if not len(body):
                break
            parts += encode_header(at, len(body)), body
            at += len(body)
            if len(body) < batch:
                break
        if not parts:
            if offset < self._log.min_offset:
                raise FormatError(f"offset {offset} was deleted before it was sent to the slave")
            return 0
        self._sent = at  # before: the slave may be quicker to report it than we to note it
        self._stream.send(parts)
        return at - offset
