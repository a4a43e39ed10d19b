"""A master's service: slaves connect, say what they have, and get the log as it grows.

Theory (HAService, HAConnection of 4.9.8). Each slave has two threads: one reads its reports, one writes. The writer
sends what is readable, at most `batch` bytes of one file at a time, out of the map, and sleeps until something is
appended; a heartbeat tells that it lives. The first report says where to begin: 0 means the start of the last file,
anything else exactly there.

Where this differs from Apache: a report beyond the log ends the connection, the first one, too (Apache waits for ever);
so does one below it, whose file was deleted. Before that a heartbeat says where the log ends or begins: no slave takes
it for the place that it has asked for. The first report 1 (`follower`) is right for an empty log.

Who may copy is looked at when a connection is accepted, before a byte is sent (`slave_list`), and with TLS by its
handshake; nobody else is ever counted as a slave. LINKS connections are there at a time, PER_ADDRESS of one address.
Beyond that one gives way that has not reported, or is behind and does not come on; or one of the address that has most.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from engine.broker.ha.group import GroupTransfer
from engine.broker.ha.link import Link, Rejection
from engine.broker.net import ports
from engine.client.stream import Stream, TlsStream
from engine.config import BrokerRole
from engine.dataclass import dataclass
from engine.log.results import PutMessageStatus
from engine.services.waiting import FlushFuture

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Iterable

    from engine.broker.ha.link import Reads
    from engine.broker.ha.settings import HaSettings
    from engine.errors import RStoreError
    from engine.store import MessageStore

LINKS = 64
PER_ADDRESS = 8
_BACKLOG = 64
_LOOK_S = 0.1
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
        tls: of slaves' connections; None: plain text.
        registered: addresses of the slaves that registered; called in a thread of ours.
        reads: see Link; where puts wait for slaves.

    Attributes:
        rejections: connections that are no slaves, or no longer, by reason.
    """

    def __init__(
        self,
        store: MessageStore,
        host: str,
        port: int,
        settings: HaSettings,
        log: logging.Logger,
        begin: Callable[[Callable[[], None]], None] = lambda transfer: transfer(),
        *,
        tls: ssl.SSLContext | None = None,
        registered: Callable[[], Collection[str]] = tuple,
        reads: Reads | None = None,
    ) -> None:
        self._tls = tls
        self._reads = reads
        self._registered = registered
        self.rejections = dict.fromkeys((one.value for one in Rejection), 0)
        self._begin = begin
        self._store = store
        self._where = (host, port)
        self._settings = settings
        self._log = log
        self._links: tuple[Link, ...] = ()
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
        links = [link for link in self._links if link.is_slave]
        return tuple(SlaveState(link.address, link.acked, end - (link.acked or 0)) for link in links)

    def replicate(self, next_offset: int) -> FlushFuture:
        """As `engine.services.put.Replicate`. Source: HAService#isSlaveOK."""
        acked = self._most(link.acked for link in self._links)
        if acked is None or next_offset - acked >= self._settings.fall_behind_max:
            return FlushFuture.settled(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        future = self._group.submit(next_offset)
        # A slave may have been quicker than we: its report came before there was somebody to tell.
        confirmed = self._most(link.confirmed for link in self._links)
        if confirmed is not None and confirmed >= next_offset:
            self._group.reported(confirmed)
        self._appended()
        return future

    # --- as of LinkEvents -------------------------------------------------------------------------------------------

    def greeted(self, link: Link) -> None:
        """As of LinkEvents."""
        self._log.info("slave connected", extra={"peer": link.address})

    def reported(self, offset: int) -> None:
        """As of LinkEvents."""
        self._group.reported(offset)

    def rejected(self, address: str, why: Rejection, text: str) -> None:
        """As of LinkEvents."""
        with self._lock:
            self.rejections[why.value] += 1
        self._log.warning("slave connection rejected", extra={"peer": address, "why": text})

    def lost(self, link: Link, why: str) -> None:
        """As of LinkEvents."""
        with self._lock:
            self._links = tuple(one for one in self._links if one is not link)
        if link.is_slave:
            self._log.info("slave disconnected", extra={"peer": link.address, "acked": link.acked, "why": why})

    # --- inside -----------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is not None:
            try:
                client, address = listener.accept()
            except OSError as error:
                if self._listener is not None:  # no descriptor left, a client that has gone already
                    self._log.warning("accept failed; retrying", extra={"why": str(error)})
                    time.sleep(_LOOK_S)
                continue
            host, peer = address[0], ports.joined(address[0], address[1])
            if not (self._is_allowed(host, peer) and self._make_room(host, peer)):
                client.close()
                continue
            self._serve(client, (host, peer))

    def _serve(self, client: socket.socket, peer: tuple[str, str]) -> None:
        waits = self._store.config.broker_role is BrokerRole.SYNC_MASTER
        gather_s, reads = (0.0, self._reads) if waits else (_GATHER_S, None)
        limit_s = self._settings.housekeeping_ms / 1000
        try:
            stream = Stream(client, limit_s) if self._tls is None else TlsStream(client, limit_s, self._tls)
        except OSError:  # it has gone already
            client.close()
            return
        link = Link(self, self._store.log, stream, peer, self._settings, gather_s, reads)
        with self._lock:
            self._links = (*self._links, link)
        try:
            link.start()
        except RuntimeError as error:  # no thread can be started
            link.close(str(error))

    def _is_allowed(self, host: str, peer: str) -> bool:
        allowed = self._settings.allow.allows(host, self._registered())
        if not allowed:
            self.rejected(peer, Rejection.ADDRESS, f"haAllow does not allow it: {self._settings.allow}")
        return allowed

    def _make_room(self, host: str, peer: str) -> bool:
        """Whether there is room for one more connection of `host`; another one may have given way."""
        links = self._links
        same = [link for link in links if link.host == host]
        if len(same) < PER_ADDRESS and len(links) < LINKS:
            return True
        full = len(same) >= PER_ADDRESS
        link = self._gives_way(same if full else links) or (None if full else _of_most(links, len(same) + 1))
        limit = f"{PER_ADDRESS} of one address" if full else str(LINKS)
        if link is None:
            self.rejected(peer, Rejection.LIMIT, f"too many connections: limit {limit}")
            return False
        silent = link.acked is None
        why = "before its first report" if silent else "while it lagged" if full else "of an address with many"
        self.rejected(
            link.address, Rejection.SILENT if silent else Rejection.REPLACED, f"replaced {why}: limit {limit}"
        )
        link.close("replaced by a new connection")
        return True

    def _gives_way(self, links: Collection[Link]) -> Link | None:
        """The first that has not reported, or the one that is behind most and does not come on."""
        end = self._store.log.max_offset
        silent = next((link for link in links if link.acked is None), None)
        stalled = (link for link in links if link.is_stalled(end))
        return silent or min(stalled, key=lambda link: link.acked or 0, default=None)

    @staticmethod
    def _most(offsets: Iterable[int | None]) -> int | None:
        """The most that a slave has of those that are here; None: there is none."""
        return max((one for one in offsets if one is not None), default=None)

    def _appended(self) -> None:
        if self._links:
            self._begin(self._transfer)

    def _transfer(self) -> None:
        self._group.close()
        for link in self._links:
            link.wake()

    def _failed(self, error: RStoreError) -> None:
        self._log.error("waiting for slaves failed", extra={"why": str(error)})


def _of_most(links: Collection[Link], fewer: int) -> Link | None:
    """The newest connection of the address that has most of them; None: no address has more than `fewer`."""
    host, most = Counter(link.host for link in links).most_common(1)[0]
    return next((link for link in reversed(tuple(links)) if link.host == host), None) if most > fewer else None
