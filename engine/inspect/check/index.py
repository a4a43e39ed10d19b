"""The index against itself and against the log: every file's chains, then every entry and every key.

A file's own structure is `IndexReader.faults`. Against the log, keys are compared a window of the log at a time with
the entries that point into it: entries and keys are both in log order, so a window needs few pieces of few files.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.numbers import INT_MAX
from engine.inspect.finding import Findings
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.key_groups import grouped
from engine.log.index_reader import ClosedIndexFile, IndexFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.format.index_file import IndexLayout
    from engine.inspect.check.doubts import DoubtfulRecords
    from engine.inspect.store.survey import IndexName
    from engine.inspect.store.tag_keys import TagKeys
    from engine.log.derive import Keys
    from engine.log.scan import RecordBatch

PIECE = 1 << 17
"""Entries that are read together."""
WINDOW_KEYS = 1 << 18
"""Keys, or records, that are compared together."""
MAX_LOST = 1000
"""Entries into damage that are kept one by one."""

_CODES = {
    IndexFault.HASH: "index-entry",
    IndexFault.OFFSET: "index-entry",
    IndexFault.TIME: "index-entry",
    IndexFault.PREVIOUS: "index-link",
    IndexFault.SLOT: "index-slot",
    IndexFault.HEADER: "index-header",
}


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """Entries [first, first + count) of a file, and the lowest and highest physical offset that they name.

    `begin_timestamp`: the file's (ms).
    """

    name: str
    path: str
    first: int
    count: int
    low: int
    high: int
    begin_timestamp: int


@dataclass(slots=True)
class IndexPart:
    """What one file held."""

    name: str
    entries: int = 0
    pieces: list[IndexPiece] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    @property
    def start(self) -> int:
        """The lowest physical offset of its first piece."""
        return self.pieces[0].low if self.pieces else -1

    @property
    def end(self) -> int:
        """The highest physical offset of its last piece."""
        return self.pieces[-1].high if self.pieces else -1


def check_index_file(disk: Disk, index: IndexName, layout: IndexLayout, *, growing: bool) -> IndexPart:
    """A file of the right length by itself. `growing`: another process puts keys into it.

    Raises:
        StorageError: it can't be read.
    """
    part = IndexPart(index.name)
    group = f"index/{index.name}"
    with ClosedIndexFile(disk, index.path, layout) as file:
        header = file.header
        part.entries = min(header.index_count, layout.entries) - 1
        for first in range(1, part.entries + 1, PIECE):
            offsets = file.entries(first, min(PIECE, part.entries - first + 1))["physical_offset"]
            low, high = int(offsets.min()), int(offsets.max())
            part.pieces.append(
                IndexPiece(index.name, index.path, first, len(offsets), low, high, header.begin_timestamp)
            )
        for one in file.faults(growing=growing):
            where = group if one.entry is None else f"{group} entry {one.entry}"
            detail = _link(file, one.entry) if one.fault is IndexFault.PREVIOUS and one.entry else one.fault.value
            part.findings.add(_CODES[one.fault], group, where, detail, one.count)
    return part


def _link(file: ClosedIndexFile, number: int) -> str:
    """In which way an entry's link is wrong."""
    previous = int(file.entries(number, 1)[0]["previous"])
    if not 0 <= previous <= file.entry_count:
        return f"entry {number} names {previous} as previous entry, which does not exist"
    if previous >= number:
        return f"entry {number} names {previous} as previous entry: a loop"
    return f"entry {number} names {previous} as previous entry, which is not the previous one of its slot"


def check_order(parts: Sequence[IndexPart], findings: Findings) -> None:
    """Files by name are in log order: each begins where the one before it ends, or after."""
    end = -1
    for part in parts:
        if part.pieces and part.start < end:
            place = f"index/{part.name}"
            findings.add("index-order", place, place, f"starts at {part.start}, the previous file ends at {end}")
        end = max(end, part.end)


