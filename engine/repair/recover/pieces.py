"""Every piece of the store that applying a recovery's plan changes: what must be saved first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.files.operations import Touch
from engine.format import names
from engine.format.index_file import ENTRY_SIZE
from engine.format.queue_unit import UNIT_SIZE
from engine.format.record import LONG_SIZE, POSITION_PHYSICAL_OFFSET, POSITION_QUEUE_ID, POSITION_QUEUE_OFFSET
from engine.inspect.store.moves import quarantine_target
from engine.log.index_file import IndexFile
from engine.repair.recover.batch_apply import batch_pieces
from engine.repair.recover.index_plan import index_directory
from engine.repair.recover.newer_parts import newer_pieces, replaced
from engine.repair.salvage.salvage import AFTER_LOG_END, Piece

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.odd import OddFile
    from engine.repair.recover.bridge import Bridge
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.queue_plan import QueuePlan

Relinked = Callable[["Disk", "RecoverPlan", str, int], list[tuple[int, int]]]
"""(disk, plan, path of an index file, how many entries are kept) → (position, bytes) of each range of links."""


_MARKS = {names.CHECKPOINT: "overwrite", names.ABORT: "remove"}
"""Files of a store that are not written into: they get new content at one stroke, or are removed."""


def pieces_of(disk: Disk, plan: RecoverPlan) -> Iterator[Piece]:
    """The pieces, in the order in which they change. New index files aren't named: undo finds them by the listing."""
    yield from _pieces(disk, plan, _relinked)


def _pieces(disk: Disk, plan: RecoverPlan, relinked: Relinked) -> Iterator[Piece]:
    """`relinked`: the entries of an index file that are kept, and linked anew."""
    root = plan.files.root
    for odd in plan.set_aside_first:
        yield _aside(disk, root, odd)
    yield from _layout_pieces(plan)
    for odd in plan.set_aside_then:
        yield _aside(disk, root, odd)
    sources = {segment.path: segment.source for segment in plan.files.log}
    for piece in _log_pieces(plan):
        yield replace(piece, source=sources.get(piece.path) or "")
    for odd in plan.set_aside_last:
        yield _aside(disk, root, odd)
    for cut in plan.ext:
        for path, size in cut.removed:
            yield Piece("remove", path, 0, size, "extension of removed units")
        if cut.tail is not None:
            yield Piece("overwrite", *cut.tail, "extension of removed units")
    yield from _pieces_of_queues(disk, plan)
    yield from _index_pieces(disk, plan, relinked)
    yield from newer_pieces(disk, plan)
    aside = {odd.path for odd in plan.set_aside}
    for name, action in _MARKS.items():
        path = os.path.join(root, name)
        there = path not in aside and disk.exists(path)
        yield Piece(
            action if there else "create", path, 0, disk.stat(path).size if there else 0, "state before the change"
        )


def touched(disk: Disk, plan: RecoverPlan) -> Iterator[tuple[str, Touch]]:
    """What applying the plan changes, and how, each once; not what is made where something else was set aside.

    No index file is read for it: which of its entries are linked anew is asked when they are saved.
    """
    whole = {os.path.join(plan.files.root, name) for name in _MARKS} | replaced(plan)
    aside = tuple(os.path.join(odd.path, "") for odd in plan.set_aside)
    met: set[tuple[str, Touch]] = set()
    for piece in _pieces(disk, plan, lambda *_: []):
        if piece.path.startswith(aside):
            continue
        places = [(piece.path, Touch.NAME)]
        if piece.action == "overwrite":
            places = [(piece.path, Touch.CONTENT) if piece.path in whole else (piece.now, Touch.BYTES)]
        if piece.target and piece.action == "relocate":
            places.append((piece.target, Touch.NAME))
        yield from (place for place in places if place not in met)
        met.update(places)


def _aside(disk: Disk, root: str, odd: OddFile) -> Piece:
    if odd.copied:
        return Piece("remove", odd.path, 0, odd.size, odd.why)
    return Piece("move", odd.path, 0, odd.size, odd.why, quarantine_target(disk, root, odd.path))


def end_of(plan: RecoverPlan) -> tuple[str, int] | None:
    """The log's last file and the position of the log end in it, where only zeros follow.

    None where other bytes follow (a piece of their own saves them), and where files of the log are renamed.
    """
    log = plan.log
    if log.tail is not None or log.blank is not None or plan.layout.relocations:
        return None
    end = log.end.end
    return next(((one.path, end - one.offset) for one in plan.files.log if one.offset <= end < one.end), None)


def _layout_pieces(plan: RecoverPlan) -> Iterator[Piece]:
    for one in plan.layout.relocations:
        yield Piece(
            "relocate", one.path, 0, one.size, "file had the name of another segment", one.target, via=one.way.via
        )
    for resize in plan.layout.resizes:
        segment = resize.segment
        low, high = sorted((resize.held, segment.size))
        length = high - low if resize.held == high else 0
        yield Piece(
            "overwrite", segment.path, low, length, "file size differs from the setting", source=segment.source or ""
        )


