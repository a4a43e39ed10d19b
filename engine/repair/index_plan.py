"""What becomes of the index: files that stay, files rewound to their last trustworthy entry, keys to be put (again).

Apache deletes every index file newer than the checkpoint and indexes only what abnormal recovery reads: older keys are
lost for good. Here a file stays as far as its entries agree with each other, and every key behind them, or in a hole
between two files, is derived from the log again (recovery.md, rules 4, 11, 12).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.format import names
from engine.format.index_file import IndexHeader
from engine.log.index_reader import ClosedIndexFile, IndexCheck, IndexFault
from engine.log.scan import RecordBatch
from engine.repair.index_torn import first_torn
from engine.repair.log_end import Mode
from engine.repair.memory import Reading, Remembered
from engine.repair.spool import KeySpool

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.log.derive import Keys
    from engine.repair.survey import IndexName, StoreFiles


@dataclass(frozen=True, slots=True)
class Insert:
    """Keys for a hole between two index files: put into new files named from `name` on."""

    name: str
    keys: KeySpool


@dataclass(frozen=True, slots=True)
class Rewind:
    """An index file that keeps its entries 1 … `keep`; `previous`: endPhyOffset and endTimestamp of the one before.

    `end_timestamp`: store time (ms) of the last kept entry's message, None when the log has it no more.
    """

    name: str
    keep: int
    had: int
    previous: tuple[int, int]
    end_timestamp: int | None


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The plan. `names_after`: the files that are there before keys are put, by name; `last_entries` in the last."""

    enabled: bool
    removed: tuple[str, ...]
    rewinds: tuple[Rewind, ...]
    inserts: tuple[Insert, ...]
    tail: KeySpool
    keys_put: int
    names_after: tuple[str, ...]
    findings: list[str]
    last_entries: int = 0

    @property
    def changed(self) -> bool:
        """Whether a byte of the index changes."""
        return bool(self.removed or self.rewinds or self.keys_put)

    def to_json(self) -> dict[str, Any]:
        """The index part of a plan."""
        return {
            "enabled": self.enabled,
            "files": len(self.names_after),
            "filesRemoved": list(self.removed),
            "rewound": [{"file": r.name, "entries": r.had, "kept": r.keep} for r in self.rewinds],
            "keysPut": self.keys_put,
        }


@dataclass(slots=True)
class _Kept:
    """A file that stays: entries kept, and the physical offsets of its first and last kept entry."""

    name: str
    path: str
    had: int
    keep: int
    begin: int
    end: int
    end_timestamp: int
    rewind: bool


