"""A slave's client: connects to its master's service, copies the log as it grows, and says how far it has come.

Theory (HAClient of 4.9.8). One thread. It connects, reports, and takes what comes; a report follows everything that was
appended, and every `heartbeat_ms` without. A connection that is silent for `housekeeping_ms` is dead; another is made
`retry_ms` later. With SYNC_FLUSH what is reported is durable.

Where this differs from Apache: the first report is made at once; the connection ends when the master is silent (Apache:
when the slave itself was); who has diverged does not try for ever in silence: it says so, and waits longer.

A master that sends what none sends (no transfer, another place, no sound record, a certificate that is not trusted) is
*faulty*: nothing of that is appended, the log and `state` name it until the master sends something sound, and each
attempt waits twice as long as the one before, up to `_FAULTY_MOST_S`.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

from engine.broker.ha.follower import OVERLAP, BeginsLater, Diverged, Follower, OutOfStep, ahead, incoming_of
from engine.client.ha_protocol import PlainHa
from engine.client.stream import Stream, Untrusted, greeted_stream, tls_reason
from engine.config import FlushDiskType
from engine.dataclass import dataclass
from engine.errors import RStoreError, StorageError
from engine.log.incoming import BadRecord
from engine.wire.address import parse_address
from engine.wire.ha import BadTransfer, joined

if TYPE_CHECKING:
    from engine.broker.ha.settings import HaSettings
    from engine.client.ha_protocol import HaProtocol
    from engine.store import MessageStore
    from engine.wire.ha import TransferReader

_PIECE = 1 << 20
"""Bytes of one read: what came together is judged, appended and reported as one."""
_PER_S = 4
"""Pieces a second at least, where a rate is given."""
_LOOK_S = 0.5
_CONNECT_S = 3.0
"""Source: RemotingUtil#connect is given 5 s; nobody waits so long for an end."""
_DIVERGED_S = 60.0
_FAULTY_MOST_S = 60.0
_BEGINS_LATER = 3
"""How often, one after another, a master may say that its log begins later, and is asked again at once."""


class LinkStatus(enum.Enum):
    """How it stands with the master."""

    AWAY = "away"
    COMPARING = "comparing"
    FOLLOWING = "following"
    DIVERGED = "diverged"
    FAULTY = "faulty"


@dataclass(frozen=True, slots=True)
class Copied:
    """How far a slave is.

    Attributes:
        status: see LinkStatus.
        master: `host:port`.
        end: physical offset up to which the log is here.
        appended, compared: bytes since the client was made.
        error: what went wrong last; None when nothing did since.
        master_end: of the master's log, as it said last; None: it is not known.
        at_home: whether it was our own store that went wrong: what came could not be written.
    """

    status: LinkStatus
    master: str
    end: int
    appended: int
    compared: int
    error: RStoreError | None
    master_end: int | None = None
    at_home: bool = False

    @property
    def lag(self) -> int | None:
        """Bytes that the master has more, as far as is known."""
        return None if self.master_end is None else max(0, self.master_end - self.end)


