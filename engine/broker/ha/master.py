"""A master's service: slaves connect, say what they have, and get the log as it grows.

Theory (HAService, HAConnection of 4.9.8). Each slave has two threads: one reads its reports, one writes. The writer
sends what is readable, at most `batch` bytes of one file at a time, out of the map, and sleeps until something is
appended; a heartbeat tells that it lives. The first report says where to begin: 0 means the start of the last file,
anything else exactly there.

Where this differs from Apache: a report beyond the log ends the connection, the first one, too (Apache waits for ever);
so does one below it, whose file was deleted.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.broker.ha.group import GroupTransfer
from engine.errors import FormatError, RStoreError, StorageError
from engine.log.results import PutMessageStatus
from engine.services.waiting import FlushFuture
from engine.wire.ha import HEADER, AckReader, encode_header

if TYPE_CHECKING:
    from engine.broker.ha.settings import HaSettings
    from engine.log.commitlog import CommitLog
    from engine.store import MessageStore

_BACKLOG = 64
_LOOK_S = 1.0
_PIECE = 1 << 12


@dataclass(frozen=True, slots=True)
class SlaveState:
    """One slave as its master sees it. `acked`: physical offset, None before its first report; `behind`: bytes."""

    address: str
    acked: int | None
    behind: int


class MasterService:
    """See the module. Thread-safe.

    Args:
        store: whose log is sent.
        host, port: to listen on; port 0: any free one.
        settings: times and sizes.
        log: told of slaves that come and go.
    """

    def __init__(self, store: MessageStore, host: str, port: int, settings: HaSettings, log: logging.Logger) -> None:
        self._store = store
        self._where = (host, port)
        self._settings = settings
        self._log = log
        self._links: tuple[_Link, ...] = ()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._group = GroupTransfer(store.config.slave_timeout, self._failed)

    def start(self) -> int:
        """Listen; the port. Puts of a SYNC_MASTER wait for slaves from now on. Raises StorageError: it is taken."""
        try:
            self._listener = socket.create_server(self._where, backlog=_BACKLOG)
        except OSError as error:
            raise StorageError(
                f"can't listen for slaves on port {self._where[1]}: {(error.strerror or str(error)).lower()}",
                hint="see haListenPort",
            ) from None
        self._group.start()
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), name="HAService", daemon=True)
        self._thread.start()
        self._store.follow(self._wake)
        self._store.replicate_with(self.replicate)
        return int(self._listener.getsockname()[1])

    def stop(self) -> None:
        """Let all slaves go, and end."""
        self._store.replicate_with(None)
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if self._thread is not None:
            self._thread.join()
        for link in self._links:
            link.close()
        self._group.stop()

    @property
    def slaves(self) -> tuple[SlaveState, ...]:
        """Who follows now."""
        end = self._store.log.max_offset
        return tuple(SlaveState(link.address, link.acked, end - (link.acked or 0)) for link in self._links)

    def replicate(self, next_offset: int) -> FlushFuture:
        """As `engine.services.put.Replicate`. Source: HAService#isSlaveOK."""
        acked = [link.acked for link in self._links if link.acked is not None]
        if not acked or next_offset - max(acked) >= self._settings.fall_behind_max:
            none = FlushFuture()
            none.settle(PutMessageStatus.SLAVE_NOT_AVAILABLE)
            return none
        future = self._group.submit(next_offset)
        self._wake()
        return future

    def reported(self, offset: int) -> None:
        """A slave has said what it has."""
        self._group.reported(offset)

    def lost(self, link: _Link, why: str) -> None:
        """A slave has gone."""
        with self._lock:
            self._links = tuple(one for one in self._links if one is not link)
        self._log.info("a slave has gone", extra={"peer": link.address, "acked": link.acked, "why": why})

    # --- inside -----------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is not None:
            try:
                client, address = listener.accept()
            except OSError:
                return
            link = _Link(self, self._store.log, client, f"{address[0]}:{address[1]}", self._settings)
            with self._lock:
                self._links = (*self._links, link)
            self._log.info("a slave has come", extra={"peer": link.address})
            link.start()

    def _wake(self) -> None:
        for link in self._links:
            link.wake()

    def _failed(self, error: RStoreError) -> None:
        self._log.error("waiting for slaves has failed", extra={"why": str(error)})


class _Link:
    """One slave's connection."""

    def __init__(
        self, service: MasterService, log: CommitLog, client: socket.socket, address: str, settings: HaSettings
    ) -> None:
        self._service = service
        self._log = log
        self._socket = client
        self._settings = settings
        self._condition = threading.Condition()
        self._woken = False
        self._closed = False
        self._from: int | None = None
        self.address = address
        self.acked: int | None = None

    def start(self) -> None:
        """Begin to read and write."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self._settings.housekeeping_ms / 1000)
        for work, name in ((self._read, "HAConnection-read"), (self._write, "HAConnection-write")):
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

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
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._service.lost(self, why)

    def _guarded(self, work: object) -> None:
        why = "the connection was closed"
        try:
            work()  # type: ignore[operator]
        except TimeoutError:
            why = f"nothing was heard for {self._settings.housekeeping_ms} ms"
        except (OSError, RStoreError) as error:
            why = str(error)
        finally:
            self.close(why)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        reader = AckReader()
        while data := self._socket.recv(_PIECE):
            offset = reader.feed(data)
            if offset is None:
                continue
            end = self._log.max_offset
            if offset > end:
                raise FormatError(f"the slave has the log up to {offset}, ours ends at {end}")
            first = self.acked is None
            self.acked = offset
            if first:
                self._begin(offset, end)
            self._service.reported(offset)

    def _begin(self, offset: int, end: int) -> None:
        start = offset or end - end % self._log.file_size
        if start < self._log.min_offset:
            raise FormatError(f"the slave wants the log from {start}, ours begins at {self._log.min_offset}")
        with self._condition:
            self._from = start
            self._woken = True
            self._condition.notify_all()

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._from is not None)
        next_offset = self._from or 0
        heartbeat_s = self._settings.heartbeat_ms / 1000
        written = time.monotonic()
        while not self._closed:
            self._woken = False
            sent = self._send(next_offset)
            now = time.monotonic()
            if sent:
                next_offset, written = next_offset + sent, now
            elif now - written >= heartbeat_s:
                self._socket.sendall(encode_header(next_offset, 0))
                written = now
            else:
                with self._condition:
                    self._condition.wait_for(
                        lambda: self._closed or self._woken, min(_LOOK_S, heartbeat_s - (now - written))
                    )

    def _send(self, offset: int) -> int:
        """One transfer; how many bytes of the log it has, 0: there is nothing more."""
        body = self._log.read(offset, self._settings.batch)
        if not len(body):
            if offset < self._log.min_offset:
                raise FormatError(f"the log from {offset} on was deleted before the slave had it")
            return 0
        head = encode_header(offset, len(body))
        sent = self._socket.sendmsg((head, body))
        if sent < len(head):
            self._socket.sendall(head[sent:])
            sent = HEADER.size
        if sent < HEADER.size + len(body):
            self._socket.sendall(body[sent - HEADER.size :])
        return len(body)