class IndexPlanner:
    """Plans the index of one store; `begin` and `feed` go along with the reading of the log."""

    def __init__(self, disk: Disk, files: StoreFiles, reading: Reading, mode: Mode) -> None:
        self._disk = disk
        self._files = files
        self._reading = reading
        self._deriver = reading.deriver
        self._scanner = reading.scanner
        self._mode = mode
        self._layout = files.index_layout
        self._enabled = files.config.message_index_enable and bool(files.log)
        self._log_min = files.log[0].offset if files.log else 0
        self._findings: list[str] = []
        self._removed: list[str] = []
        self._tail = KeySpool()
        self._kept = self._judge() if self._enabled else []
        self._resume = self._where_to_resume()

    def begin(self, start: int) -> None:
        """Read the keys that lie before `start` (physical), from where recovery reads, and aren't in the index."""
        if self._enabled and self._resume < start:
            self._read(self._resume, start)

    def feed(self, keys: Keys) -> None:
        """Take the keys of a batch, in log order."""
        if self._enabled and len(keys):
            if int(keys.physical_offset[0]) < self._resume:
                keys = keys.taken(keys.physical_offset >= self._resume)
            self._tail.add(keys)

    def _read(self, start: int, end: int) -> None:
        """Take the keys of [start, end) of the log, past damage."""
        for event, derived in self._reading.events(start, end, resume=True):
            if derived is not None:
                self.feed(derived.keys)
            elif isinstance(event, Remembered):
                for _, keys in event.derived():
                    self.feed(keys)

    def plan(self, log_end: int) -> IndexPlan:
        """The plan, now that the log's end (physical) is known."""
        if not self._enabled:
            stay = tuple(f.name for f in self._files.index if f.whole)
            return IndexPlan(False, (), (), (), self._tail, 0, stay, [])
        self._cut(log_end)
        self._drop_empty()
        resume = self._where_to_resume()
        if resume < self._resume:  # what was cut may have stood behind a hole
            self._resume = resume
            self._read(resume, log_end)
        inserts = tuple(self._fill_holes())
        rewinds = []
        previous = (0, 0)
        for kept in self._kept:
            if kept.rewind:
                rewinds.append(Rewind(kept.name, kept.keep, kept.had, previous, self._store_timestamp(kept.end)))
            if kept.keep:
                previous = (kept.end, kept.end_timestamp)
        put = len(self._tail) - self._known_at_end() + sum(len(insert.keys) for insert in inserts)
        return IndexPlan(
            enabled=True,
            removed=tuple(self._removed),
            rewinds=tuple(rewinds),
            inserts=inserts,
            tail=self._tail,
            keys_put=put,
            names_after=tuple(kept.name for kept in self._kept),
            findings=self._findings,
            last_entries=self._kept[-1].keep if self._kept else 0,
        )

    def _where_to_resume(self) -> int:
        """Physical offset of the newest message in the index: keys from there on are put."""
        return max([self._log_min, *(kept.end for kept in self._kept if kept.keep)])

    # --- files ------------------------------------------------------------------------------------------------------

    def _judge(self) -> list[_Kept]:
        """The files that stay, as far as their entries agree."""
        kept: list[_Kept] = []
        present = [f for f in self._files.index if self._is_whole(f)]
        for i, found in enumerate(present):
            with ClosedIndexFile(self._disk, found.path, self._layout) as file:
                header = file.header
                check = self._check(file, header)
                last = i == len(present) - 1
                if check.fault is not None:
                    self._findings.append(f"index/{found.name}: {check.fault.value}")
                # A header whose fields are wrong can't be told right ones from: that file is made anew as a whole.
                lost = check.sound == 0 or check.fault is IndexFault.HEADER or (check.entry is not None and not last)
                if check.fault is not None and lost:
                    self._removed.append(found.name)
                    continue
                kept.append(_keep(file, found, header, check))
        return kept

    def _is_whole(self, found: IndexName) -> bool:
        if not found.whole:
            self._findings.append(f"index/{found.name}: a length of {found.size} instead of {self._layout.file_size}")
            self._removed.append(found.name)
        return found.whole

    def _check(self, file: ClosedIndexFile, header: IndexHeader) -> IndexCheck:
        """All of a file that a crash may have torn; of the others what a glance tells."""
        suspect = self._mode is Mode.ABNORMAL and header.end_timestamp > self._files.checkpoint.index_msg_timestamp
        if suspect or not self._looks_right(file, header):
            check = file.verify()
            torn = first_torn(file, check.sound, self._log_min, self._store_timestamp) if suspect else None
            return check if torn is None else IndexCheck(torn - 1, torn, IndexFault.TIME)
        return IndexCheck(file.entry_count)

    def _looks_right(self, file: ClosedIndexFile, header: IndexHeader) -> bool:
        import numpy as np

        count = file.entry_count
        if header.index_count > self._layout.entries or int(np.count_nonzero(file.slots())) != header.hash_slot_count:
            return False
        if count == 0:
            return True
        first, last = file.entries(1, 1)[0], file.entries(count, 1)[0]
        return (int(first["physical_offset"]), int(last["physical_offset"])) == (
            header.begin_phy_offset,
            header.end_phy_offset,
        )

    def _cut(self, log_end: int) -> None:
        """Take the entries away that point behind the log's end (rule 12)."""
        for kept in list(self._kept):
            if not kept.keep or kept.end < log_end:
                continue
            with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
                keep = entries_before(file, kept.keep, log_end)
                if keep == 0:
                    self._removed.append(kept.name)
                    self._kept.remove(kept)
                else:
                    kept.keep, kept.rewind = keep, True
                    kept.end = int(file.entries(keep, 1)[0]["physical_offset"])
                self._findings.append(f"index/{kept.name}: entries behind the log's end")

    def _drop_empty(self) -> None:
        """Remove files without entries, but for a last one that begins where the one before it ends.

        Whoever puts keys goes by the last file's header: with another end in it (the file before was lost, or its own
        header was), keys would be passed over, or be put twice.
        """
        end: tuple[int, int] | None = (0, 0)
        for kept in list(self._kept):
            if kept.keep:
                end = None if kept.rewind else (kept.end, kept.end_timestamp)
            elif kept is not self._kept[-1] or (kept.end, kept.end_timestamp) != end:
                self._removed.append(kept.name)
                self._kept.remove(kept)
                self._findings.append(f"index/{kept.name}: no entries, and not begun where the file before it ends")

    # --- holes ------------------------------------------------------------------------------------------------------

    def _fill_holes(self) -> Iterator[Insert]:
        """Keys between two files, or before the first one, that no file has."""
        full = [kept for kept in self._kept if kept.keep]
        end = self._log_min - 1
        known = 0
        before = ""
        for kept in full:
            keys = self._keys_between(end, known, kept)
            if len(keys):
                name = f"{int(before) + 1 if before else int(kept.name) - 1000:017d}"
                self._findings.append(f"index: {len(keys)} keys before {kept.name} are in no file")
                yield Insert(name, keys)
            end, before = kept.end, kept.name
            with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
                known = file.entries_at_end()

    def _keys_between(self, end: int, known: int, kept: _Kept) -> KeySpool:
        """Keys behind the record at `end` (of which `known` are there) up to where `kept` begins.

        A stretch whose first window has no key is taken for one without keys: topics that use none.
        """
        import numpy as np

        found = KeySpool()
        if kept.begin <= max(end, self._log_min):
            return found
        with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
            there = int(np.count_nonzero(file.entries(1, 4096)["physical_offset"] == kept.begin))
        for number, event in enumerate(self._scanner.scan(max(end, self._log_min), kept.begin + 1, resume=True)):
            if isinstance(event, RecordBatch):
                keys = self._deriver.derive(event)[1]
                at_end = np.flatnonzero(keys.physical_offset == end)[:known]
                at_begin = np.flatnonzero(keys.physical_offset == kept.begin)
                wanted = np.ones(len(keys), dtype=np.bool_)
                wanted[at_end] = wanted[at_begin[max(0, len(at_begin) - there) :]] = False
                found.add(keys.taken(wanted))
                if number == 0 and not len(found):
                    break
        return found

    def _store_timestamp(self, offset: int) -> int | None:
        """Store time (ms) of the sound record at a physical offset, None without one."""
        for event in self._scanner.scan(offset, offset + 1):
            if isinstance(event, RecordBatch):
                return event.first_store_timestamp
        return None

    def _known_at_end(self) -> int:
        """Keys of the tail that the index has: those of the record at its end."""
        import numpy as np

        if not self._kept or not len(self._tail):
            return 0
        total = sum(int(np.count_nonzero(keys.physical_offset == self._resume)) for keys in self._tail.chunks())
        known = 0
        for kept in reversed(self._kept):
            if kept.keep and kept.end == self._resume:
                with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
                    tail = file.entries(max(1, kept.keep - 4095), min(kept.keep, 4096))["physical_offset"]
                    known += int(np.count_nonzero(tail == self._resume))
        return min(known, total)


def _keep(file: ClosedIndexFile, found: IndexName, header: IndexHeader, check: IndexCheck) -> _Kept:
    count = check.sound
    begin = int(file.entries(1, 1)[0]["physical_offset"]) if count else header.begin_phy_offset
    end = int(file.entries(count, 1)[0]["physical_offset"]) if count else header.end_phy_offset
    rewind = check.fault is not None
    return _Kept(found.name, found.path, file.entry_count, count, begin, end, header.end_timestamp, rewind)


def entries_before(file: ClosedIndexFile, count: int, log_end: int) -> int:
    """How many of the first `count` entries point before `log_end`: they ascend, so by bisection."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if int(file.entries(middle + 1, 1)[0]["physical_offset"]) < log_end:
            low = middle + 1
        else:
            high = middle
    return low


def index_directory(files: StoreFiles) -> str:
    """Where the index files are."""
    return os.path.join(files.root, names.INDEX)
