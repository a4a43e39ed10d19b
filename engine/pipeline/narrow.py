"""A narrow topic, read through its consume queues instead of the log: what lies in between is not read at all.

Theory. A broker dispatches records in the order of the log: where any queue has a unit for the record that ends at some
offset, every record before it has been dispatched. Up to there (`dispatched`) the units of a topic's queues name its
messages, all of them; what lies after is scanned. That holds for a store that was closed, or is alive; one that
crashed may have lost units, and is scanned. So is a store in which a queue of the topic does not begin with its first
message, or, if the log has forgotten that, with one that is forgotten, too; and one in which something lies after a
queue's end, or units are out of order: there, units may be lost.

The log is cut into the same splits, and a split's task has the units that lie in it. It looks whether each names a
sound record of that topic, queue and queue offset, before it gives a row. If one doesn't, the task scans its split.

A message that is prepared or rolled back has no unit: who asks for a topic gets it from the log. With the option
`consumable` it is not asked for, and both ways give the same rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NewerStore, StorageError
from engine.files.disk import Disk
from engine.files.written import is_written
from engine.format.judge import Row
from engine.format.message import ENCODE_OVERHEAD
from engine.format.queue_unit import UNIT_SIZE, decode_many
from engine.log.batch import RecordBatch
from engine.log.boundary import Boundaries
from engine.log.derive import TopicQueue
from engine.log.scan import Damage
from engine.log.walk import walk
from engine.pipeline.splits import events
from engine.read_store import ReadStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.log.closed_queue import ClosedQueue
    from engine.log.scan import Event
    from engine.log.source import ClosedLog
    from engine.pipeline.splits import Split
    from engine.pipeline.stores import StoreRef

    Numbers = NDArray[np.int64]

_PAGE = 4096
_NEAR = 64 << 10
"""Bytes between two records that are read along: a second read costs more."""
_WINDOW = 4 << 20
_OTHERS = 64
"""Queues, written last, that are asked how far dispatching has come."""
_FEW = 256
"""Records for which kernels are not worth their loading."""
_GAIN = 4
"""How many times less than the log must be read."""


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """Units of some queues, by physical offset: int64[4, n] (physical offset, size, queue, queue offset) as bytes.

    Attributes:
        queues: which queues the third row counts.
        packed: the array; it goes to executors.
    """

    queues: tuple[TopicQueue, ...]
    packed: bytes

    @property
    def table(self) -> Numbers:
        """int64[4, n]."""
        import numpy as np

        return np.frombuffer(self.packed, dtype=np.int64).reshape(4, -1)

    def between(self, start: int, end: int) -> FoundUnits:
        """Those whose records begin in [start, end), physical offsets."""
        table = self.table
        low, high = table[0].searchsorted([start, end])
        return replace(self, packed=table[:, low:high].tobytes())

    def __len__(self) -> int:
        return len(self.packed) // 32


def find_units(store: StoreRef, topics: frozenset[str], start: int, end: int) -> tuple[FoundUnits, int] | None:
    """The units of some topics, and up to which physical offset they are all there is.

    Args:
        store: whose.
        topics: names.
        start, end: physical offsets between which messages are asked for.

    Returns:
        None when the queues can't be trusted, or reading the log isn't more.
    """
    if store.snapshot is not None:  # it has no queues
        return None
    try:
        disk = Disk(mapped=False)  # a broker may cut a file that it shares
        with ReadStore(store.config, disk) as reader:
            if reader.files.abort and not store.live:
                return None
            wanted = [queue for queue in reader.queues() if queue.topic in topics]
            if {queue.topic for queue in wanted} != topics or not _whole(wanted):
                return None
            dispatched = _dispatched(reader, store)
            return _collected(reader, wanted, (start, min(end, dispatched), end), disk)
    except (StorageError, NewerStore):
        return None


def _whole(queues: list[TopicQueue]) -> bool:
    """Whether each topic has its queues from 0 on: a directory that is missing has taken its messages along."""
    for topic in {queue.topic for queue in queues}:
        ids = sorted(queue.queue_id for queue in queues if queue.topic == topic)
        if ids != list(range(len(ids))):
            return False
    return True


def _dispatched(reader: ReadStore, store: StoreRef) -> int:
    """Up to which physical offset every record has been dispatched: as far as the queues written last tell."""
    end = store.segments[0].offset
    ranked = sorted(
        (files for files in reader.files.queues if files.files), key=lambda q: q.files[-1].mtime_ns, reverse=True
    )
    for files in ranked[:_OTHERS]:
        queue = reader.closed_queue(files.queue.topic, files.queue.queue_id)
        if queue is not None:
            end = max(end, queue.max_physical_offset)
    return end


def _collected(
    reader: ReadStore, wanted: list[TopicQueue], places: tuple[int, int, int], disk: Disk
) -> tuple[FoundUnits, int] | None:
    """`find_units`, of queues; `places`: start, dispatched, end."""
    import numpy as np

    start, dispatched, end = places
    begin = reader.log.min_offset
    most = (end - start) // _GAIN - (end - dispatched)
    parts: list[Numbers] = []
    cost = 0
    for number, name in enumerate(wanted):
        queue = reader.closed_queue(name.topic, name.queue_id)
        if queue is None or not _begins(queue, begin) or not _ends(reader, queue, disk):
            return None
        cost += (queue.max_offset - queue.min_offset) * UNIT_SIZE
        if cost > most:
            return None
        for first, units in _runs(queue):
            table = np.empty((4, len(units)), dtype=np.int64)
            table[0], table[1], table[2] = units["physical_offset"], units["size"], number
            table[3] = np.arange(first, first + len(units))
            if (table[1] <= 0).any() or (np.diff(table[0]) <= 0).any():
                return None
            table = table[:, (table[0] >= start) & (table[0] < dispatched)]
            cost += int(np.maximum(table[1], _PAGE).sum())
            if cost > most:
                return None
            parts.append(table)
    every = np.concatenate(parts, axis=1) if parts else np.empty((4, 0), dtype=np.int64)
    every = every[:, np.argsort(every[0], kind="stable")]
    return FoundUnits(tuple(wanted), every.tobytes()), dispatched


def _begins(queue: ClosedQueue, begin: int) -> bool:
    """Whether all messages of a queue from the log's first byte on have their unit in it."""
    if queue.min_offset == 0:
        return True
    before = queue.get(queue.min_offset - 1)
    return before is not None and not before.is_pre_blank and before.physical_offset < begin


