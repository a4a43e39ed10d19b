"""A running broker on another machine, backed up over its replication service: Apache's or rstore's.

What it has of a segment is copied into a file of our own first (`spool`, one segment at a time), and judged and stored
from there as a local one is; the file of the last segment grows with it. The reader is no slave to the broker
(engine.client.ha_reader). Configuration comes as slaves get it: topics, groups, offsets, delivery of delayed messages.

After a lost connection the last bytes that are here are compared with the broker's: one that was started again after a
crash of its machine may have lost them, and written others.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.backup.create.pieces import ReadPace
from engine.client import master_tables
from engine.client.ha_reader import SETTLED_S, OutsideLog
from engine.config import STORE_SIZES, StoreConfig, apache_key
from engine.errors import StorageError
from engine.format import fastjson, names
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.create.origin import TakeFile
    from engine.client.ha_reader import HaReader
    from engine.client.remote_broker import BrokerFacts, RemoteBroker
    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile
    from engine.seals.seal import Seal

_PIECE = 1 << 20
_OVERLAP = 64 << 10
_WAIT_S = 15.0
_NEAR = 64 << 20
"""Bytes before the log end that a broker may have written within SETTLED_S."""


class RemoteOrigin:
    """See the module; as StoreOrigin. Closed, it leaves nothing behind.

    Args:
        disk: for the spool.
        remote: the broker.
        rate: bytes a second that are fetched at most; None: as they come.
        parent: directory in which the spool is made; None: the system's for temporary files.

    Raises:
        StorageError: the broker can't be asked, or does not say how its log is cut into segments. FormatError.
    """

    def __init__(self, disk: Disk, remote: RemoteBroker, rate: int | None = None, parent: str | None = None) -> None:
        self._disk = disk
        self._remote = remote
        self._facts = facts = remote.facts()
        if facts.segment_size is None:
            raise StorageError(
                f"{facts.address} did not send its settings, which say how long its segments are",
                hint="an admin account may ask for them: --acl FILE",
            )
        self._size = facts.segment_size
        self.root, self.name = facts.address, facts.name
        self.is_live = self.abort = True
        self.sizes = _sizes_of(facts)
        self.index_tags = False  # a broker does not tell
        self.max_message_size = master_tables.number(facts.settings, "maxMessageSize") or StoreConfig().max_message_size
        self.notes: list[str] = []
        self._reader: HaReader = remote.reader(facts)
        self._pace = ReadPace(rate)
        self._directory = tempfile.mkdtemp(prefix="rstore-backup-", dir=parent)
        self._spool: RawFile | None = None
        self._segment = -1
        self._held = 0
        self._see(facts.start, facts.end)

    def look(self) -> None:
        """As StoreOrigin."""
        self._reader.beat()
        self._see(*self._remote.extent())

    def _see(self, start: int, end: int) -> None:
        self.start, self._end = start, end
        first = start - start % self._size
        self.segments = tuple(
            Segment(offset, self._size, self._path(offset)) for offset in range(first, end, self._size)
        )

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, names.segment_name(offset))

    @contextmanager
    def opened(self, segment: Segment) -> Iterator[ClosedLog]:
        """As StoreOrigin."""
        spool = self._fetched(segment)
        spooled = Segment(segment.offset, segment.size, spool.path, held=self._held)
        with ClosedLog(self._disk, [spooled]) as log:
            yield log

    def mtime_ns(self, segment: Segment) -> int:
        """As StoreOrigin: nobody knows."""
        return 0

    def written(self, segment: Segment) -> int:
        """As StoreOrigin."""
        return self._held

    def has(self, segment: Segment) -> bool:
        """As StoreOrigin."""
        return segment.offset >= self._remote.extent()[0]

    def seal(self, segment: Segment) -> Seal | None:
        """As StoreOrigin: a broker tells of none."""
        return None

    def is_same(self, segment: Segment, first: bytes) -> bool:
        """As StoreOrigin."""
        return self._reader.read(segment.offset, len(first)) == first

    def grown(self, end: int, mark: bytes) -> bool:
        """As StoreOrigin."""
        return self._end != end

    def files(self, take: TakeFile) -> tuple[str, ...]:
        """As StoreOrigin."""
        tables, missing = self._remote.tables()
        for name, table in tables.items():
            data = memoryview(fastjson.dumps(table).encode())
            take(f"{names.CONFIG}/{name}", lambda at, length, data=data: data[at : at + length], len(data))  # type: ignore[misc]
        return missing

    def configuration(self) -> list[bytes]:
        """As StoreOrigin."""
        return [name.encode() + fastjson.dumps(table).encode() for name, table in self._remote.tables()[0].items()]

    def close(self) -> None:
        """As StoreOrigin."""
        self._reader.close()
        self._drop()
        shutil.rmtree(self._directory, ignore_errors=True)

    # --- the spool --------------------------------------------------------------------------------------------------

    def _fetched(self, segment: Segment) -> RawFile:
        """The file with what the broker has of a segment, as far as it said last."""
        upto = min(segment.end, self._end)
        if self._segment != segment.offset or segment.offset + self._held > upto:
            self._drop()
        spool = self._spool
        if spool is None:
            spool = self._spool = self._disk.open_raw(self._path(segment.offset), writable=True, create=True)
            self._segment, self._held = segment.offset, 0
            self._settle(segment)
        elif self._held and not self._reader.is_connected and not self._has_same_end(spool):
            self._drop()
            return self._fetched(segment)
        while segment.offset + self._held < upto:
            at = segment.offset + self._held
            piece = self._reader.read_some(at, min(_PIECE, upto - at), _WAIT_S)
            if not piece:
                raise OutsideLog(f"{self.root} sent nothing from offset {at} on, and has {upto}", offset=at)
            spool.write(self._held, piece)
            self._held += len(piece)
            self._pace.wait(len(piece))
        return spool

    def _has_same_end(self, spool: RawFile) -> bool:
        """Whether the broker has what is here; its next bytes are those that come next then."""
        size = min(_OVERLAP, self._held)
        at = self._held - size
        return self._reader.read(self._segment + at, size) == bytes(spool.read(at, size))

    def _settle(self, segment: Segment) -> None:
        """No put may take the first report for a copy of its message: see HaReader."""
        waits = self._facts.role == "SYNC_MASTER" and not self._reader.is_connected
        if waits and segment.offset > self.start and self._facts.end - segment.offset < _NEAR:
            time.sleep(SETTLED_S)

    def _drop(self) -> None:
        spool, self._spool = self._spool, None
        self._segment, self._held = -1, 0
        if spool is not None:
            spool.close()
            self._disk.unlink(spool.path, missing_ok=True)


def _sizes_of(facts: BrokerFacts) -> dict[str, int]:
    defaults = StoreConfig()
    return {
        apache_key(one): master_tables.number(facts.settings, apache_key(one)) or int(getattr(defaults, one))
        for one in STORE_SIZES
    }
