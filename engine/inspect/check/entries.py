"""DLedger's entries against each other and against their index, in the reading of the log that check does.

Each entry has the index after that of the entry before it, and a term that is never less (DLedgerMmapFileStore#recover
ends the log where that is not so). A unit of the index lies at index × 32 and says where its entry lies. Damage parts
the chain: after it the index only has to be a larger one.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.listing import list_segments
from engine.files.written import is_zero
from engine.format.dledger_entry import HEAD_SIZE, INDEX_UNIT_SIZE, NORMAL, head_dtype, index_dtype
from engine.inspect.finding import Findings, place
from engine.inspect.store.dledger import read_notes
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.dledger import DLedgerPlace
    from engine.inspect.store.survey import StoreFiles
    from engine.log.batch import RecordBatch

INDEX_FILE_SIZE = 5 * 1024 * 1024 * INDEX_UNIT_SIZE
"""Bytes of a file of the index; no setting of a broker changes it.

Source: DLedgerConfig#getMappedFileSizeForEntryIndex."""


@dataclass(frozen=True, slots=True)
class EntryAt:
    """An entry: its index and term, and where it lies (physical offset of its record, and file)."""

    index: int
    term: int
    offset: int
    segment: Segment

    def follows(self, before: EntryAt, *, apart: bool) -> bool:
        """Whether it may come after another. `apart`: something between them is damaged."""
        next_index = self.index > before.index if apart else self.index == before.index + 1
        return next_index and self.term >= before.term


@dataclass(slots=True)
class EntryRun:
    """The first and the last entry of a run of segments; whether damage lies before the one, or after the other."""

    first: EntryAt
    last: EntryAt
    broken_before: bool
    broken_after: bool = False


class EntryChain:
    """Judges the entries of a run of segments, fed in log order.

    Args:
        disk: how the index is read.
        place: where the entries are, and the index.
        findings: gets what is wrong.
    """

    def __init__(self, disk: Disk, place: DLedgerPlace, findings: Findings) -> None:
        self._findings = findings
        self._index = ClosedLog(disk, index_segments(disk, place))
        self._broken = False
        self.run: EntryRun | None = None

    def broken(self) -> None:
        """Damage lies between what was fed and what comes."""
        self._broken = True
        if self.run is not None:
            self.run.broken_after = True

    def feed(self, batch: RecordBatch, segment: Segment) -> None:
        """The entries of a batch's records."""
        import numpy as np

        heads, records = heads_of(batch)
        if not len(heads):
            return
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        first = EntryAt(int(index[0]), int(term[0]), int(records[0]), segment)
        last = EntryAt(int(index[-1]), int(term[-1]), int(records[-1]), segment)
        run = self.run
        if run is None:
            self.run = run = EntryRun(first, last, self._broken)
        elif not first.follows(run.last, apart=self._broken or run.last.segment.end < segment.offset):
            note_break(self._findings, run.last, first)
        wrong = np.flatnonzero((np.diff(index) != 1) | (np.diff(term) < 0))
        for i in wrong.tolist():
            one = EntryAt(int(index[i]), int(term[i]), int(records[i]), segment)
            two = EntryAt(int(index[i + 1]), int(term[i + 1]), int(records[i + 1]), segment)
            note_break(self._findings, one, two)
        if not len(wrong):
            self._against_index(heads, records, segment)
        run.last, run.broken_after = last, False
        self._broken = len(heads) < len(batch)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _against_index(self, heads: NDArray[np.void], records: NDArray[np.int64], segment: Segment) -> None:
        """The units of entries in a row."""
        import numpy as np

        units = self._units(int(heads["index"][0]), len(heads))
        if units is None:
            return
        same = (units["magic"] == NORMAL) & (units["pos"] == records - HEAD_SIZE)
        for name in ("size", "index", "term"):
            same &= units[name] == heads[name]
        wrong = np.flatnonzero(~same)
        if len(wrong):
            at = int(heads["index"][wrong[0]])
            where = place(segment.path, int(records[wrong[0]]))
            self._findings.add("entry-index", "dledger", where, f"of entry {at}", len(wrong))

    def _units(self, index: int, count: int) -> NDArray[np.void] | None:
        """The units of as many entries; zeros for those that no file has. None: there is no index."""
        import numpy as np

        if not self._index.segments:
            return None
        data = bytearray(count * INDEX_UNIT_SIZE)
        start = index * INDEX_UNIT_SIZE
        for segment in self._index.segments:
            low, high = max(start, segment.offset), min(start + len(data), segment.end)
            if low < high:
                piece = self._index.read(low, high - low)
                data[low - start : low - start + len(piece)] = piece
        return np.frombuffer(data, dtype=index_dtype())


def index_segments(disk: Disk, place: DLedgerPlace) -> tuple[Segment, ...]:
    """The files of the index. Raises StorageError."""
    files = list_segments(disk, [place.index], INDEX_FILE_SIZE).files
    return tuple(Segment(f.offset, f.size, f.path) for f in files)


def heads_of(batch: RecordBatch) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """The headers (head_dtype) of a batch's records, and physical offsets of these; of one without its header none."""
    import numpy as np

    at = batch.columns()[0]
    at = at[1:] if not batch.lead else at
    data = np.frombuffer(batch.buffer, dtype=np.uint8)
    heads = data[(at - HEAD_SIZE)[:, None] + np.arange(HEAD_SIZE)]
    return np.ascontiguousarray(heads).view(head_dtype()).reshape(-1), at + batch.base


def note_break(findings: Findings, one: EntryAt, two: EntryAt) -> None:
    """Note that an entry does not follow the one before it."""
    detail = f"index {two.index} of term {two.term} after index {one.index} of term {one.term}"
    findings.add("entry-chain", two.segment.path, place(two.segment.path, two.offset), detail)


def check_runs(
    disk: Disk, files: StoreFiles, runs: Iterable[EntryRun | None], findings: Findings, *, live: bool
) -> None:
    """What only the whole log tells: whether its runs follow each other, and what is committed. Raises StorageError."""
    assert files.dledger is not None
    held = [run for run in runs if run is not None]
    for one, two in pairwise(held):
        apart = one.broken_after or two.broken_before or one.last.segment.end < two.first.segment.offset
        if not two.first.follows(one.last, apart=apart):
            note_break(findings, one.last, two.first)
    if not held:
        return
    index = index_segments(disk, files.dledger)
    if all(is_zero(disk, segment.path) for segment in index):
        findings.add("entry-index-missing", "dledger", os.path.relpath(files.dledger.index, files.root))
    committed = read_notes(disk, files.dledger).committed_index
    last = held[-1].last
    if not live and committed is not None and last.index > committed:
        where = place(last.segment.path, last.offset)
        detail = f"{committed} is the last committed one, {last.index} the last"
        findings.add("entry-uncommitted", "dledger", where, detail, last.index - committed)
