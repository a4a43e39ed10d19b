"""Rows of numbers, many at a time: units of a queue, entries of the index files. Columns, not an object a row."""

from __future__ import annotations

import os
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, WrongFileSize
from engine.format import names
from engine.inspect.store.newer import refuse_queue
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.survey import surveyed
from engine.log.derive import TopicQueue
from engine.log.index_reader import ClosedIndexFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

AT_ONCE = 1 << 14
"""Rows of a block, at most."""
_LAST = (1 << 63) - 1
_UNIT = ("queueOffset", "physicalOffset", "size", "tagsCode")
_ENTRY = ("number", "keyHash", "physicalOffset", "timeDiff", "previous")


@dataclass(frozen=True, slots=True)
class NumberRows:
    """n rows.

    Attributes:
        fields: the names of their numbers.
        numbers: int64[n, len(fields)].
        same: names and values that stand before them in each row.
    """

    fields: tuple[str, ...]
    numbers: NDArray[np.int64]
    same: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    def first(self, count: int) -> NumberRows:
        """The first `count` rows."""
        return replace(self, numbers=self.numbers[:count])

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by its names."""
        for row in self.numbers.tolist():
            yield {**self.same, **dict(zip(self.fields, row, strict=True))}


@dataclass(frozen=True, slots=True)
class BrokenIndexFile:
    """An index file that can't be read as one, and why."""

    name: str
    error: WrongFileSize


def queue_blocks(
    disk: Disk, files: StoreFiles, topic: str, queue_id: int, *, start: int | None = None, end: int | None = None
) -> Iterator[NumberRows]:
    """The units of a queue that is none of batches: queue offsets [start, end), from its first message on by default.

    Raises:
        InvalidArgument: there is no such queue. CannotRepair, StorageError.
    """
    refuse_queue(files.config, files.root, files.newer, topic)
    files_of_it = next((q for q in files.queues if q.queue == TopicQueue(topic, queue_id)), None)
    if files_of_it is None:
        from engine.inspect.store.known_names import KnownNames

        KnownNames.of(disk, files).demand_queue(topic, queue_id)
        return  # it is there, and nothing was ever put into it
    import numpy as np

    rows = QueueRows(disk, files_of_it)
    low = _first_real(rows) if start is None else max(start, rows.first)
    high = rows.extent if end is None else min(end, rows.extent)
    for first, chunk in rows.chunks(low, max(low, high)):
        for at in range(0, len(chunk), AT_ONCE):
            some = chunk[at : at + AT_ONCE]
            offsets = np.arange(first + at, first + at + len(some))
            columns = (offsets, some["physical_offset"], some["size"], some["tags_code"])
            yield NumberRows(_UNIT, np.stack(columns, axis=1, dtype=np.int64))


def _first_real(rows: QueueRows) -> int:
    """Queue offset of the first row that isn't pre-blank filling; the end when there is none."""
    import numpy as np

    for first, chunk in rows.chunks(rows.first, rows.extent):
        real = np.flatnonzero(is_real(chunk))
        if len(real):
            return first + int(real[0])
    return rows.extent


def index_blocks(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    start: int | None = None,
    end: int | None = None,
    file: str | None = None,
    first: int = 1,
) -> Iterator[NumberRows | BrokenIndexFile]:
    """The entries of every index file (or of `file`) that point at [start, end) of the log (physical offsets).
    `store`: its survey, or the settings that name it. `first`: number of the first entry of a file.

    Raises:
        InvalidArgument: no index file `file`. NotAStore, CannotRepair, StorageError.
    """
    import numpy as np

    files = surveyed(disk, store)
    if file is not None and file not in (index.name for index in files.index):
        raise InvalidArgument(f"no index file {file}", path=os.path.join(files.root, names.INDEX))
    low, high = start or 0, 1 << 63 if end is None else end
    for index in files.index:
        if file not in (None, index.name):
            continue
        try:
            reader = ClosedIndexFile(disk, index.path, files.index_layout)
        except WrongFileSize as error:
            yield BrokenIndexFile(index.name, error)
            continue
        with reader:
            for number in range(first, reader.entry_count + 1, AT_ONCE):
                some = reader.entries(number, AT_ONCE)
                offsets = some["physical_offset"].astype(np.int64)
                numbers = np.arange(number, number + len(some))
                columns = (numbers, some["key_hash"], offsets, some["time_diff"], some["previous"])
                table = np.stack(columns, axis=1, dtype=np.int64)
                asked = (offsets >= min(low, _LAST)) & (offsets <= min(high - 1, _LAST))
                yield NumberRows(_ENTRY, table if asked.all() else table[asked], {"file": index.name})
