"""What only a database with consume queues can have wrong: files that RocksDB can't read, keys and values that are
none, ends that don't match the units, and two kinds of queues that differ.

Each unit with its record, and each record with its unit, are compared as those of files are (queues.py, log.py): the
database is read as such files (engine.inspect.store.rocksdb_queues). When a record was stored, which a unit in RocksDB
says besides, `StoreTimes` compares.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import FormatError, StorageError
from engine.format.quantities import counted
from engine.format.rocksdb_queue import UNITS, decode_unit, decode_unit_key, queue_key
from engine.inspect.check.files import note_damage
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.survey import without_rocksdb
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.files.rocksdb import EntryPage
    from engine.inspect.finding import Findings
    from engine.inspect.store.rocksdb_queues import RocksDBQueues
    from engine.inspect.store.survey import StoreFiles

_CHUNK = 1 << 16
_FIELDS = ("physical_offset", "size", "tags_code")


def check_database(disk: Disk, files: StoreFiles, findings: Findings, *, live: bool) -> StoreFiles:
    """Read every key of the database, and note what is wrong with it. Of one that can't be read to its end the queues
    are left out of the survey that is returned. Raises StorageError.
    """
    queues = files.rocksdb
    if queues is None:
        return files
    where = os.path.basename(queues.directory)
    try:
        _walk(queues, findings, where)
        for queue in queues.queues.keys() - queues.read:
            _compare_kinds(disk, files, queues, queue, findings)
    except FormatError as error:
        note_damage(files, error, findings)
        return without_rocksdb(files, error)
    for one in queues.wrong.what:
        findings.add("rocksdb-entry", where, where, one.message)
    if queues.wrong.count > len(queues.wrong.what):
        findings.add("rocksdb-entry", where, where, count=queues.wrong.count - len(queues.wrong.what))
    for queue, ends in queues.queues.items():
        if ends.max is not None and not live and ends.last >= 0 and ends.max[1] > ends.last:
            detail = f"its last message is #{ends.max[1]}, its last unit #{ends.last}"
            findings.add("queue-end", str(queue), f"{where} {queue}", detail)
    torn = queues.database.torn
    if torn is not None and not live:
        place = f"{where}/{os.path.basename(torn.path or '')}"
        findings.add("rocksdb-torn", place, place, torn.message)
    if queues.database.unnamed and not live:
        names = queues.database.unnamed
        place = f"{where}/{names[0]}"
        findings.add("rocksdb-table", where, place, ", ".join(names[:3]), len(names))
    return files


def _walk(queues: RocksDBQueues, findings: Findings, where: str) -> None:
    """Every key and value of column family `default`. Raises FormatError, StorageError."""
    for page in queues.database.pages(UNITS):
        if _is_of_one_queue(page):
            continue
        for item in page.items():
            try:
                decode_unit_key(item.key)
            except FormatError:
                continue  # it is among those that were met when queues were looked for
            try:
                decode_unit(item.value)
            except FormatError as error:
                key = decode_unit_key(item.key)
                queue = TopicQueue(key.topic.decode("utf-8", "surrogateescape"), key.queue_id)
                findings.add("rocksdb-entry", where, f"{where} {queue} #{key.queue_offset}", error.message)


def _is_of_one_queue(page: EntryPage) -> bool:
    """Whether all items are units of one queue: keys are in order, and those between two of a queue are its own."""
    if len(set(page.key_sizes)) != 1 or len(set(page.value_sizes)) != 1:
        return False
    size = page.key_sizes[0]
    try:
        first, last = decode_unit_key(page.keys[:size]), decode_unit_key(page.keys[len(page.keys) - size :])
        decode_unit(page.values[: page.value_sizes[0]])
    except FormatError:
        return False
    return queue_key(first.topic, first.queue_id) == queue_key(last.topic, last.queue_id)


def _compare_kinds(disk: Disk, files: StoreFiles, queues: RocksDBQueues, queue: TopicQueue, findings: Findings) -> None:
    """Units in RocksDB and those in files, where a queue has both and its files are read.

    Raises FormatError, StorageError.
    """
    import numpy as np

    plain = next((one for one in files.queues if one.queue == queue), None)
    if plain is None or plain.source is not None or not plain.files:
        return
    rows, ends = QueueRows(disk, plain), queues.queues[queue]
    for start in range(max(rows.first, ends.first), min(rows.extent, ends.end), _CHUNK):
        end = min(start + _CHUNK, rows.extent, ends.end)
        ours = np.zeros(end - start, dtype=rows.read(start, start).dtype)
        for offsets, units in queues.units(queue, start, end):
            for name in _FIELDS:
                ours[name][offsets - start] = units[name]
        differs = np.flatnonzero(rows.read(start, end) != ours)
        if len(differs):
            at = start + int(differs[0])
            detail = f"from #{at} on: {counted(len(differs), 'unit')}"
            findings.add("unit-twice", str(queue), f"{os.path.basename(queues.directory)} {queue} #{at}", detail)


class StoreTimes:
    """Compares when records were stored with what their units in RocksDB say. Thread-safe as the database is."""

    def __init__(self, queues: RocksDBQueues, findings: Findings) -> None:
        self._queues = queues
        self._findings = findings
        self._where = os.path.basename(queues.directory)

    def observe(self, queue: TopicQueue, want: NDArray[np.void]) -> None:
        """Units that records derive to (row_dtype), whose units are there. Raises StorageError."""
        import numpy as np

        if queue not in self._queues.read:
            return
        order = want[np.argsort(want["queue_offset"], kind="stable")]
        for run in np.split(order, np.flatnonzero(np.diff(order["queue_offset"]) > _CHUNK) + 1):
            if len(run):
                self._compare(queue, run)

    def _compare(self, queue: TopicQueue, want: NDArray[np.void]) -> None:
        import numpy as np

        low, high = int(want["queue_offset"][0]), int(want["queue_offset"][-1]) + 1
        stored = np.zeros(high - low, dtype=np.int64)
        try:
            for offsets, units in self._queues.units(queue, low, high):
                stored[offsets - low] = units["store_timestamp"]
        except FormatError as error:  # every key was read before
            raise StorageError(error.message, path=error.path, offset=error.offset) from error
        there = stored[want["queue_offset"] - low]
        differs = np.flatnonzero(there != want["store_timestamp"])
        if len(differs):
            at = int(want["queue_offset"][differs[0]])
            detail = f"#{at}: {there[differs[0]]}, of the record: {want['store_timestamp'][differs[0]]}"
            self._findings.add("unit-time", str(queue), f"{self._where} {queue} #{at}", detail, len(differs))
