"""A master's service: slaves connect, say what they have, and get the log as it grows.

Theory (HAService, HAConnection of 4.9.8). Each slave has two threads: one reads its reports, one writes. The writer
sends what is readable, at most `batch` bytes of one file at a time, out of the map, and sleeps until something is
appended; a heartbeat tells that it lives. The first report says where to begin: 0 means the start of the last file,
anything else exactly there.

Where this differs from Apache: a report beyond the log ends the connection, the first one, too (Apache waits for ever);
so does one below it, whose file was deleted. Before that a heartbeat says where the log ends or begins: no slave takes
it for the place that it has asked for. The first report 1 (`follower`) is right for an empty log. At most LINKS slaves
are there at a time; who has reported nothing makes room for the next.
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
from engine.broker.net import ports
from engine.config import BrokerRole
from engine.errors import FormatError, RStoreError
from engine.log.results import PutMessageStatus
from engine.services.waiting import FlushFuture
from engine.wire.ha import AckReader, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.ha.settings import HaSettings
    from engine.log.commitlog import CommitLog
    from engine.store import MessageStore

LINKS = 64
_BACKLOG = 64
_LOOK_S = 1.0
_PIECE = 1 << 12
_AT_ONCE = 8
"""Transfers that are handed to the system together."""
_END_S = 5.0
_GATHER_S = 0.002
"""Where no put waits for slaves, what comes within this time goes together. (Apache's looks every 100 ms then.)"""


@dataclass(frozen=True, slots=True)
class SlaveState:
    """One slave as its master sees it. `acked`: physical offset, None before its first report; `lag`: bytes."""

    address: str
    acked: int | None
    lag: int


class MasterService:
    """See the module. Thread-safe.

    Args:
        store: whose log is sent.
        host, port: to listen on; port 0: any free one.
        settings: times and sizes.
        log: gets slaves that come and go.
        begin: has called what begins a transfer that puts wait for, at once or a moment later: so many have one.
    """

    def __init__(
        self,
        store: MessageStore,
        host: str,
        port: int,
        settings: HaSettings,
        log: logging.Logger,
        begin: Callable[[Callable[[], None]], None] = lambda transfer: transfer(),
    ) -> None:
        self._begin = begin
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
        with ports.binding(*self._where, ports.HA):
            family = socket.AF_INET6 if ":" in self._where[0] else socket.AF_INET
            self._listener = socket.create_server(self._where, family=family, backlog=_BACKLOG)
        self._group.start()
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), name="HAService", daemon=True)
        self._thread.start()
        self._store.follow(self._appended)
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
        links = self._links
        for link in links:
            link.close()
        for link in links:
            link.join()
        self._group.stop()

    @property
    def slaves(self) -> tuple[SlaveState, ...]:
        """Who follows now."""
        end = self._store.log.max_offset
        return tuple(SlaveState(link.address, link.acked, end - (link.acked or 0)) for link in self._links)

    def replicate(self, next_offset: int) -> FlushFuture:
        """As `engine.services.put.Replicate`. Source: HAService#isSlaveOK."""
        acked = self._acked()
        if acked is None or next_offset - acked >= self._settings.fall_behind_max:
            return FlushFuture.settled(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        future = self._group.submit(next_offset)
        # A slave may have been quicker than we: its report came before there was somebody to tell.
        acked = self._acked()
        if acked is not None and acked >= next_offset:
            self._group.reported(acked)
        self._appended()
        return future

    def reported(self, offset: int) -> None:
        """A slave has said what it has."""
        self._group.reported(offset)

    def lost(self, link: _Link, why: str) -> None:
        """A slave has gone."""
        with self._lock:
            self._links = tuple(one for one in self._links if one is not link)
        self._log.info("slave disconnected", extra={"peer": link.address, "acked": link.acked, "why": why})

    # --- inside -----------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is not None:
            try:
                client, address = listener.accept()
            except OSError as error:
                if self._listener is not None:  # no descriptor left, a client that has gone already
                    self._log.warning("slave connection rejected", extra={"why": str(error)})
                    time.sleep(_LOOK_S / 10)
                continue
            peer = f"{address[0]}:{address[1]}"
            if not self._make_room():
                self._log.warning(
                    "slave connection rejected",
                    extra={"peer": peer, "why": f"too many connections: limit {LINKS}"},
                )
                client.close()
                continue
            sync = self._store.config.broker_role is BrokerRole.SYNC_MASTER
            link = _Link(self, self._store.log, client, peer, self._settings, 0.0 if sync else _GATHER_S)
            with self._lock:
                self._links = (*self._links, link)
            self._log.info("slave connected", extra={"peer": peer})
            try:
                link.start()
            except (OSError, RuntimeError) as error:  # it has gone already; no thread can be started
                link.close(str(error))

    def _make_room(self) -> bool:
        links = self._links
        if len(links) < LINKS:
            return True
        silent = next((link for link in links if link.acked is None), None)
        if silent is not None:
            silent.close("replaced by a new connection before its first report")
        return silent is not None

    def _acked(self) -> int | None:
        """The most that a slave has of those that are here; None: there is none."""
        return max((link.acked for link in self._links if link.acked is not None), default=None)

    def _appended(self) -> None:
        if self._links:
            self._begin(self._transfer)

    def _transfer(self) -> None:
        self._group.close()
        for link in self._links:
            link.wake()

    def _failed(self, error: RStoreError) -> None:
        self._log.error("waiting for slaves failed", extra={"why": str(error)})


class _Link:
    """One slave's connection."""

    def __init__(
        self,
        service: MasterService,
        log: CommitLog,
        client: socket.socket,
        address: str,
        settings: HaSettings,
        gather_s: float,
    ) -> None:
        self._gather_s = gather_s
        self._service = service
        self._log = log
        self._socket = client
        self._settings = settings
        self._condition = threading.Condition()
        self._woken = False
        self._closed = False
        self._from = 0
        self._threads: list[threading.Thread] = []
        self._running = 0
        self.address = address
        self.acked: int | None = None

    def start(self) -> None:
        """Begin to read and write."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self._settings.housekeeping_ms / 1000)
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
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._running:
                self._socket.close()
        self._service.lost(self, why)

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
                self._socket.close()

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
        reader = AckReader()
        while data := self._socket.recv(_PIECE):
            offset = reader.feed(data)
            if offset is None:
                continue
            end = self._log.max_offset
            if self.acked is None:
                self._start_at(offset, end)
            elif offset > end:
                raise FormatError(f"slave reported offset {offset}, after the log end {end}")
            self.acked = min(offset, end)
            self._service.reported(self.acked)

    def _start_at(self, offset: int, end: int) -> None:
        """The first report. Raises FormatError: there is nothing to send from there."""
        first = max(self._log.min_offset, 0)
        start = offset or end - end % self._log.file_size
        if start > max(end, 1):
            self._socket.sendall(encode_header(end, 0))
            raise FormatError(f"slave reported offset {offset}, after the log end {end}")
        if start < first:
            self._socket.sendall(encode_header(first, 0))
            raise FormatError(f"slave requested offset {start}, before the log start {first}")
        self._from = start
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
                self._socket.sendall(encode_header(next_offset, 0))
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
        sent = self._socket.sendmsg(parts)
        for part in parts:
            if sent < len(part):
                self._socket.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))
        return at - offset
