"""Many messages of a queue as JSON lines, while each is sound and lies where its unit says: read and put into words by
threads, in the order of the queue.

At the first one that is not, nothing more is made here: the plain reading (engine.read_queue) begins once more, as it
would have, and the caller passes over what has been shown. So every error is that of the plain reading.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from engine.errors import StorageError
from engine.format.judge import Row
from engine.format.message import decode
from engine.format.message_json import to_json
from engine.log.threads import threads_of
from engine.log.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.format.buffers import Buffer
    from engine.log.source import SegmentedLog
    from engine.log.unit_runs import UnitRun
    from engine.read_queue import QueueReading
    from rstore_cli.blocks import BlockWriter

MANY = 8192
"""Messages from which on the kernel is worth its loading."""

_Made = list[tuple["Buffer", int]]


class _NotSound(Exception):
    """A unit that points at no sound record which knows its own offset."""


def show_sound(reading: QueueReading, log: SegmentedLog, encode: Callable[[Any], str], writer: BlockWriter) -> int:
    """Write the lines of the first messages of a reading; how many: 0 without numba.

    Args:
        reading: not begun yet.
        log: what its units point into.
        encode: makes JSON of a value.
        writer: what is written to.
    """
    try:
        from engine.log.kernels.json_lines import LineForm, LineMaker
    except ImportError:
        return 0
    from engine.files.libc import Libc

    Libc().keep_freed(8 << 20)
    maker = LineMaker(LineForm(sound_only=True))

    def made(run: UnitRun) -> _Made | None:
        try:
            data = run.read(log)
            if data is None:
                return None

            def plain(i: int) -> bytes:
                at, size = int(run.at[i]), int(run.sizes[i])
                return _line(data[at : at + size], int(run.places[i]), encode)

            return list(maker.blocks(data, run.at, run.sizes, run.places, plain))
        except (StorageError, _NotSound):
            return None

    shown = 0
    threads = threads_of(None)
    pool = ThreadPoolExecutor(threads, "rstore-get")
    try:
        for count, blocks in _in_order(pool, _runs(reading, log), made, threads + 1):
            if blocks is None or count != sum(some for _, some in blocks):
                break
            for block, _ in blocks:
                writer.write(block)
            shown += count
    finally:
        pool.shutdown(cancel_futures=True)
    return shown


def _runs(reading: QueueReading, log: SegmentedLog) -> Iterator[UnitRun]:
    from engine.log.unit_runs import runs

    for units in reading.units():
        count = 0
        for run in runs(units, log):
            count += len(run)
            yield run
        if count < len(units):
            return


def _in_order(
    pool: ThreadPoolExecutor, every: Iterator[UnitRun], made: Callable[[UnitRun], _Made | None], most: int
) -> Iterator[tuple[int, _Made | None]]:
    under_way: deque[tuple[int, Future[_Made | None]]] = deque()
    for run in every:
        under_way.append((len(run), pool.submit(made, run)))
        if len(under_way) >= most:
            count, future = under_way.popleft()
            yield count, future.result()
    while under_way:
        count, future = under_way.popleft()
        yield count, future.result()


def _line(record: memoryview, place: int, encode: Callable[[Any], str]) -> bytes:
    """The line of a sound record that is none for the kernel. Raises _NotSound."""
    rows: list[Row] = []
    walk(record, 0, len(record), rows, max_rows=1)
    if not rows or rows[0].size != len(record) or rows[0].stored_offset != place:
        raise _NotSound
    return (encode(to_json(decode(record))) + "\n").encode()
