"""Units of a queue whose tags code is the address of an extension unit that isn't there.

Apache's next abnormal start dies of such a unit (ConsumeQueueExt#get on a file that is gone: BufferUnderflowException),
and a consumer's filter can't judge its message. The message is whole all the same: its unit is made anew from the log,
with an extension unit where the broker keeps them, else with the tags code itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format import names
from engine.format.queue_unit import EXT_ADDRESS_MAX
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.settled import settled
from engine.log.closed_queue import ClosedExt

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.check.queue_compare import QueueAccount
    from engine.inspect.store.survey import StoreFiles

_SAMPLE = 64
"""Units at each end that tell whether a queue has addresses: a broker gives all of its units one, or none."""


def mark_dangling(disk: Disk, files: StoreFiles, accounts: Iterable[QueueAccount]) -> int:
    """Note in each account (`dangling`) the units whose extension unit is not there; how many they are.

    Raises:
        StorageError.
    """
    kept = files.config.enable_consume_queue_ext
    wanted = [one for one in accounts if one.rows is not None and (kept or _has_addresses(one.rows))]
    if not wanted:
        return 0
    size = settled(disk, files.config).mapped_file_size_consume_queue_ext
    for account in wanted:
        assert account.rows is not None
        account.dangling = _dangling_rows(disk, files.root, account.rows, size)
    return sum(account.dangling.total() for account in wanted)


def _dangling_rows(disk: Disk, root: str, rows: QueueRows, ext_file_size: int) -> Intervals:
    dangling = Intervals()
    base = os.path.join(root, names.CONSUMEQUEUE_EXT)
    there = disk.is_dir(names.queue_directory(base, rows.queue.topic, rows.queue.queue_id))
    ext = ClosedExt(disk, base, rows.queue, ext_file_size)
    for start, chunk in rows.chunks(rows.first, rows.extent):
        at = _addressed(chunk)
        lost = [int(i) for i in at if not there or ext.get(int(chunk["tags_code"][i])) is None]
        for i in lost:
            dangling.add(start + i, start + i + 1)
    return dangling


def _has_addresses(rows: QueueRows) -> bool:
    start, end = rows.first, rows.extent
    if end - start <= 2 * _SAMPLE:
        return bool(len(_addressed(rows.read(start, end))))
    return any(len(_addressed(rows.read(low, low + _SAMPLE))) for low in (start, end - _SAMPLE))


def _addressed(chunk: NDArray[np.void]) -> NDArray[np.intp]:
    import numpy as np

    may_be = np.flatnonzero(chunk["tags_code"] <= EXT_ADDRESS_MAX)
    return may_be[is_real(chunk[may_be])] if len(may_be) else may_be