class KeyComparer:
    """Compares the keys of the log's records with the entries of all index files, window by window.

    Args:
        disk: how files are reached.
        layout: of the index files.
        pieces: all entries.
        findings: gets what is wrong.
        start: physical offset of the first record that will be fed.
        until: only what lies before this physical offset is judged (None: everything).
        bridged: ranges (physical) that a repair made readable; entries into them are of lost messages.
        doubtful: records that may say less than the index does.
        tags: tells the entries by tag that RocketMQ 5 makes (None: there are none).
    """

    def __init__(
        self,
        disk: Disk,
        layout: IndexLayout,
        pieces: Sequence[IndexPiece],
        findings: Findings,
        start: int,
        until: int | None,
        bridged: Intervals,
        doubtful: DoubtfulRecords,
        tags: TagKeys | None = None,
    ) -> None:
        self._doubtful = doubtful
        self._tags = tags
        self._disk = disk
        self._layout = layout
        self._pieces = pieces
        self._findings = findings
        self._low = start
        self._until = until
        self._bridged = bridged
        self._keys: list[Keys] = []
        self._records: list[NDArray[np.int64]] = []
        self._fed = 0
        self._lost = Intervals()
        self.into_damage: list[tuple[int, str, int]] = []
        self.compared = 0

    def feed(self, batch: RecordBatch, keys: Keys) -> None:
        """The keys of a batch, in log order."""

        self._records.append(batch.offsets())
        self._keys.append(keys)
        self._fed += max(len(keys), len(batch))
        if self._fed >= WINDOW_KEYS:
            self.flush(batch.end)

    def lost(self, offset: int, length: int) -> None:
        """A range of the log without a sound record."""
        self._lost.add(offset, offset + length)

    def skip_to(self, start: int) -> None:
        """The log continues at another place: what lies between is not judged."""
        self._low = start

    def flush(self, high: int) -> None:
        """Compare everything that was fed, and the entries up to the physical offset `high`."""
        import numpy as np

        low, self._low = self._low, high
        records = np.concatenate(self._records) if self._records else np.zeros(0, dtype=np.int64)
        physical = _joined([k.physical_offset for k in self._keys], np.int64)
        hashes = _joined([k.key_hash for k in self._keys], np.int64)
        stored = _joined([k.store_timestamp for k in self._keys], np.int64)
        self._keys, self._records, self._fed = [], [], 0
        if self._until is not None:
            high = min(high, self._until)
            mine = physical < high
            physical, hashes, stored = physical[mine], hashes[mine], stored[mine]
        if low >= high:
            return
        self._compare(_Window(records, physical, hashes, stored), low, high)
        self._lost = Intervals()

    def _compare(self, window: _Window, low: int, high: int) -> None:
        import numpy as np

        names, table = self._entries(low, high)
        count = len(window.physical)
        self.compared += count
        if np.array_equal(window.physical, table[0]) and np.array_equal(window.hashes, table[1]):
            # The index is filled in log order: nearly always nothing has to be looked for.
            self._times(names, table, window.stored, np.ones(count, dtype=np.bool_))
            return
        groups = grouped((window.physical, window.hashes), (table[0], table[1]))
        derived, there = groups.derived, groups.there
        self._strangers(window, names, table, np.flatnonzero(derived[groups.of_entries] == 0))
        missing = np.flatnonzero((there < derived)[groups.of_keys])
        witness = self._doubtful.suspects(window.physical[missing])
        for code, some in (("index-witness", missing[witness]), ("index-missing", missing[~witness])):
            if len(some):
                # How often a key is missing is known from its group; the records are named by its members.
                many = int((derived - there)[np.unique(groups.of_keys[some])].sum())
                places = ", ".join(f"the record at {at}" for at in np.unique(window.physical[some])[:3].tolist())
                self._findings.add(code, "index", "index", places, many)
        twice = np.flatnonzero(((there > derived) & (derived > 0))[groups.of_entries])
        if len(twice):
            surplus = int((there - derived)[(there > derived) & (derived > 0)].sum())
            self._note("index-twice", names, table, twice[:3], surplus)
        self._times(names, table, groups.per_entry(window.stored), derived[groups.of_entries] > 0)

    def _strangers(
        self, window: _Window, names: list[str], table: NDArray[np.int64], strange: NDArray[np.intp]
    ) -> None:
        """Entries whose key no record at their place has."""
        import numpy as np

        strange = strange[~self._bridged.mask(table[0][strange])]
        if self._tags is not None and len(strange):
            known = np.isin(table[0][strange], window.records)
            known[known] = self._tags.mask(table[0][strange[known]], table[1][strange[known]])
            strange = strange[~known]
        if not len(strange):
            return
        at = table[0][strange]
        on_record = np.isin(at, window.records)
        damaged = self._lost.mask(at) & ~on_record
        for index in strange[damaged].tolist():
            if len(self.into_damage) < MAX_LOST:
                self.into_damage.append((int(table[0][index]), names[int(table[3][index])], int(table[4][index])))
            else:
                self._findings.add("index-lost", "index", "index", count=1)
        witness = on_record & self._doubtful.contradicted(np.where(on_record, at, -1))
        self._note("index-witness", names, table, strange[witness])
        self._note("index-key", names, table, strange[on_record & ~witness])
        self._note("index-orphaned", names, table, strange[~on_record & ~damaged])

    def _times(
        self, names: list[str], table: NDArray[np.int64], stored: NDArray[np.int64], known: NDArray[np.bool_]
    ) -> None:
        """Entry 1 is measured against the file before, and its own time is never used (IndexReader.query)."""
        import numpy as np

        begin = table[5]
        right = np.where(begin <= 0, 0, np.clip((stored - begin) // 1000, 0, INT_MAX))
        wrong = known & (table[4] > 1) & (table[2] != right)
        if not wrong.any():
            return
        witness = wrong & self._doubtful.suspects(table[0])
        self._note("index-witness", names, table, np.flatnonzero(witness))
        self._note("index-time", names, table, np.flatnonzero(wrong & ~witness))

    def _note(
        self, code: str, names: list[str], table: NDArray[np.int64], which: NDArray[np.intp], count: int | None = None
    ) -> None:
        import numpy as np

        for file in np.unique(table[3][which]).tolist():
            mine = which[table[3][which] == file]
            group = f"index/{names[file]}"
            first = mine[:3].tolist()
            details = ", ".join(f"entry {table[4][i]} names the record at {table[0][i]}" for i in first)
            many = len(mine) if count is None else count
            self._findings.add(code, group, f"{group} entry {table[4][first[0]]}", details, many)
            count = None if count is None else 0

    def _entries(self, low: int, high: int) -> tuple[list[str], NDArray[np.int64]]:
        """Entries that point into [low, high): physical, hash, time, file, number, the file's begin; and file names."""
        import numpy as np

        names: list[str] = []
        parts: list[NDArray[np.int64]] = []
        for piece in self._pieces:
            if piece.low >= high or piece.high < low:
                continue
            with ClosedIndexFile(self._disk, piece.path, self._layout) as file:
                entries = file.entries(piece.first, piece.count)
            physical = entries["physical_offset"].astype(np.int64)
            at = np.flatnonzero((physical >= low) & (physical < high))
            if not names or names[-1] != piece.name:
                names.append(piece.name)
            same = np.ones(len(at), dtype=np.int64)
            parts.append(
                np.stack(
                    [
                        physical[at],
                        entries["key_hash"][at].astype(np.int64),
                        entries["time_diff"][at].astype(np.int64),
                        same * (len(names) - 1),
                        at + piece.first,
                        same * piece.begin_timestamp,
                    ]
                )
            )
        return names, np.concatenate(parts, axis=1) if parts else np.zeros((6, 0), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """Records (their physical offsets) and their keys: columns of one length."""

    records: NDArray[np.int64]
    physical: NDArray[np.int64]
    hashes: NDArray[np.int64]
    stored: NDArray[np.int64]


def _joined(parts: list[NDArray[np.int64]] | list[NDArray[np.int32]], kind: type[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    return np.concatenate(parts).astype(kind) if parts else np.zeros(0, dtype=kind)
