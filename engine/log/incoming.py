"""What comes from a master, judged before anything of it is appended: sans-I/O.

A log's bytes come in pieces of any length. Only whole sound records are given on (`engine.format.judge`: magic,
lengths, body CRC) whose own physical offset is where they lie, and the blank record that closes a file, with all that
follows it up to the file's end, whatever that is (REMOTING.md 3). The beginning of a record is held until the rest is
there; a record that claims to be larger than `LARGEST` and maxMessageSize is not waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format.judge import Reason, Row, Stop
from engine.format.message import ENCODE_OVERHEAD
from engine.format.record import V4_HEAD_SIZE, physical_offset_at
from engine.log.natives import CHAIN_END
from engine.log.scan import LONG, kernels_if_loaded, load_fast_walk
from engine.log.walk import walk

if TYPE_CHECKING:
    from engine.log.scan import FastWalk

LARGEST = 64 << 20
"""Bytes of a record that are held at most, unless maxMessageSize is larger: a broker's largest frame is 16 MiB."""
_FEW = 8 << 10
"""Bytes that are walked without kernels: a call of one costs as much as some records do."""
_POSITION, _STORED = Row._fields.index("position"), Row._fields.index("stored_offset")


class BadRecord(FormatError):
    """The log that comes has no sound record at `offset`, physical: nothing from there on was given on."""


class IncomingLog:
    """See the module.

    Args:
        file_size: of the log's segments, bytes.
        max_message_size: setting maxMessageSize, bytes.

    Attributes:
        fault: why nothing more is given on; None: what came was sound.
    """

    def __init__(self, file_size: int, max_message_size: int) -> None:
        self._file_size = file_size
        self._largest = max(max_message_size, LARGEST) + ENCODE_OVERHEAD
        self._fast: FastWalk | None = load_fast_walk() if kernels_if_loaded() else None
        self._slow = 0  # bytes that were walked without kernels
        self._held = bytearray()
        self._need = 0
        self._at = self._blank_end = 0
        self.fault: BadRecord | None = None

    def begin(self, end: int) -> None:
        """A new connection: what was held is forgotten, and what comes next lies at `end`, physical."""
        self._held, self._need, self.fault = bytearray(), 0, None
        if end != self._at:
            self._at = self._blank_end = end

    @property
    def held(self) -> int:
        """Bytes that came and wait for the rest of their record."""
        return len(self._held)

    def feed(self, data: bytes | memoryview) -> memoryview:
        """What may be appended now, in one piece; perhaps a view of `data`. After a `fault` there is no more."""
        if self.fault is not None:
            return memoryview(b"")
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return memoryview(b"")
            buffer, self._held = memoryview(self._held), bytearray()
        else:
            buffer = memoryview(data)
        end = self._judge(buffer)
        if self.fault is None:
            self._held = bytearray(buffer[end:])
        self._at += end
        return buffer[:end]

    def _judge(self, buffer: memoryview) -> int:
        """Up to which position all of it is sound; the rest is held, or is a fault."""
        position = min(len(buffer), max(0, self._blank_end - self._at))
        self._need = 0
        while position < len(buffer) and self.fault is None and not self._need:
            room = position + self._file_size - (self._at + position) % self._file_size
            stop = self._walk(buffer[:room], position, room)
            position = stop.position
            if position == room:
                continue
            if stop.blank:
                self._blank_end = self._at + position + stop.blank
                position = min(len(buffer), position + stop.blank)
            elif stop.reason is not None:
                self._find(position, *_why(stop.reason, stop.detail))
            elif stop.more:
                self._wait(buffer, position, stop.more)
        return position

    def _walk(self, buffer: memoryview, start: int, room: int) -> Stop:
        """Where the sound records from `start` on end that lie where they say."""
        base = self._at
        if self._fast is not None and len(buffer) - start > _FEW:
            table, stop = self._fast(buffer, start, room)
            wrong = (table[:, _STORED] != table[:, _POSITION] + base).nonzero()[0]
            if len(wrong):
                at, stored = (int(table[wrong[0], column]) for column in (_POSITION, _STORED))
                return _elsewhere(at, stored)
            return stop
        native = CHAIN_END.after(1) if len(buffer) - start <= _FEW else None
        if native is not None:
            reached = native(buffer, start, room, base, None)
            if reached == len(buffer):
                return Stop(reached)
            start = start if reached is None else reached
        rows: list[Row] = []
        stop = walk(buffer, start, room, rows)
        self._slow += stop.position - start
        if self._slow >= LONG:
            self._slow, self._fast = 0, load_fast_walk()
        for row in rows:
            if row.stored_offset != base + row.position:
                return _elsewhere(row.position, row.stored_offset)
        return stop

    def _wait(self, buffer: memoryview, position: int, need: int) -> None:
        """For the rest of a record, if what is there of it may be the beginning of one."""
        self._need = need
        if need > self._largest:
            self._find(position, f"a record of {need} bytes, more than {self._largest}")
        elif len(buffer) - position >= V4_HEAD_SIZE:
            stored = physical_offset_at(buffer, position)
            if stored != self._at + position:
                self._find(position, _elsewhere(position, stored).detail)

    def _find(self, position: int, why: str, hint: str | None = None) -> None:
        self.fault = BadRecord(f"the master sent no sound record: {why}", offset=self._at + position, hint=hint)


def _why(reason: Reason, detail: str) -> tuple[str, str | None]:
    """What to say of a place without a sound record, and what to look at."""
    if reason is Reason.BLANK_LENGTH:
        return reason.value, "mappedFileSizeCommitLog must be that of the master"
    told = detail if detail and reason in (Reason.MAGIC, Reason.SIZE, Reason.LENGTHS) else reason.value
    return told, "rstore verify-crc shows whether the master's log is damaged"


def _elsewhere(position: int, stored: int) -> Stop:
    return Stop(position, reason=Reason.MAGIC, detail=f"its own physical offset is {stored}")
