"""Sound records that a second file of a segment's place holds, and that the segment lacks.

A copy beside a segment (a backup, what an rsync left under another name) may be damaged, too, but hardly at the same
bytes. The layout keeps one of the two files (layout.py); where each holds records that the other lacks, `--bridge`
writes those of the copy over the damage of the one that stays, byte for byte, and bridges what neither holds. Only what
a unit of this store's queues shows at just that place is taken: what a copy holds more was truncated since, or is
another store's. The copy leaves its place when that is done: who is killed before finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.inspect.store.intervals import Intervals
from engine.inspect.store.segment_contest import Belonging
from engine.inspect.store.segment_look import witnesses
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from engine.repair.recover.bridge import Bridge, Patch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.inspect.store.layout import Layout
    from engine.inspect.store.survey import StoreFiles

MOST = 64 << 20
"""Bytes that are taken out of copies in one repair; more stay in quarantine/."""


def taken_from_copies(disk: Disk, files: StoreFiles, layout: Layout) -> tuple[Bridge, ...]:
    """What is written over damage of the segments out of their copies, in log order. Raises StorageError.

    `files`: the store, its log as it will be.
    """
    left, bridges = MOST, []
    belonging = Belonging(disk, files)
    for copy in layout.rivals:
        segment = next((one for one in files.log if one.offset == copy.offset), None)
        for one in _taken(disk, belonging, segment, copy, files.config.max_message_size) if segment else ():
            left -= one.length
            if left >= 0:
                bridges.append(one)
    return tuple(sorted(bridges, key=lambda one: one.offset))


def _taken(disk: Disk, belonging: Belonging, segment: Segment, copy: Segment, largest: int) -> Iterator[Bridge]:
    """Runs of records, one Bridge each."""
    damaged = Intervals()
    with ClosedLog(disk, [segment]) as log:
        for event in Scanner(log, max_message_size=largest).scan(segment.offset, resume=True):
            if isinstance(event, Damage):
                damaged.add(event.offset, event.end)
    with ClosedLog(disk, [copy]) as log:
        for event in Scanner(log, max_message_size=largest).scan(segment.offset, resume=True) if damaged else ():
            if not isinstance(event, RecordBatch):
                continue
            moved = {place for place, _, _ in event.moved()}
            start, data = event.start, bytearray()
            for i, witness in enumerate(witnesses(event)):
                offset, record = event.offset(i), event.record(i)
                fits = offset not in moved and damaged.overlap(offset, offset + len(record)) == len(record)
                if fits and belonging.is_shown(witness, offset):
                    start = start if data else offset
                    data += record
                elif data:
                    yield _bridge(segment, start, data)
                    data = bytearray()
            if data:
                yield _bridge(segment, start, data)


def _bridge(segment: Segment, start: int, data: bytearray) -> Bridge:
    return Bridge(start, len(data), segment, "damage", (Patch(start, len(data), data=bytes(data)),))
