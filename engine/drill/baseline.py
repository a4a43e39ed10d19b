"""What a store held before a drill began that did not make it: every record, by place, size and CRC of all its bytes.

Columns, 16 bytes a record: a drill on a copy of a large store must not need its size in memory. That queues and index
lead to the records is what `check` says; here it is that the records are there, and no others.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.inspect.store.known import known_places
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.drill.ledger import DrillLedger
    from engine.files.disk import Disk

Columns = tuple["NDArray[np.int64]", "NDArray[np.uint32]", "NDArray[np.uint32]"]
"""Physical offset, size in bytes, CRC of the record: int64[n], uint32[n], uint32[n]."""
_NAMED = 5


class Baseline:
    """The records of a store, as it is now. Raises NotAStore, StorageError."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._offsets, self._sizes, self._crcs = _records(disk, config)

    def __len__(self) -> int:
        return len(self._offsets)

    def copy(self) -> Baseline:
        """One that can forget by itself; the columns are shared until then."""
        other = Baseline.__new__(Baseline)
        other._offsets, other._sizes, other._crcs = self._offsets, self._sizes, self._crcs
        return other

    def forget(self, ranges: Sequence[tuple[int, int]], cut: int | None) -> int:
        """Drop records that overlap a range (start, end) or end after `cut`; how many."""
        import numpy as np

        ends = self._offsets + self._sizes
        gone = np.zeros(len(self), bool) if cut is None else ends > cut
        for start, end in ranges:
            gone |= (self._offsets < end) & (ends > start)
        keep = ~gone
        self._offsets, self._sizes, self._crcs = self._offsets[keep], self._sizes[keep], self._crcs[keep]
        return int(gone.sum())

    def differences(self, disk: Disk, config: StoreConfig, ledger: DrillLedger) -> tuple[list[str], list[str]]:
        """(what is lost, what is there that was never put), the first few of each and how many there are.

        Records that `ledger` put, and those that bridge damage, are no strangers.
        """
        import numpy as np

        offsets, sizes, crcs = _records(disk, config)
        at = np.searchsorted(offsets, self._offsets)
        is_known = at < len(offsets)
        at = np.minimum(at, max(0, len(offsets) - 1))
        same = is_known.copy()
        if len(offsets):
            same &= (offsets[at] == self._offsets) & (sizes[at] == self._sizes) & (crcs[at] == self._crcs)
        lost = self._offsets[~same]
        new = offsets[~np.isin(offsets, self._offsets)]
        bridged = known_places(disk, str(config.store_path_root_dir)).bridged
        put = ledger.appended
        strange = [int(one) for one in new if int(one) not in put and int(one) not in bridged]
        return list(_said(lost.tolist(), "lost")), list(_said(strange, "never put"))


def _said(offsets: Sequence[int], what: str) -> Iterator[str]:
    for one in offsets[:_NAMED]:
        yield f"the record at {one}: {what}"
    if len(offsets) > _NAMED:
        yield f"{len(offsets) - _NAMED} more {what}"


def _records(disk: Disk, config: StoreConfig) -> Columns:
    import numpy as np

    files = survey(disk, config)
    offsets, sizes, crcs = array("q"), array("I"), array("I")
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        for event in scanner.scan(files.log[0].offset, resume=True) if files.log else ():
            if isinstance(event, RecordBatch):
                for i, row in enumerate(event.rows):
                    offsets.append(event.offset(i))
                    sizes.append(row.size)
                    crcs.append(zlib.crc32(event.record(i)))
    return np.array(offsets, np.int64), np.array(sizes, np.uint32), np.array(crcs, np.uint32)
