"""What is sound in a damaged store, and what of it a repaired one gives: by place, by queue, by key.

Sound is a record whose bytes are as they were written, in any regular file of the log's directories (whatever its name
and length), at the position that belongs to it in its segment. Nothing here uses the engine.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import own
from .bases import Base, Facts
from .own import Record, Unit

MOST_BRIDGED = 91
"""A damaged range of fewer bytes is taken in by the record before it, as separators behind its properties."""


def sound(base: Base, facts: Facts, store: Path) -> frozenset[int]:
    """The physical offsets of the sound records of a damaged store."""
    whole: set[int] = set()
    by_segment: dict[int, list[int]] = defaultdict(list)
    for offset in facts.records:
        by_segment[offset // base.segment * base.segment].append(offset)
    for directory in base.log_dirs(store):
        for name in own.listed(directory):
            if own.regular(directory / name):
                data = own.content(directory / name)
                for start, offsets in by_segment.items():
                    whole |= {at for at in offsets if data.startswith(facts.records[at][0], at - start)}
    return frozenset(whole)


def contested(base: Base, facts: Facts, store: Path, whole: frozenset[int]) -> frozenset[int]:
    """Sound records beside which the segment of their place holds the same message, but damaged where no CRC tells.

    No byte says which of the two is as it was written. Either may stay, as long as the other one is saved.
    """
    found = set()
    log = own.read_log(base.log_dirs(store))
    for offset in whole:
        start = offset // base.segment * base.segment
        written, now = facts.records[offset], own.parse(log.get(start, b""), offset - start)
        if now is None or log[start].startswith(written[0], offset - start):
            continue
        if now.crc_ok and now.body == written[1].body and now.physical_offset == offset:
            found.add(offset)
    return frozenset(found)


@dataclass(frozen=True)
class Held:
    """What a store holds for its readers: segments, units by queue, and what keys find."""

    log: dict[int, bytes]
    units: dict[tuple[str, int], dict[int, Unit]]
    keys: set[tuple[int, int]]

    @property
    def end(self) -> int:
        """Behind the last record of the log, whoever goes from one to the next; without any, the log's first byte.

        A blank record leads on to the next segment, if that is there, whether it holds a record or not.
        """
        end = max((offset + record.size for offset, record in own.walk(self.log)), default=min(self.log, default=0))
        while True:
            start = max((one for one in self.log if one <= end), default=end)
            data = self.log.get(start, b"")
            left = len(data) - (end - start)
            if start + len(data) not in self.log or data[end - start :][:8] != struct.pack(">iI", left, own.BLANK):
                return end
            end = start + len(data)

    def record(self, offset: int, segment: int) -> Record | None:
        """The record at a physical offset."""
        start = offset // segment * segment
        return own.parse(self.log[start], offset - start) if start in self.log else None


def held(base: Base, store: Path) -> Held:
    """Reads a store."""
    log = {
        offset: data
        for offset, data in own.read_log(base.log_dirs(store)).items()
        if offset % base.segment == 0 and len(data) == base.segment
    }
    return Held(log, own.read_queues(store), own.read_index(store, *base.layout))


@dataclass
class Loss:
    """Sound messages (their physical offsets) that a repaired store does not give; and what it gives that is none.

    `moved`: in their queue at another queue offset. `invented`: a sentence each. `parts`: so of what RocketMQ 5 keeps
    besides (newer.py).
    """

    place: set[int] = field(default_factory=set)
    queue: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    key: set[int] = field(default_factory=set)
    invented: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def messages(self) -> set[int]:
        """Those lost in any way."""
        return self.place | self.queue | self.moved | self.key

    def any(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.messages or self.invented or self.broken or self.parts)


def loss(base: Base, facts: Facts, whole: frozenset[int], found: Held, *, to_the_end: bool) -> Loss:
    """Holds what a repaired store gives against what was sound in it.

    Args:
        base: what it was made from.
        facts: what was written.
        whole: what was sound before the repair.
        found: what the store gives now.
        to_the_end: whether its log has to be readable from one end to the other, by whoever goes record by record.
    """
    out = Loss()
    out.place = {offset for offset in whole if not _there(base, facts, found, offset)}
    _queues(facts, whole, found, out)
    out.key = {offset for one, offset in facts.keys if offset in whole and (one, offset) not in found.keys}
    _log(base, facts, found, out, to_the_end=to_the_end)
    _units(base, facts, whole, found, out)
    return out


def _there(base: Base, facts: Facts, found: Held, offset: int) -> bool:
    data, record = facts.records[offset]
    start = offset // base.segment * base.segment
    if found.log.get(start, b"").startswith(data, offset - start):
        return True
    now = found.record(offset, base.segment)
    return now is not None and _taken_in(record, now)


def _taken_in(record: Record, now: Record) -> bool:
    """Whether a record is what it was but for separators behind its properties."""
    more = now.size - record.size
    if not 0 < more < MOST_BRIDGED or now.told != record.told + b"\x02" * more:
        return False
    return now._replace(size=record.size, properties=record.properties) == record


def _queues(facts: Facts, whole: frozenset[int], found: Held, out: Loss) -> None:
    for (topic, queue_id, at), offset in facts.queues.items():
        if offset not in whole:
            continue
        units = found.units.get((topic, queue_id), {})
        unit = units.get(at)
        size = facts.records[offset][1].size
        if unit is not None and unit.offset == offset and 0 <= unit.size - size < MOST_BRIDGED:
            continue
        elsewhere = any(one.offset == offset for one in units.values())
        (out.moved if elsewhere else out.queue).add(offset)


def _log(base: Base, facts: Facts, found: Held, out: Loss, *, to_the_end: bool) -> None:
    """Every record of the log was written, or is no message: a bridge's, or a rollback (a single old one behind the
    log's end, stored in the same millisecond, nothing tells from one that was put there).
    """
    last = max(found.log, default=0)
    for start, data in sorted(found.log.items()):
        at = 0
        while (record := own.parse(data, at)) is not None:
            known = facts.records.get(start + at)
            if known is None and record.kind != own.ROLLBACK:
                out.invented.append(f"a record at {start + at} of the log, where none was written")
            at += record.size
        if not to_the_end:
            continue
        closed = data[at : at + 8] == (len(data) - at).to_bytes(4, "big") + own.BLANK.to_bytes(4, "big")
        if not closed and (start != last or any(data[at:])):
            out.broken.append(f"no reader gets past {start + at} of the log, of {start + len(data)}")


def _units(base: Base, facts: Facts, whole: frozenset[int], found: Held, out: Loss) -> None:
    """Every unit shows a message that its queue has; or where that is lost, a neighbour's (which may be lost, too) or
    an inert record.
    """
    of_queue: dict[tuple[str, int], set[int]] = defaultdict(set)
    for (topic, queue_id, _), offset in facts.queues.items():
        of_queue[topic, queue_id].add(offset)
    first = min(found.log, default=0)
    last_lost = max((offset for offset in facts.records if offset not in whole), default=-1)
    for (topic, queue_id), units in found.units.items():
        for at, unit in units.items():
            wanted = facts.queues.get((topic, queue_id, at))
            if unit.offset == wanted or unit.offset < first:
                continue
            record = found.record(unit.offset, base.segment)
            lost = wanted is not None and wanted not in whole
            if record is None and not (lost and unit.offset in of_queue[topic, queue_id]):
                out.invented.append(f"unit {at} of {topic}/{queue_id} points at {unit.offset}, where no record is")
            elif record is None or record.inert or (lost and unit.offset in of_queue[topic, queue_id]):
                continue
            elif unit.offset not in whole and (topic, queue_id, at) in own.queues_of(record, dispatched=True):
                continue  # a header that nothing shows to be wrong
            elif wanted is None and unit == units.get(at - 1) and unit.offset < last_lost:
                continue  # as a repair fills a lost message's place: it may have been this queue's
            elif wanted is None or wanted not in whole:
                out.invented.append(f"unit {at} of {topic}/{queue_id} shows the message at {unit.offset}, not of it")


def saved(store: Path, facts: Facts, offsets: set[int]) -> set[int]:
    """Which of these records lie, byte for byte, in a file that a repair saved."""
    files = [
        own.content(os.path.join(place, name))
        for top in ("salvage", "quarantine")
        for place, _, names in os.walk(store / top)
        for name in names
        if own.regular(os.path.join(place, name))
    ]
    hints = [0] * len(files)
    found = set()
    for offset in sorted(offsets):
        data = facts.records[offset][0]
        for number, content in enumerate(files):
            at = content.find(data, hints[number])
            if at < 0 and hints[number]:
                at = content.find(data)
            if at >= 0:
                hints[number] = at + len(data)
                found.add(offset)
                break
    return found


def names(facts: Facts, offsets: set[int], most: int = 3) -> str:
    """Some of these, for a person."""
    some = ", ".join(_name(facts.records, one) for one in sorted(offsets)[:most])
    return some + (f" and {len(offsets) - most} more" if len(offsets) > most else "")


def _name(records: Mapping[int, tuple[bytes, Record]], offset: int) -> str:
    record = records[offset][1]
    return f"{offset} ({record.topic.decode('utf-8', 'replace')}/{record.queue_id} {record.queue_offset})"
