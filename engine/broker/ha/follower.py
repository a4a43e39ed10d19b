"""What a slave does with what its master sends: compare, append, report. Sans-I/O on the wire's side.

Theory. A slave that has something asks for a little that it already has, and compares it before it takes anything new:
two logs that have parted differ there, or one of them ends. (Apache's slave asks for what it lacks, and appends what
comes to whatever it has.) Everything that is new is judged first (`engine.log.incoming`): whole sound records that lie
where they say are appended as they are, and nothing from the first on that is none.

The protocol's report 0 means "the last file"; so who wants the log from its first byte on reports 1, and adds that byte
himself: the first byte of a log is the highest of a record's length, which is 0 in every record that fits a file.

A master of ours says with a heartbeat of another offset than the one that was asked for that it does not have that one:
its log ends before, or begins later. (Apache's sends heartbeats of the offset that was asked for, and no more.)

Sources: HAClient#dispatchReadRequest (4.9.8); REMOTING.md 3.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from engine.errors import FormatError, StorageError
from engine.log.incoming import IncomingLog

if TYPE_CHECKING:
    from engine.store import MessageStore
    from engine.wire.ha import Transfer

OVERLAP = 1 << 20
"""Bytes that are asked for again and compared."""
_FIRST_BYTE = b"\0"
_SURE = 2
"""Heartbeats with no more of what we have, one after another, that say that the master has no more."""


class Diverged(FormatError):
    """Master and slave are not two copies of one log; `offset` is the first physical offset at which they differ."""


class OutOfStep(FormatError):
    """The master sends another place than the one that is next: the connection is begun anew."""


class BeginsLater(OutOfStep):
    """The master's log begins at `offset`, physical, after what was asked for. It is no fault of the master's."""


def _hint(store: MessageStore, offset: int) -> str:
    """What to do where the logs part; `truncate` names the beginning of the record that `offset` lies in."""
    root = store.config.store_path_root_dir
    return (
        f"next: rstore --store {shlex.quote(str(root))} truncate --to-offset {offset} --dry-run, which saves what only "
        "this store has; or move the store away and copy it again"
    )


def ahead(store: MessageStore, master_end: int) -> Diverged:
    """What is wrong where a slave's log continues after its master's end (physical)."""
    return Diverged(
        f"the slave is ahead: the master's log end is {master_end}, this one's is {store.log.max_offset}",
        path=store.config.store_path_root_dir,
        offset=master_end,
        hint=_hint(store, master_end),
    )


class Follower:
    """See the module. One for each connection.

    Args:
        store: of the slave.
        overlap: bytes to compare; 0: none.
        start: where an empty log begins, physical, the start of a file; None: with the master's last file.
        master_min: where the master's log begins, as far as is known.
        incoming: judges what is new; kept from one connection to the next.

    Raises:
        Diverged: the master has deleted what comes next.

    Attributes:
        compared: bytes that were the same.
        appended: bytes.
        taken: whether the master has sent something that a master sends: what is here, a sound record, a heartbeat.
    """

    def __init__(
        self,
        store: MessageStore,
        overlap: int = OVERLAP,
        start: int | None = None,
        master_min: int = 0,
        incoming: IncomingLog | None = None,
    ) -> None:
        self._store = store
        self._log = store.log
        self._incoming = incoming or incoming_of(store)
        self._begun = False
        self._appends_at = self._added = 0
        self.taken = False
        self._expected: int | None = None
        self._end = self._log.max_offset
        self._idle = 0
        self.compared = self.appended = 0
        if self._end:
            if master_min > self._end:
                raise Diverged(
                    f"the master's log start is {master_min}, this log ends at {self._end}: segments were deleted",
                    path=store.config.store_path_root_dir,
                    offset=self._end,
                    hint="the slave was disconnected for too long: move its store away and copy it again",
                )
            self._ask = max(self._log.min_offset, self._end - overlap, master_min)
            self._expected = self._ask = self._ask or min(1, self._end)
        elif start is None:
            self._ask = 0
        else:
            self._ask = max(start, master_min) or 1
            self._expected = self._ask

    @property
    def first_report(self) -> int:
        """What the master is told first: where to begin."""
        return self._ask

    @property
    def end(self) -> int:
        """Physical offset up to which the log is here."""
        return self._end

    @property
    def comparing(self) -> bool:
        """Whether what comes is compared still: nothing may be reported."""
        return self._expected is not None and self._expected < self._end

    def take(self, transfer: Transfer) -> None:
        """What has come.

        Raises:
            Diverged: it is not what we have; nothing of it was taken. OutOfStep, BadRecord: no master sends that;
            what was sound before it was taken. DiskFull, StorageError.
        """
        offset, body = transfer.offset, memoryview(transfer.body)
        if self._expected is None:
            self._expected = offset
        if offset != self._expected:
            if not body and self._end and offset < self._expected and not (self.appended or self.compared):
                raise ahead(self._store, offset)
            if not body and offset > self._expected and not (self.appended or self.compared):
                raise BeginsLater(f"the master's log start is {offset}", offset=offset)
            raise OutOfStep(f"the master sent offset {offset}, expected {self._expected}", offset=offset)
        if not body:
            self._heartbeat(offset)
            return
        self._idle = 0
        here = min(len(body), max(0, self._end - offset))
        if here:
            self._compare(offset, body[:here])
        self._expected = offset + len(body)
        if here < len(body):
            self._judge(offset + here, body[here:])

    def _heartbeat(self, offset: int) -> None:
        self._idle += 1
        self.taken = True
        if offset < self._end and self._idle >= _SURE:
            raise ahead(self._store, offset)

    def _compare(self, offset: int, body: memoryview) -> None:
        at = 0
        while at < len(body):
            own = self._log.read(offset + at, len(body) - at)
            if not len(own):
                raise StorageError("the compared range is no longer in this log", offset=offset + at)
            theirs = body[at : at + len(own)]
            if own != theirs:
                first = next(i for i, (one, other) in enumerate(zip(own, theirs, strict=True)) if one != other)
                raise Diverged(
                    "slave and master have diverged: their bytes differ",
                    path=self._store.config.store_path_root_dir,
                    offset=offset + at + first,
                    hint=_hint(self._store, offset + at + first),
                )
            at += len(own)
        self.compared += len(body)
        self.taken = True

    def _judge(self, offset: int, body: memoryview) -> None:
        """What is new, from `offset` on: append what of it is sound and whole. Raises BadRecord."""
        if not self._begun:
            self._begun = True
            if self._end == 0 and offset == 1:
                offset, body = 0, memoryview(_FIRST_BYTE + body)
                self._added = len(_FIRST_BYTE)
            elif self._end == 0 and offset % self._log.file_size:
                raise OutOfStep(f"the master sent offset {offset}, where no segment starts", offset=offset)
            self._appends_at = offset
            self._incoming.begin(offset)
        sound = self._incoming.feed(body)
        if len(sound):
            self._store.append_raw(self._appends_at, sound)
            self.appended += len(sound) - self._added
            self._added = 0
            self.taken = True
            self._end = self._appends_at = self._appends_at + len(sound)
        if self._incoming.fault is not None:
            raise self._incoming.fault


def incoming_of(store: MessageStore) -> IncomingLog:
    """Who judges what comes for a store."""
    return IncomingLog(store.config.mapped_file_size_commit_log, store.config.max_message_size)
