"""Logs with what a reader of a part could take for what it is not: records in bodies, stale records behind blanks."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from engine.format import message
from engine.format.hashing import body_crc
from engine.format.hosts import Host
from engine.format.message import Message
from engine.format.record import BLANK_SIZE, V4_HEAD_SIZE
from tests.support import logs
from tests.support.logs import Built

V6 = Host(bytes(15) + b"\1", 1)
V4 = Host(b"\1\2\3\4", 5)


@dataclass(frozen=True)
class Planted:
    """What lies in the body of one message: `count` records in a row that name the very place where they lie.

    Attributes:
        before: bytes of body in front of them.
        inner: bytes of body that each of them has.
        count: how many there are.
        behind: bytes of body behind the last one; with `to_the_end` it reaches to the end of the outer record instead.
    """

    before: int = 0
    inner: int = 0
    count: int = 0
    behind: int = 0
    to_the_end: bool = False
    v6: bool = False

    @property
    def message(self) -> Message:
        """The outer message, with room for what is planted."""
        size = len(message.encode(self._inner())) * self.count
        host = V6 if self.v6 else V4
        return Message("T", bytes(self.before + size + self.behind), 1, {"K": "v"}, born_host=host, store_host=host)

    def _inner(self) -> Message:
        return Message("In", b"i" * self.inner, 7)

    def plant(self, data: bytearray, at: int, segment: int) -> None:
        """Fill the body of the record at the position `at` of a segment that begins at the physical offset."""
        size = int.from_bytes(data[at : at + 4], "big")
        body_at = at + V4_HEAD_SIZE + (24 if self.v6 else 0)
        length = int.from_bytes(data[body_at - 4 : body_at], "big")
        place = body_at + self.before
        for i in range(self.count):
            record = message.encode(self._inner())
            if self.to_the_end and i == self.count - 1:
                record = _of_size(at + size - place)
            message.patch(record, 0, queue_offset=i, physical_offset=segment + place, store_timestamp=1)
            cut = record[: body_at + length - place]  # what lies behind the body is the outer record's own
            data[place : place + len(cut)] = cut
            place += len(record)
        body = bytes(data[body_at : body_at + length])
        data[at + 8 : at + 12] = body_crc(body).to_bytes(4, "big")


def _of_size(size: int) -> bytearray:
    """A record of that size whose last bytes are those of every outer record here: topic T, properties K = v."""
    shell = len(message.encode(Message("T", b"", properties={"K": "v"})))
    body = bytearray(size - shell)
    return message.encode(Message("T", bytes(body), properties={"K": "v"}))


ANY = st.builds(
    Planted,
    before=st.integers(0, 300),
    inner=st.integers(0, 80),
    count=st.integers(0, 5),
    behind=st.integers(0, 60),
    to_the_end=st.booleans(),
    v6=st.booleans(),
)
"""Any of them, for hypothesis."""


@dataclass
class PlantedLog:
    """A log of such messages, and where they lie."""

    built: Built
    kinds: list[Planted] = field(default_factory=list)


def build(kinds: list[Planted], segment_size: int) -> PlantedLog:
    """A log of these messages; those in whose bodies nothing is planted are plain."""
    built = logs.build([kind.message for kind in kinds], segment_size)
    for kind, offset in zip(kinds, built.offsets, strict=True):
        start = offset // segment_size * segment_size
        if kind.count:
            kind.plant(built.log.files[start], offset - start, start)
    return PlantedLog(built, kinds)


def leave_stale(built: Built, segment_size: int) -> int:
    """Sound records that name their place behind each blank, as a file holds that was used before; how many."""
    count = 0
    for at, length in built.blanks:
        start = at // segment_size * segment_size
        place = at + BLANK_SIZE
        while True:
            record = message.encode(Message("Stale", b"s" * 20))
            if place + len(record) > at + length:
                break
            message.patch(record, 0, queue_offset=0, physical_offset=place, store_timestamp=1)
            built.log.files[start][place - start : place - start + len(record)] = record
            place += len(record)
            count += 1
    return count
