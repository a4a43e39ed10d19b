"""What a restored store's groups read next. Its queues may end earlier than those that its tables were written for."""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any

from engine.errors import FormatError
from engine.format import fastjson, names
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, LMQ_CONSUMERS
from engine.log.derive import TopicQueue
from engine.repair.config.consumer_offsets import queue_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

    Range = Callable[[TopicQueue], tuple[int, int] | None]

_TABLE, _LMQ_TABLE = "offsetTable", "lmqOffsetTable"


class Offsets(enum.StrEnum):
    """What becomes of the offsets of groups.

    AS_WERE: those of the snapshot, where the queue ends earlier its end. NO_REPEATS: each group begins at the end of
    each queue: no message is read twice. NO_MISSES: those of the newest snapshot that was made before the moment to
    which the log is restored: what was read after it is read again, and nothing is missed.
    """

    AS_WERE = "as-were"
    NO_REPEATS = "no-repeats"
    NO_MISSES = "no-misses"


def ranges_of(disk: Disk, files: StoreFiles) -> Range:
    """Smallest and largest offset of each queue of a store; None of what has no queue. Each is looked up once."""
    present = {queue.queue for queue in files.queues}
    known: dict[TopicQueue, tuple[int, int]] = {}

    def find(queue: TopicQueue) -> tuple[int, int] | None:
        if queue not in present:
            return None
        if queue not in known:
            known[queue] = queue_range(disk, files, queue)
        return known[queue]

    return find


def settle_offsets(disk: Disk, root: str, ranges: Range, mode: Offsets, earlier: dict[str, bytes] | None) -> list[str]:
    """Set the offsets in the tables of a restored store, and of their .bak files. What was not done, a sentence each.

    Args:
        disk: how files are reached.
        root: the store.
        ranges: as `ranges_of` gives them.
        mode: what becomes of the groups' offsets; what a broker itself delivers of delayed messages goes on.
        earlier: for NO_MISSES, the tables of the earlier snapshot by their path in the store: what is in none of them
            begins at the start of its queue. None: the tables that are there are those of the moment.

    Raises:
        StorageError.
    """
    problems = []
    for name in (CONSUMERS, LMQ_CONSUMERS, DELAYS):
        for path in (f"{names.CONFIG}/{name}", f"{names.CONFIG}/{name}.bak"):
            absolute = os.path.join(root, path)
            if not disk.exists(absolute):
                continue
            before = None if earlier is None else _parsed(earlier.get(path, b"")) or {_TABLE: {}}
            value = _parsed(disk.read_file(absolute))
            if value is None:
                problems.append(f"{path} is not readable: its offsets are as they were")
                continue
            changed = _delays(value, ranges) if name == DELAYS else _groups(value, ranges, mode, before)
            if changed:
                disk.write_file_atomically(absolute, fastjson.dumps(value).encode())
    return problems


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        value = fastjson.loads(data.decode())
    except (FormatError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get(_TABLE), dict) else None


def _groups(value: dict[str, Any], ranges: Range, mode: Offsets, before: dict[str, Any] | None) -> bool:
    changed = False
    for key, table in value[_TABLE].items():
        topic = key.partition("@")[0]
        old_table = {} if before is None else before[_TABLE].get(key, {})
        for number, offset in list(table.items()) if isinstance(table, dict) else ():
            queue_id = names.queue_id_of(str(number))
            if queue_id is None or type(offset) is not int:
                continue
            old = old_table.get(number) if isinstance(old_table, dict) else None
            new = _new(offset, ranges(TopicQueue(topic, queue_id)), mode, old, known=before is not None)
            changed |= new != offset
            table[number] = new
    light = value.get(_LMQ_TABLE)
    if not isinstance(light, dict):
        return changed
    for key, offset in list(light.items()):
        if type(offset) is int:
            old = None if before is None else before.get(_LMQ_TABLE, {}).get(key)
            new = _new(offset, ranges(TopicQueue(key.partition("@")[0], 0)), mode, old, known=before is not None)
            changed |= new != offset
            light[key] = new
    return changed


def _new(offset: int, span: tuple[int, int] | None, mode: Offsets, old: object, *, known: bool) -> int:
    """A group's offset in a queue that has the offsets `span`; None: the queue is not there, it begins at 0."""
    low, high = span or (0, 0)
    if mode is Offsets.NO_REPEATS:
        return high
    if mode is Offsets.NO_MISSES and known:
        offset = min(offset, old if type(old) is int else low)
    return min(offset, high)


def _delays(value: dict[str, Any], ranges: Range) -> bool:
    """How far each delay level is delivered: not beyond what is there. Source: ScheduleMessageService."""
    changed = False
    for level, offset in list(value[_TABLE].items()):
        if str(level).isdecimal() and type(offset) is int:
            span = ranges(TopicQueue(names.SCHEDULE_TOPIC, int(level) - 1))
            new = min(offset, 0 if span is None else span[1])
            changed |= new != offset
            value[_TABLE][level] = new
    return changed