def _log_pieces(plan: RecoverPlan) -> Iterator[Piece]:
    segments, log = plan.files.log, plan.log
    for offset in log.mends:
        segment = next(s for s in segments if s.offset <= offset < s.end)
        at = offset - segment.offset + POSITION_PHYSICAL_OFFSET
        yield Piece("overwrite", segment.path, at, LONG_SIZE, "wrong physicalOffset")
    for one in log.requeued:
        segment = next(s for s in segments if s.offset <= one.physical_offset < s.end)
        at = one.physical_offset - segment.offset + POSITION_QUEUE_ID
        yield Piece(
            "overwrite",
            segment.path,
            at,
            POSITION_QUEUE_OFFSET + LONG_SIZE - POSITION_QUEUE_ID,
            "wrong queueId or queueOffset",
        )
    for shift in log.shifts:
        at, length = shift.start - shift.segment.offset, shift.end - shift.start
        now = shift.segment.source or ""
        yield Piece("overwrite", shift.segment.path, at, length, "displaced records", source=now)
    for bridge in log.bridges:
        for patch in bridge.patches:
            position = patch.offset - bridge.segment.offset
            yield Piece("overwrite", bridge.segment.path, position, patch.length, f"bridged: {bridge.reason}")
    made = {segment.path for segment in log.added}
    for segment in log.added:
        yield Piece("create", segment.path, 0, segment.size, "records taken from a copy")
    for taken in log.taken:
        for at, length in _readable(taken) if taken.segment.path not in made else ():
            yield Piece("overwrite", taken.segment.path, at - taken.segment.offset, length, "records taken from a copy")
    for path in log.removed:
        size = next(s.size for s in segments if s.path == path)
        yield Piece("remove", path, 0, size, AFTER_LOG_END)
    if log.tail is not None:
        path, position, length = log.tail
        yield Piece("overwrite", path, position, length, AFTER_LOG_END)


def _readable(taken: Bridge) -> Iterator[tuple[int, int]]:
    """The parts (physical offset, length) of what is overwritten that can be saved."""
    at = taken.offset
    for offset, length in (*taken.unreadable, (taken.offset + taken.length, 0)):
        if at < offset:
            yield at, offset - at
        at = offset + length


def _pieces_of_queues(disk: Disk, plan: RecoverPlan) -> Iterator[Piece]:
    for queue in plan.queues:
        if queue.changed:
            yield from _queue_pieces(plan, queue)
            if plan.files.config.enable_consume_queue_ext:
                yield from _ext_pieces(disk, plan, queue)
    for batch_queue in plan.batches:
        if batch_queue.changed:
            yield from batch_pieces(batch_queue)


def _queue_pieces(plan: RecoverPlan, queue: QueuePlan) -> Iterator[Piece]:
    queue_files = next((f.files for f in plan.files.queues if f.queue == queue.queue), ())
    size = plan.files.config.mapped_file_size_consume_queue
    written = [*queue.written, *queue.fills, queue.front, queue.pre_blanks]
    for file in queue_files:
        if file.offset >= queue.max_offset * UNIT_SIZE:
            yield Piece("remove", file.path, 0, file.size, "units after the log end")
            continue
        for start, end in [*written, (queue.max_offset, queue.old_extent)]:
            low = max(start * UNIT_SIZE, file.offset)
            high = min(end * UNIT_SIZE, file.offset + file.size)
            if low < high:
                yield Piece(
                    "overwrite", file.path, low - file.offset, high - low, "queue entries that don't match the log"
                )
    there = {file.offset for file in queue_files}
    base = os.path.join(plan.files.root, names.CONSUMEQUEUE)
    directory = names.queue_directory(base, queue.queue.topic, queue.queue.queue_id)
    for offset in sorted({at for span in written for at in _files_of(span, size)} - there):
        yield Piece("create", os.path.join(directory, names.segment_name(offset)), 0, size, "units rebuilt")


def _ext_pieces(disk: Disk, plan: RecoverPlan, queue: QueuePlan) -> Iterator[Piece]:
    """The extension's last files: new units are appended to the old ones."""
    base = os.path.join(plan.files.root, names.CONSUMEQUEUE_EXT)
    directory = names.queue_directory(base, queue.queue.topic, queue.queue.queue_id)
    files = [e for e in (disk.scandir(directory) if disk.is_dir(directory) else ()) if e.is_file]
    for entry in files if queue.written else ():
        yield Piece("overwrite", entry.path, 0, entry.size, "extension units appended")


def _files_of(span: tuple[int, int], file_size: int) -> range:
    """Offsets of the queue files that units [start, end) lie in."""
    start, end = span[0] * UNIT_SIZE, span[1] * UNIT_SIZE
    return range(start - start % file_size, end, file_size)


def _index_pieces(disk: Disk, plan: RecoverPlan, relinked: Relinked) -> Iterator[Piece]:
    index, layout = plan.index, plan.files.index_layout
    directory = index_directory(plan.files)
    sizes = {index_file.name: index_file.size for index_file in plan.files.index}
    for name in index.removed:
        yield Piece("remove", os.path.join(directory, name), 0, sizes[name], "index entries contradict each other")
    kept = {rewind.name: rewind.keep for rewind in index.rewinds}
    last = index.names_after[-1] if index.keys_put and index.names_after else None
    for name in sorted(kept.keys() | ({last} if last is not None else set())):
        path = os.path.join(directory, name)
        yield Piece("overwrite", path, 0, layout.entries_position, "header and slots")
        start, end = layout.entry_position(kept.get(name, index.last_entries) + 1), layout.file_size
        if name in kept:
            for position, length in relinked(disk, plan, path, kept[name]):
                yield Piece("overwrite", path, position, length, "index entries linked wrongly")
        else:
            end = min(end, start + index.keys_put * ENTRY_SIZE)
        if start < end:
            yield Piece("overwrite", path, start, end - start, "index entries removed or added")


def _relinked(disk: Disk, plan: RecoverPlan, path: str, keep: int) -> list[tuple[int, int]]:
    file = IndexFile.open(disk, path, plan.files.index_layout, writable=False)
    try:
        return list(file.relinked(keep))
    finally:
        file.shutdown()
