"""Damage, done to a scene's store by the script's word. What it does to the log is noted in the scene.

Places are found in the store as it is (a record, a unit, an entry, so far from the front), so that the same script fits
any store. A place that is not there is an error of the script: nothing is passed over in silence.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from engine.drill.backups import repository_of
from engine.drill.files import blocks
from engine.errors import InvalidArgument
from engine.files.abort import AbortFile
from engine.format.judge import Row
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.survey import survey
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.log.state import NORMAL_FILES
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.drill.scene import Scene
    from engine.drill.script import DamageStep
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment

PAGE = 4096
_HASH_END, _OFFSET_END = 3, 7
"""The lowest byte of an entry's key hash, and of a unit's physical offset."""
_TEAR = 40
"""Where a record without a body is torn: after its offsets, so that its lengths no longer add up."""


def harm(scene: Scene, step: DamageStep) -> str:
    """Do it; what was done, in a few words.

    Raises:
        InvalidArgument: there is nothing of the kind to damage. StorageError.
    """
    disk = scene.new_disk()
    match step.kind:
        case "bit-rot":
            return _BIT_ROT[step.where](disk, scene, step)
        case "lost-page":
            return _lost_page(disk, scene, step)
        case "torn-write":
            return _torn_write(disk, scene)
        case "remove":
            return _remove(disk, scene, step.path or "")
        case "stray":
            disk.write_file(os.path.join(scene.root, step.path or ""), b"not a store file\n")
            return f"{step.path} created"
        case "lost-disk":
            remove_tree(disk, scene.root)
            disk.mkdirs(scene.root)
            return "the store's disk is lost: a new one is empty"
        case "not-closed":
            AbortFile(disk, scene.root).create()
            return "the store looks as after a crash"


# --- the log ----------------------------------------------------------------------------------------------------------


def _log(files: StoreFiles, step: DamageStep) -> Sequence[Segment]:
    """The files of the log that may be damaged."""
    return files.log[-NORMAL_FILES:] if step.last_files else files.log


def _records(disk: Disk, files: StoreFiles, part: Sequence[Segment]) -> Iterator[tuple[int, Row, Segment]]:
    """(physical offset, row, segment) of every sound record in a part of the log."""
    with ClosedLog(disk, part) as log:
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        for event in scanner.scan(part[0].offset, resume=True) if part else ():
            if isinstance(event, RecordBatch):
                segment = log.segment_at(event.base)
                assert segment is not None
                for i, row in enumerate(event.rows):
                    yield event.offset(i), row, segment


def _rot_log(disk: Disk, scene: Scene, step: DamageStep) -> str:
    """One bit in the middle of a body each."""
    files = survey(disk, scene.config)
    log = _log(files, step)
    # Twice through the log rather than all of a large one in memory.
    bodies = sum(1 for _, row, _ in _records(disk, files, log) if row.body_length)
    numbers = frozenset(_spread(bodies, step, "record with a body"))
    candidates = ((offset, row, segment) for offset, row, segment in _records(disk, files, log) if row.body_length)
    chosen = [one for number, one in enumerate(candidates) if number in numbers]
    for offset, row, segment in chosen:
        _flip(disk, segment.path, offset - segment.offset + row.body_position - row.position + row.body_length // 2)
        scene.hurt.append((offset, offset + row.size))
    return f"a bit flipped in the body of {_count(len(chosen), 'record')} of {bodies}"


def _torn_write(disk: Disk, scene: Scene) -> str:
    """The second half of the last record never reached the disk."""
    files = survey(disk, scene.config)
    last = None
    for last in _records(disk, files, files.log):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        raise InvalidArgument("the log has no record to tear", path=scene.root)
    offset, row, segment = last
    end = offset + row.size
    tear = offset + (row.body_position - row.position + row.body_length // 2 if row.body_length else _TEAR)
    _zero(disk, segment.path, tear - segment.offset, end - tear)
    scene.hurt.append((offset, end))
    return f"the last record, at {offset}, is torn: its last {end - tear} bytes are zeros"


def _lost_page(disk: Disk, scene: Scene, step: DamageStep) -> str:
    files = survey(disk, scene.config)
    paths = {
        "commitlog": [segment.path for segment in _log(files, step)],
        "consumequeue": [file.path for queue in files.queues for file in queue.files],
        "index": [one.path for one in files.index],
    }[step.where]
    pages = [
        (path, page * PAGE)
        for path in paths
        for start, block in blocks(disk, path)
        for page in range(start // PAGE, -(-(start + len(block)) // PAGE))
        if any(block[page * PAGE - start : (page + 1) * PAGE - start])
    ]
    for number in (numbers := _spread(len(pages), step, f"page of the {step.where}")):
        path, at = pages[number]
        _zero(disk, path, at, min(PAGE, disk.stat(path).size - at))
        if step.where == "commitlog":
            start = next(s.offset for s in files.log if s.path == path) + at
            scene.hurt.append((start, start + PAGE))
    return f"{_count(len(numbers), 'page')} of {len(pages)} with data in the {step.where} lost"


# --- queues and index -------------------------------------------------------------------------------------------------


def _rot_queue(disk: Disk, scene: Scene, step: DamageStep) -> str:
    """One bit in the physical offset of units of the longest queue."""
    files = survey(disk, scene.config)
    if not files.queues:
        raise InvalidArgument("the store has no consume queue to damage", path=scene.root)
    queue = max(files.queues, key=lambda one: QueueRows(disk, one).extent if one.files else 0)
    rows = QueueRows(disk, queue)
    first = queue.files[0].offset // UNIT_SIZE if queue.files else 0
    real = is_real(rows.read(first, rows.extent)) if queue.files else None
    units = [] if real is None else [first + number for number, one in enumerate(real.tolist()) if one]
    numbers = _spread(len(units), step, "unit")
    for number in numbers:
        place = units[number] * UNIT_SIZE
        file = next(one for one in queue.files if one.offset <= place < one.offset + one.size)
        _flip(disk, file.path, place - file.offset + _OFFSET_END)
    name = f"{queue.queue.topic}/{queue.queue.queue_id}"
    return f"a bit flipped in {_count(len(numbers), 'unit')} of {len(units)} of {name}"


def _rot_index(disk: Disk, scene: Scene, step: DamageStep) -> str:
    """One bit in the key hash of entries."""
    files = survey(disk, scene.config)
    counts: list[tuple[str, int]] = []
    for one in files.index:
        with ClosedIndexFile(disk, one.path, files.index_layout) as file:
            counts.append((one.path, file.entry_count))
    total = sum(count for _, count in counts)
    numbers = _spread(total, step, "index entry")
    first = 0
    for path, count in counts:
        for number in numbers:
            if first <= number < first + count:
                _flip(disk, path, files.index_layout.entry_position(number - first + 1) + _HASH_END)
        first += count
    return f"a bit flipped in {_count(len(numbers), 'index entry', 'index entries')} of {total}"


def _rot_repository(disk: Disk, scene: Scene, step: DamageStep) -> str:
    """One bit in the middle of pieces of the backups."""
    from engine.backup.repository import PIECES

    below = os.path.join(repository_of(scene.root), PIECES)
    pieces = sorted(glob.glob(os.path.join(glob.escape(below), "*", "*")))
    numbers = _spread(len(pieces), step, "piece in its repository")
    for number in numbers:
        _flip(disk, pieces[number], disk.stat(pieces[number]).size // 2)
    return f"a bit flipped in {_count(len(numbers), 'piece')} of {len(pieces)} of the repository"


_BIT_ROT = {"commitlog": _rot_log, "consumequeue": _rot_queue, "index": _rot_index, "repository": _rot_repository}


_NAMES_TOLD = 8


# --- names ------------------------------------------------------------------------------------------------------------


def _there(root: str, pattern: str) -> str:
    """What the store has in the innermost directory of a pattern that is there."""
    inside = os.path.dirname(pattern)
    while inside and not os.path.isdir(os.path.join(root, inside)):
        inside = os.path.dirname(inside)
    names = sorted(os.listdir(os.path.join(root, inside)))
    more = f" and {len(names) - _NAMES_TOLD} more" if len(names) > _NAMES_TOLD else ""
    return f"in {inside or 'its directory'}: {', '.join(names[:_NAMES_TOLD]) or 'nothing'}{more}"


def _remove(disk: Disk, scene: Scene, pattern: str) -> str:
    paths = sorted(glob.glob(os.path.join(glob.escape(scene.root), pattern)))
    if not paths:
        raise InvalidArgument(f"nothing in the store matches {pattern}", hint=_there(scene.root, pattern))
    for path in paths:
        if disk.is_dir(path) and not disk.link_of(path):
            remove_tree(disk, path)
        else:
            disk.unlink(path)
    some = ", ".join(os.path.relpath(path, scene.root) for path in paths[:3])
    return f"lost: {some}" + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


# --- bytes ------------------------------------------------------------------------------------------------------------


def _spread(available: int, step: DamageStep, what: str) -> list[int]:
    """Numbers of `count` of them, from `at` on to the last."""
    if available < step.count:
        raise InvalidArgument(f"the store does not have {_count(step.count, what)} to damage")
    first = min(round(step.at * (available - 1)), available - step.count)
    return [first + number * (available - first) // step.count for number in range(step.count)]


def _flip(disk: Disk, path: str, at: int) -> None:
    file = disk.open_raw(path, writable=True)
    try:
        file.write(at, bytes([file.read(at, 1)[0] ^ 1]))
    finally:
        file.close()


def _zero(disk: Disk, path: str, at: int, length: int) -> None:
    file = disk.open_raw(path, writable=True)
    try:
        file.write(at, bytes(length))
    finally:
        file.close()


def _count(number: int, what: str, many: str | None = None) -> str:
    return f"{number} {what if number == 1 else many or what + 's'}"