def _ends(reader: ReadStore, queue: ClosedQueue, disk: Disk) -> bool:
    """Whether only zeros follow a queue's last unit."""
    files = next((one.files for one in reader.files.queues if one.queue == queue.queue), ())
    if not files:
        return queue.max_offset == 0
    last, end = files[-1], queue.max_offset * UNIT_SIZE
    if not last.offset <= end <= last.offset + last.size:
        return False
    file = disk.open_reader(last.path)
    try:
        return not is_written(file, end - last.offset, last.size)
    finally:
        file.close()


def _runs(queue: ClosedQueue) -> Iterator[tuple[int, NDArray[np.void]]]:
    """All units of a queue, a file at a time: the first one's queue offset, units."""
    at = queue.min_offset
    while at < queue.max_offset:
        selected = queue.select(at)
        if selected is None:
            at = queue.roll_next_file(at)
            continue
        with selected:
            units = decode_many(selected.view[: (queue.max_offset - at) * UNIT_SIZE]).copy()
        yield at, units
        at += len(units)


# --- on executors ----------------------------------------------------------------------------------------------------


def narrow_events(split: Split, units: FoundUnits, log: ClosedLog) -> Iterator[Event]:
    """The records that units name, in batches; the events of the split's scan when one of them names none.

    Records outside of the split may be among the scan's: the filter by physical offset leaves them out.

    Args:
        split: from where to where, physical offsets.
        units: those of its records.
        log: its file.

    Raises:
        FormatError, StorageError: as `events`.
    """
    batches = _records(split, units, log)
    if batches is None:
        limit = split.store.config.max_message_size
        boundaries = Boundaries(log, max_message_size=limit, check_crc=False)
        start = boundaries.before(split.segment, split.start)
        for event in events(replace(split, start=start, known=True), log, check_crc=False):
            if not isinstance(event, Damage) or split.start <= event.offset < split.end:
                yield event
    else:
        yield from batches


def _records(split: Split, units: FoundUnits, log: ClosedLog) -> list[RecordBatch] | None:
    """The records, each looked at; None when a unit names something else. Raises StorageError."""
    batches: list[RecordBatch] = []
    places: list[tuple[int, int, int, int]] = []
    most = split.store.config.max_message_size + ENCODE_OVERHEAD
    for place in units.table.T.tolist():
        offset, size = place[0], place[1]
        if size > most or offset + size > split.segment.end:
            return None
        if places:
            first, last = places[0], places[-1]
            if offset < last[0] + last[1]:
                return None
            if offset - last[0] - last[1] > _NEAR or offset + size - first[0] > _WINDOW:
                batch = _window(split, units.queues, places, log)
                if batch is None:
                    return None
                batches.append(batch)
                places = []
        places.append(place)
    if places:
        batch = _window(split, units.queues, places, log)
        if batch is None:
            return None
        batches.append(batch)
    return batches


def _window(
    split: Split, queues: tuple[TopicQueue, ...], places: list[tuple[int, int, int, int]], log: ClosedLog
) -> RecordBatch | None:
    import numpy as np

    base = places[0][0]
    buffer = log.read(base, places[-1][0] + places[-1][1] - base)
    rows: list[Row] = []
    for i, (offset, size, queue, queue_offset) in enumerate(places):
        at = offset - base
        walk(buffer, at, split.segment.end - base, rows, check_crc=False, max_rows=1)
        if len(rows) != i + 1:
            return None
        row = rows[i]
        topic = bytes(buffer[row.topic_position : row.topic_position + row.topic_length])
        if (
            row.size != size
            or row.stored_offset != offset
            or (row.queue_id, row.queue_offset) != (queues[queue].queue_id, queue_offset)
            or topic != queues[queue].topic.encode("utf-8", "replace")
        ):
            return None
    if len(rows) < _FEW:
        return RecordBatch(base, buffer, rows)
    return RecordBatch(base, buffer, np.array(rows, dtype=np.int64))
