"""Where messages lie in an archived segment: units of its queues, hashes of its keys. Made by one scan, kept as pieces.

Without them one message would cost a scan of the archive. A queue's rows follow each other, by queue offset; a row is a
unit of RocketMQ's consume queue, 20 bytes. A piece of units has UNIT_ROWS rows. Keys are sorted by their hash (that of
RocketMQ's index, of `TOPIC#KEY`), each with its message's position in the segment: a piece has the hashes, then the
positions, of KEY_ROWS keys, 4 bytes each, little-endian.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from engine.backup.archive.archived import UNIT_ROWS, ArchivedQueue, Run
from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.queue_unit import UNIT_SIZE, unit_dtype
from engine.log.ahead import scan_ahead
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, Units, concatenated
from engine.log.scan import RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.backup.archive.archived import ArchivedSegment
    from engine.backup.repository import Repository
    from engine.config import StoreConfig
    from engine.log.source import ClosedLog, Segment

KEY_ROWS = 64_000
_NUMBER = "<u4"
_NUMBER_SIZE = 4


@dataclass(frozen=True, slots=True)
class SegmentTables:
    """The tables of a segment, in the bytes of their pieces; `keys`: each after the smallest hash in it."""

    queues: tuple[ArchivedQueue, ...]
    units: tuple[bytes, ...]
    keys: tuple[tuple[int, bytes], ...]


def tables_of(
    log: ClosedLog, config: StoreConfig, segment: Segment, progress: Callable[[int, int], None] | None = None
) -> SegmentTables:
    """Read a segment; damage has no rows. `progress`: told how many bytes are read, and of how many.

    Raises:
        StorageError: beside what a scan reports as damage.
    """
    numbers = QueueNumbers()
    deriver = Deriver(DeriveRules.of(config), numbers)
    scanner = Scanner(log, max_message_size=config.max_message_size)
    units: list[Units] = []
    keys: list[Keys] = []
    for event, parts in scan_ahead(
        scanner, segment.offset, segment.end, prepare=deriver.prepare_and_let_go, resume=True
    ):
        if isinstance(event, RecordBatch) and parts is not None:
            some_units, some_keys = deriver.finish(event, parts)
            units.append(some_units)
            keys.append(some_keys)
        if progress is not None:
            progress(event.end - segment.offset, segment.size)
    if not units:
        return SegmentTables((), (), ())
    queues, rows = _rows(concatenated(units, Units), numbers)
    data = memoryview(rows.tobytes())
    at_once = UNIT_ROWS * UNIT_SIZE
    pieces = tuple(bytes(data[at : at + at_once]) for at in range(0, len(data), at_once))
    return SegmentTables(queues, pieces, _key_pieces(concatenated(keys, Keys), segment.offset))


def _rows(units: Units, numbers: QueueNumbers) -> tuple[tuple[ArchivedQueue, ...], NDArray[np.void]]:
    import numpy as np

    order = np.lexsort((units.queue_offset, units.queue))  # stable: of one queue offset twice the later one is last
    units = units.taken(order)
    rows = np.empty(len(units), dtype=unit_dtype())
    for name in ("physical_offset", "size", "tags_code"):
        rows[name] = getattr(units, name)
    if not len(units):
        return (), rows
    breaks = (np.diff(units.queue) != 0) | (np.diff(units.queue_offset) != 1)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    counts = np.diff(np.concatenate([starts, [len(units)]]))
    runs: dict[int, list[Run]] = {}
    firsts, of_queue = units.queue_offset[starts].tolist(), units.queue[starts].tolist()
    for queue, first, row, count in zip(of_queue, firsts, starts.tolist(), counts.tolist(), strict=True):
        if first >= 0:  # a damaged header may say anything
            runs.setdefault(queue, []).append((first, row, count))
    named = ((numbers[queue], some) for queue, some in runs.items())
    return tuple(_sorted(ArchivedQueue(one.topic, one.queue_id, tuple(some)) for one, some in named)), rows


def _sorted(queues: Iterator[ArchivedQueue]) -> list[ArchivedQueue]:
    return sorted(queues, key=lambda one: (one.topic, one.queue_id))


def _key_pieces(keys: Keys, start: int) -> tuple[tuple[int, bytes], ...]:
    import numpy as np

    positions = keys.physical_offset - start
    order = np.lexsort((positions, keys.key_hash))
    hashes, positions = keys.key_hash[order].astype(_NUMBER), positions[order].astype(_NUMBER)
    return tuple(
        (int(hashes[at]), hashes[at : at + KEY_ROWS].tobytes() + positions[at : at + KEY_ROWS].tobytes())
        for at in range(0, len(hashes), KEY_ROWS)
    )


def units_from(repository: Repository, segment: ArchivedSegment, row: int, most: int) -> bytes:
    """Units of a segment from a row on, `most` at most, to the end of their piece at most.

    Raises:
        NotFound, FormatError, StorageError.
    """
    number, inside = divmod(row, UNIT_ROWS)
    if number >= len(segment.units):
        raise FormatError(f"the archived segment has no units from row {row} on", offset=segment.offset)
    piece = repository.get_piece(segment.units[number])
    return piece[inside * UNIT_SIZE : (inside + most) * UNIT_SIZE]


def offsets_of_key(repository: Repository, segment: ArchivedSegment, key_hash: int) -> Sequence[int]:
    """Physical offsets of the messages that have a key of this hash, in log order.

    Raises:
        NotFound, FormatError, StorageError.
    """
    import numpy as np

    lows = [low for low, _ in segment.keys]
    offsets: list[int] = []
    for number in range(max(0, bisect_left(lows, key_hash) - 1), bisect_right(lows, key_hash)):
        piece = segment.keys[number][1]
        table = np.frombuffer(repository.get_piece(piece), dtype=_NUMBER)
        hashes, positions = table[: len(table) // 2], table[len(table) // 2 :]
        start, end = np.searchsorted(hashes, [key_hash, key_hash + 1])
        offsets += (segment.offset + positions[start:end].astype(np.int64)).tolist()
    return offsets
