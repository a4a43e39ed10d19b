"""What becomes of the index: files that stay, files rewound to their last trustworthy entry, keys to be put (again).

Apache deletes every index file newer than the checkpoint and indexes only what abnormal recovery reads: older keys are
lost for good. Here a file stays as far as its entries agree with each other, and every key after them, or in a hole
between two files, is derived from the log again (RECOVERY.md, rules 4, 11, 12).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import names
from engine.format.quantities import counted
from engine.inspect.store.index_files import IndexFiles, KeptIndexFile, entries_before
from engine.inspect.store.spool import KeySpool
from engine.inspect.store.tag_keys import TagKeys
from engine.log.index_reader import ClosedIndexFile
from engine.log.scan import RecordBatch
from engine.repair.recover.index_compare import KeptComparer
from engine.repair.recover.log_end import Mode
from engine.repair.recover.memory import PlannedReading, Remembered

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.intervals import Intervals
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import Keys

_NUMBERS_BEFORE = 1000
"""Names (ms) before the first file's that are left for files before it."""


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
    """The plan. `names_after`: the files that are there before keys are put, by name; `last_entries` in the last.

    `trusted`: files whose entries were not all compared with the log.
    """

    enabled: bool
    removed: tuple[str, ...]
    rewinds: tuple[Rewind, ...]
    inserts: tuple[Insert, ...]
    tail: KeySpool
    keys_put: int
    names_after: tuple[str, ...]
    findings: list[str]
    last_entries: int = 0
    trusted: tuple[str, ...] = ()

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
            "cut": [{"file": r.name, "entries": r.had, "kept": r.keep} for r in self.rewinds],
            "keysPut": self.keys_put,
            "notCompared": len(self.trusted),
        }