class SlaveClient:
    """See the module. Thread-safe.

    Args:
        store: of the slave; its brokerRole is SLAVE.
        settings: times; `master_address` is the master.
        log: gets what happens.
        overlap: bytes to compare on each connection.
        start: where an empty log begins; None: with the master's last file.
        bytes_per_s: not faster; None: as it comes.
        tls: of our side; None: plain text.
        protocol: what the master's service speaks.
    """

    def __init__(
        self,
        store: MessageStore,
        settings: HaSettings,
        log: logging.Logger,
        *,
        overlap: int = OVERLAP,
        start: int | None = None,
        bytes_per_s: float | None = None,
        tls: ssl.SSLContext | None = None,
        protocol: HaProtocol | None = None,
    ) -> None:
        self._tls = tls
        self._protocol = protocol or PlainHa()
        self._incoming = incoming_of(store)
        self._faults = self._later = 0
        self._store = store
        self._settings = settings
        self._log = log
        self._overlap = overlap
        self._start = start
        self._rate = bytes_per_s
        self._master = settings.master_address
        self._durable = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._master_min = 0
        self._master_end: int | None = None
        self._waits_at: int | None = None
        self._at_home = False
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._status = LinkStatus.AWAY
        self._error: RStoreError | None = None
        self._appended = self._compared = 0
        self.heard = threading.Condition()
        """Is notified whenever `state` has changed."""

    @property
    def state(self) -> Copied:
        """Now."""
        end = self._store.log.max_offset
        return Copied(
            self._status,
            self._master,
            end,
            self._appended,
            self._compared,
            self._error,
            self._master_end,
            self._error is not None and self._at_home,
        )

    def start(self) -> None:
        """Begin to follow."""
        self._thread = threading.Thread(target=self._run, name="HAClient", daemon=True)
        self._thread.start()

    def follow(self, address: str) -> None:
        """Follow that master from now on; the one that is followed already: nothing changes."""
        if address != self._master:
            self._master_min, self._master_end = 0, None
            self._faults = 0
            if self._status is LinkStatus.FAULTY:
                self._tell(LinkStatus.AWAY, None)
            self._master = address
            self._again()

    def know(self, begin: int, end: int) -> None:
        """The master has said elsewhere where its log begins and ends (physical): Apache's service does not say."""
        self._master_min, self._master_end = begin, end
        waits_at = self._waits_at
        if waits_at is not None and waits_at < begin:
            self._again()

    def speak(self, protocol: HaProtocol) -> None:
        """The master's service speaks that: another connection is made where it was taken to speak another."""
        if type(protocol) is not type(self._protocol):
            self._protocol = protocol
            self._again()

    def stop(self) -> None:
        """End; what has come is in the log."""
        self._stopping.set()
        self._again()
        if self._thread is not None:
            self._thread.join()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause_s = self._settings.retry_ms / 1000
            self._hurry.clear()
            if self._master:
                began = time.monotonic()
                try:
                    self._follow(self._master)
                except BeginsLater as error:
                    self._master_min = error.offset or 0
                    self._later += 1
                    self._away(error)
                    if self._later <= _BEGINS_LATER:
                        pause_s = min(pause_s, _LOOK_S)
                except (BadTransfer, BadRecord, OutOfStep, Untrusted) as error:
                    pause_s = self._pause_after_fault(pause_s, time.monotonic() - began)
                    self._fault(error, pause_s)
                except Diverged as error:
                    pause_s = max(pause_s, _DIVERGED_S)
                    self._master_min = 0
                    if self._status is not LinkStatus.DIVERGED:
                        extra = {"peer": self._master, "why": str(error)}
                        self._log.error("master and slave have diverged", extra=extra)
                    self._tell(LinkStatus.DIVERGED, error)
                except RStoreError as error:
                    self._away(error)
                except ssl.SSLError as error:  # of TLS 1.3 a server says only after the handshake what it wants
                    self._away(StorageError(f"{self._master}: TLS failed: {tls_reason(error)}"))
                except OSError as error:
                    self._away(StorageError(f"{self._master}: {(error.strerror or str(error)).lower()}"))
            if not self._stopping.is_set():
                self._hurry.wait(pause_s)

    def _pause_after_fault(self, pause_s: float, lasted_s: float) -> float:
        """Twice the one before, unless the master was sound for longer than that."""
        if lasted_s > min(pause_s * (1 << self._faults), _FAULTY_MOST_S):
            self._faults = 0
        self._faults = min(self._faults + 1, 16)
        return max(pause_s, min(pause_s * (1 << self._faults), _FAULTY_MOST_S))

    def _fault(self, error: RStoreError, pause_s: float) -> None:
        if self._stopping.is_set():
            return
        extra = {"peer": self._master, "why": str(error), "retry_s": round(pause_s, 1)}
        self._log.error("faulty master: what it sends is not appended", extra=extra)
        self._tell(LinkStatus.FAULTY, error)

    def _away(self, error: RStoreError) -> None:
        if self._stopping.is_set():
            return
        if self._error is None or str(self._error) != str(error):
            self._log.warning("master not reachable", extra={"peer": self._master, "why": str(error)})
        if self._status is LinkStatus.FAULTY and not self._at_home:
            return  # that it now does not answer is no excuse
        self._tell(LinkStatus.AWAY, error)

    def _follow(self, master: str) -> None:
        """One connection, until it ends. Raises RStoreError, OSError."""
        self._at_home = False
        host, port = parse_address(master)
        limit_s = self._settings.housekeeping_ms / 1000
        with socket.create_connection((host, port), min(limit_s, _CONNECT_S)) as link:
            self._socket = link
            try:
                stream = greeted_stream(link, host, min(limit_s, _CONNECT_S), self._tls)
                protocol = self._protocol
                greeting = protocol.greet(stream, limit_s)
                follower = Follower(self._store, self._overlap, self._start, self._master_min, self._incoming)
                if greeting is not None:
                    self._master_end = greeting.end
                    if follower.end > greeting.end:
                        raise ahead(self._store, greeting.end)
                self._waits_at = follower.first_report
                stream.send([protocol.report(follower.first_report)])
                self._log.info("replicating from the master", extra={"peer": master, "from": follower.first_report})
                if self._status not in (LinkStatus.DIVERGED, LinkStatus.FAULTY):  # over when something sound comes
                    self._tell(LinkStatus.COMPARING if follower.comparing else LinkStatus.FOLLOWING, None)
                self._copy(stream, follower, limit_s, protocol)
            finally:
                self._socket = self._waits_at = None

    def _copy(self, stream: Stream, follower: Follower, limit_s: float, protocol: HaProtocol) -> None:
        master = self._master
        reader = protocol.reader()
        heartbeat_s = self._settings.heartbeat_ms / 1000
        rate = self._rate
        piece = _PIECE if rate is None else max(1, min(_PIECE, int(rate / _PER_S)))
        buffer = memoryview(bytearray(piece))
        heard = reported = free_at = time.monotonic()
        while not self._stopping.is_set() and self._master == master:
            try:
                size = stream.receive_into(buffer, _LOOK_S)
            except TimeoutError:
                size = -1
            now = time.monotonic()
            if not size:
                raise StorageError(f"{master}: the connection was closed")
            before, compared = follower.end, follower.comparing
            if size > 0:
                heard = now
                self._take(reader, follower, buffer[:size])
            elif now - heard >= limit_s:
                raise StorageError(f"{master}: no data for {self._settings.housekeeping_ms} ms")
            compared = compared and not follower.comparing
            if follower.end > before or compared or (now - reported >= heartbeat_s and not follower.comparing):
                if self._durable:
                    self._store.flush()
                stream.send([protocol.report(follower.end)])
                reported = now
            elif now - reported >= heartbeat_s:  # while it compares: a sign of life that says no more than it knows
                stream.send([protocol.report(follower.first_report)])
                reported = now
            if rate is not None and size > 0:
                free_at = max(free_at, now) + size / rate
                self._stopping.wait(free_at - now)

    def _take(self, reader: TransferReader, follower: Follower, data: memoryview) -> None:
        flags = self._store.flags
        for error in flags.errors if flags.flag_bits else ():
            raise error  # a damaged record, a queue that can't be written: nothing is appended after it
        appended, compared = follower.appended, follower.compared
        try:
            for transfer in joined(reader.feed(data)):
                follower.take(transfer)
        except StorageError:
            self._at_home = True
            raise
        finally:
            self._appended += follower.appended - appended
            self._compared += follower.compared - compared
        if follower.appended or follower.compared:
            self._waits_at = None
        if not follower.taken:
            return
        self._later = 0
        if not follower.comparing:
            self._tell(LinkStatus.FOLLOWING, None)
        elif self._status is not LinkStatus.DIVERGED:
            self._tell(LinkStatus.COMPARING, None)

    def _tell(self, status: LinkStatus, error: RStoreError | None) -> None:
        with self.heard:
            self._status, self._error = status, error
            self.heard.notify_all()

    def _again(self) -> None:
        self._hurry.set()
        self._cut()

    def _cut(self) -> None:
        link = self._socket
        if link is not None:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
