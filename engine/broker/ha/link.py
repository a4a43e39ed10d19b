"""One slave's connection, at its master: who reads its reports, and who writes the log to it.

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


class Link:
    """See the module. Thread-safe.

    Args:
        events: is told what happens.
        log: that is sent.
        stream: of the slave; its greeting is waited for here.
        peer: `ip:port`; `host`: its address alone.
        settings: times and sizes.
        gather_s: what comes within this time goes together.

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
    ) -> None:
        self._gather_s = gather_s
        self._events = events
        self._log = log
        self._stream = stream
        self._settings = settings
        self._condition = threading.Condition()
        self._woken = False
        self._closed = False
        self._from = self._sent = 0
        self._threads: list[threading.Thread] = []
        self._running = 0
        self.host, self.address = peer
        self.began = self._moved = time.monotonic()
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
        """There is more to send."""
        if not self._woken:
            with self._condition:
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
        reader = AckReader()
        limit_s = self._settings.housekeeping_ms / 1000
        heard = self.began  # of a whole report: a byte now and then is no sign of life
        while data := self._receive(heard + limit_s):
            try:
                offset = reader.feed(data)
            except BadTransfer as error:
                self._events.rejected(self.address, Rejection.FAULT, str(error))
                raise
            if offset is None:
                continue
            heard = time.monotonic()
            end = self._log.max_offset
            if self.acked is None:
                self._start_at(offset, end)
            else:
                self._report(offset)

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
        self._from = start
        self._sent = max(start, offset)
        self._moved = time.monotonic()
        self.acked = min(offset, end)
        self._begin(self._write, "HAConnection-write")

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        next_offset = self._from
        heartbeat_s = self._settings.heartbeat_ms / 1000
        written = time.monotonic()
        while not self._closed:
            self._woken = False
            sent = self._send(next_offset)
            now = time.monotonic()
            if sent:
                next_offset, written = next_offset + sent, now
                if self._gather_s and sent < self._settings.batch:
                    time.sleep(self._gather_s)
            elif now - written >= heartbeat_s:
                self._stream.send([encode_header(next_offset, 0)])
                written = now
            else:
                with self._condition:
                    self._condition.wait_for(
                        lambda: self._closed or self._woken, min(_LOOK_S, heartbeat_s - (now - written))
                    )

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