class IndexPlanner:
    """Plans the index of one store; `begin` and `feed` go along with the reading of the log.

    With `whole`, every entry of every file is looked at.
    """

    def __init__(
        self, disk: Disk, files: StoreFiles, reading: PlannedReading, mode: Mode, *, whole: bool = False
    ) -> None:
        self._disk = disk
        self._files = files
        self._reading = reading
        self._scanner = reading.scanner
        self._layout = files.index_layout
        self._enabled = files.config.message_index_enable and bool(files.log)
        self._log_min = files.log[0].offset if files.log else 0
        self._tail = KeySpool()
        self._found = IndexFiles(disk, files, self._store_timestamp, abnormal=mode is Mode.ABNORMAL, whole=whole)
        self._kept = self._found.judge() if self._enabled else []
        self._tags = TagKeys(disk, files.log) if files.newer else None
        self._comparer = KeptComparer(disk, self._layout, self._kept, self._tags)
        self._resume = self._where_to_resume()

    def begin(self, start: int) -> None:
        """Read the keys that lie before `start` (physical), from where recovery reads, and aren't in the index."""
        if self._enabled:
            if self._resume < start:
                self._read(self._resume, start)
            self._comparer.begin(start)

    def feed(self, keys: Keys) -> None:
        """Take the keys of a batch, in log order."""
        if self._enabled:
            self._comparer.feed(keys)
            self._put(keys)

    def _put(self, keys: Keys) -> None:
        """Have those keys put that lie after the index's end."""
        if len(keys):
            if int(keys.physical_offset[0]) < self._resume:
                keys = keys.taken(keys.physical_offset >= self._resume)
            self._tail.add(keys)

    def _read(self, start: int, end: int) -> None:
        """Take the keys of [start, end) of the log, past damage."""
        for keys in self._keys(start, end):
            self._put(keys)

    def _keys(self, start: int, end: int) -> Iterator[Keys]:
        """The keys of [start, end) of the log, past damage, in batches."""
        for event, derived in self._reading.events(start, end, resume=True):
            if derived is not None:
                yield derived.keys
            elif isinstance(event, Remembered):
                yield from (derived.keys for derived in event.derived())

    def plan(self, log_end: int, lost: Intervals) -> IndexPlan:
        """The plan, now that the log end (physical) is known.

        Args:
            log_end: where the log ends after the repair.
            lost: ranges of the log (physical) without sound records, and those that were bridged.
        """
        if not self._enabled:
            stay = tuple(f.name for f in self._files.index if f.whole)
            return IndexPlan(False, (), (), (), self._tail, 0, stay, [])
        bad, notes = self._comparer.judge(log_end, lost, self._store_timestamp, self._found.verify)
        for kept in [one for one in self._kept if one.name in bad]:
            self._drop(kept, bad[kept.name])
        self._found.findings += notes
        self._cut(log_end)
        self._drop_empty()
        inserts = tuple(self._fill_holes())
        self._drop_empty()
        resume = self._where_to_resume()
        if resume < self._resume:  # what goes may have stood after a hole
            self._resume = resume
            self._tail.close()
            self._tail = KeySpool()
            self._read(resume, log_end)
        rewinds = []
        previous = (0, 0)
        for kept in self._kept:
            if kept.rewind:
                rewinds.append(Rewind(kept.name, kept.keep, kept.had, previous, self._store_timestamp(kept.end)))
            if kept.keep:
                previous = (kept.end, kept.end_timestamp)
        put = len(self._tail) - self._known_at_end() + sum(len(insert.keys) for insert in inserts)
        self._tail.pack()
        return IndexPlan(
            enabled=True,
            removed=tuple(self._found.removed),
            rewinds=tuple(rewinds),
            inserts=inserts,
            tail=self._tail,
            keys_put=put,
            names_after=tuple(kept.name for kept in self._kept),
            findings=self._found.findings,
            last_entries=self._kept[-1].keep if self._kept else 0,
            trusted=self._trusted(),
        )

    def _trusted(self) -> tuple[str, ...]:
        """Files that hold keys of a part of the log that was not read."""
        start = self._comparer.start
        return tuple(
            one.name
            for one in self._kept
            if one.keep and (start is None or max(one.begin, self._log_min) < start) and one.end >= self._log_min
        )

    def _drop(self, kept: KeptIndexFile, why: str) -> None:
        self._kept.remove(kept)
        self._found.drop(kept, why)

    def _where_to_resume(self) -> int:
        """Physical offset of the newest message in the index: keys from there on are put."""
        return max([self._log_min, *(kept.end for kept in self._kept if kept.keep)])

    def _cut(self, log_end: int) -> None:
        """Take the entries away that point after the log end (rule 12)."""
        for kept in list(self._kept):
            if not kept.keep or kept.end < log_end:
                continue
            with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
                keep = entries_before(file, kept.keep, log_end)
                if keep == 0:
                    self._drop(kept, "entries after the log end")
                    continue
                kept.keep, kept.rewind = keep, True
                kept.end = int(file.entries(keep, 1)[0]["physical_offset"])
            self._found.findings.append(f"index/{kept.name}: entries after the log end")

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
                self._drop(kept, "no entries, and it does not start where the previous file ends")

    # --- holes ------------------------------------------------------------------------------------------------------

    def _fill_holes(self) -> Iterator[Insert]:
        """Keys between two files, or before the first one, that no file has.

        Where names leave no room for as many files as they take, all that comes after is put again.
        """
        full = [kept for kept in self._kept if kept.keep]
        end = self._log_min - 1
        known = 0
        before = ""
        for i, kept in enumerate(full):
            keys = self._keys_between(end, known, kept)
            if len(keys):
                needed = -(-len(keys) // (self._layout.entries - 1))
                first = int(before) + 1 if before else max(0, int(kept.name) - max(_NUMBERS_BEFORE, needed))
                if first + needed > int(kept.name):
                    for one in full[i:]:
                        self._drop(one, "no names are left for files before it: its keys are indexed again")
                    return
                self._found.findings.append(
                    f"index: {counted(len(keys), 'key')} before {kept.name} missing from the index files"
                )
                yield Insert(f"{first:017d}", keys)
            end, before = kept.end, kept.name
            with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
                known = file.entries_at_end()

    def _keys_between(self, end: int, known: int, kept: KeptIndexFile) -> KeySpool:
        """Keys after the record at `end` (of which `known` are there) up to where `kept` begins.

        All of the range is read: nothing else tells that its messages have no keys. In a sound index that is a
        record or two, but where a topic without keys was written for long.
        """
        import numpy as np

        keys_between = KeySpool()
        if kept.begin <= max(end, self._log_min):
            return keys_between
        with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
            there = int(np.count_nonzero(file.entries(1, 4096)["physical_offset"] == kept.begin))
        for keys in self._keys(max(end, self._log_min), kept.begin + 1):
            at_end = np.flatnonzero(keys.physical_offset == end)[:known]
            at_begin = np.flatnonzero(keys.physical_offset == kept.begin)
            wanted = np.ones(len(keys), dtype=np.bool_)
            wanted[at_end] = wanted[at_begin[max(0, len(at_begin) - there) :]] = False
            left = np.flatnonzero(wanted & (keys.physical_offset == end))
            if self._tags is not None and len(left):  # put by a release that has no keys by tag
                wanted[left] = ~self._tags.mask(keys.physical_offset[left], keys.key_hash[left].astype(np.int64))
            keys_between.add(keys.taken(wanted))
        keys_between.pack()
        return keys_between

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


def index_directory(files: StoreFiles) -> str:
    """Where the index files are."""
    return os.path.join(files.root, names.INDEX)
