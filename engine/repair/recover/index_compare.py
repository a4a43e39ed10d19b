"""The keys of the log against the index files that should have them, window by window, where the log is read anyway.

A file's entries may agree with each other and yet lack keys, or have some that no message has. Per record the two sides
are compared as sets. What differs is either the file's damage or the record's: topic and properties, of which keys are
made, are outside of its CRC. So a file is given up when a record's keys are missing, when entries point where no record
is, or when many of its records have other keys or times than their entries; a few such stay, and are reported.
Entries that are there twice stay (Apache puts the first message of a recovery again).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.dataclass import dataclass
from engine.format.numbers import INT_MAX
from engine.format.quantities import counted
from engine.inspect.store.index_files import entries_before
from engine.inspect.store.key_groups import grouped
from engine.log.derive import Keys, concatenated
from engine.log.index_reader import ClosedIndexFile

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.format.index_file import IndexLayout
    from engine.inspect.store.index_files import KeptIndexFile
    from engine.inspect.store.intervals import Intervals
    from engine.inspect.store.tag_keys import TagKeys

WINDOW_KEYS = 1 << 17
"""Keys that are compared together: few enough to stay in the processor's caches."""
MOST_ENTRIES = 1 << 20
"""Entries that are compared with a window; more of them point into what is lost."""
MOST_STRANGE = 1000
"""Entries without a record's key that are looked at one by one."""
_SECOND = 1000
_SOME = 8
"""Records that disagree, below which a file is judged by all of its entries, whatever part was compared."""
ONE_IN = 64
"""A file of which so large a part disagrees with the log's records is another log's, or garbled."""


@dataclass(slots=True)
class _Seen:
    """What was found about one file.

    `compared`: records; `missing`: those without all of their keys; `others`: those with other keys; `times`: those of
    another time; `mistimed`: entries whose time is none between their neighbours', as their record's is. `strange`:
    places (physical) that entries name without a key there, in rows that no record with keys interrupts.
    """

    compared: int = 0
    missing: int = 0
    others: int = 0
    times: int = 0
    mistimed: int = 0
    strange: list[list[int]] = field(default_factory=list)


class _Entries(NamedTuple):
    """Entries of all files in a window, in their order. `file`: a file's number; `begin`: its begin timestamp (ms)."""

    physical: NDArray[np.int64]
    key_hash: NDArray[np.int64]
    time: NDArray[np.int64]
    number: NDArray[np.int64]
    file: NDArray[np.int64]
    begin: NDArray[np.int64]


class KeptComparer:
    """Compares. Keys come in log order; those after the last entry of the index don't count.

    Args:
        disk: how files are reached.
        layout: of the index files.
        kept: the files that stay so far, in the order of the log.
        tags: tells keys by tag, which the entries of some releases' records lack (None: there are none).
    """

    def __init__(self, disk: Disk, layout: IndexLayout, kept: list[KeptIndexFile], tags: TagKeys | None = None) -> None:
        self._disk = disk
        self._tags = tags
        self._layout = layout
        self._files = [one for one in kept if one.keep]
        self._seen = [_Seen() for _ in self._files]
        self._end = max((one.end for one in self._files), default=-1)
        self._low: int | None = None
        self._keys: list[Keys] = []
        self._fed = 0
        # the last window that agreed: its end, its file, and that one's entries before it
        self._reached = (-1, 0, 0)
        self.start: int | None = None

    def begin(self, start: int) -> None:
        """Keys come from this physical offset on."""
        self._low = self.start = start

    def feed(self, keys: Keys) -> None:
        """Take keys, all those of their records."""
        if self._low is None or not len(keys) or int(keys.physical_offset[0]) > self._end:
            return
        self._keys.append(keys)
        self._fed += len(keys)
        if self._fed >= WINDOW_KEYS:
            self._flush(int(keys.physical_offset[-1]) + 1)

    def judge(
        self,
        log_end: int,
        lost: Intervals,
        stored_at: Callable[[int], int | None],
        verify: Callable[[KeptIndexFile], bool],
    ) -> tuple[dict[str, str], list[str]]:
        """The files that are to be made anew, by name, each with the reason; and what is left as it is, to be reported.

        Args:
            log_end: physical offset of the log end after the repair.
            lost: ranges of the log without sound records, and those that were bridged.
            stored_at: store time (ms) of the sound record at a physical offset, None without one.
            verify: whether a file agrees in itself; asked of one that stays whole (of others the part that stays does).
        """
        if self._low is not None and self._low < log_end:
            self._flush(log_end)
        bad: dict[str, str] = {}
        notes: list[str] = []
        for one, seen in zip(self._files, self._seen, strict=True):
            # some are few of a file, whatever part of it was compared: a part of it is compared again and again
            those = one.keep if seen.others + seen.times < _SOME else seen.compared
            few = max(1, those // ONE_IN)
            if seen.missing:
                bad[one.name] = f"keys of {counted(seen.missing, 'record')} are missing"
            elif not self._point_right(seen, lost, stored_at):
                bad[one.name] = "entries point at no record"
            elif seen.mistimed:
                bad[one.name] = f"{counted(seen.mistimed, 'entry has', 'entries have')} other times than in the log"
            elif not self._begins_and_ends(one, log_end, stored_at, garbled=seen.times > few):
                bad[one.name] = "its header's times are not those of its first and last record"
            elif seen.others > few or seen.times > few:
                bad[one.name] = (
                    f"{counted(max(seen.others, seen.times), 'record has', 'records have')} other keys or times"
                )
            elif (seen.others or seen.times or seen.strange) and one.keep == one.had and not verify(one):
                bad[one.name] = "entries that disagree with the log, and with each other"
            elif seen.others or seen.times:
                notes.append(
                    f"index/{one.name}: {counted(max(seen.others, seen.times), 'record has', 'records have')} "
                    "other keys or times than their "
                    "entries; both stay"
                )
        return bad, notes

    def _begins_and_ends(
        self, one: KeptIndexFile, log_end: int, stored_at: Callable[[int], int | None], *, garbled: bool
    ) -> bool:
        """Whether the header has the times of the first and the last record, be they in the part that was read or not.

        One that is off by a second or more and that the entries agree with is the record's damage.
        """
        with ClosedIndexFile(self._disk, one.path, self._layout) as file:
            header = file.header
        known = [(one.begin, header.begin_timestamp), (one.end, header.end_timestamp)]
        for place, time in known[:1] if one.keep < one.had else known:
            stored = stored_at(place) if place < log_end else None
            if stored is not None and stored != time and (time <= 0 or garbled or abs(stored - time) < _SECOND):
                return False
        return True

    def _point_right(self, seen: _Seen, lost: Intervals, stored_at: Callable[[int], int | None]) -> bool:
        """Whether all that is pointed at without a key there is lost, or a record."""
        looked = 0
        for row in seen.strange:
            if lost.overlap(row[0], row[-1] + 1) == row[-1] + 1 - row[0]:
                continue
            left = [place for place in row if place not in lost]
            looked += len(left)
            if looked > MOST_STRANGE or any(stored_at(place) is None for place in left):
                return False
        return True

    def _flush(self, high: int) -> None:
        import numpy as np

        assert self._low is not None
        low, self._low = self._low, high
        keys = concatenated(self._keys, Keys) if self._keys else None
        self._keys, self._fed = [], 0
        empty: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        physical = empty if keys is None else keys.physical_offset
        hashes = empty if keys is None else keys.key_hash
        stored = empty if keys is None else keys.store_timestamp
        mine = physical < self._end  # those of the last record are put where they are not there
        if not mine.all():
            physical, hashes, stored = physical[mine], hashes[mine], stored[mine]
        high = min(high, self._end)
        if self._agrees(low, high, physical, hashes, stored):
            return
        hashes = hashes.astype(np.int64)
        entries = self._entries(low, high)
        if np.array_equal(physical, entries.physical) and np.array_equal(hashes, entries.key_hash):
            bounds = np.searchsorted(entries.file, np.arange(len(self._files) + 1)).tolist()
            for seen, (first, after) in zip(self._seen, pairwise(bounds), strict=True):
                seen.compared += int(np.count_nonzero(np.diff(physical[first:after]))) + (after > first)
            self._times(entries, stored)
        else:
            self._differences(entries, physical, hashes, stored)

    def _agrees(
        self, low: int, high: int, physical: NDArray[np.int64], hashes: NDArray[Any], stored: NDArray[np.int64]
    ) -> bool:
        """Whether one file has just these keys in [low, high), with their times, as it nearly always has.

        A window's entries are those after the ones of the window before: nothing is looked for, nothing is copied.
        """
        import numpy as np

        count = len(physical)
        numbers = [i for i, one in enumerate(self._files) if one.begin < high and one.end >= low]
        if len(numbers) != 1 or not count:
            return False
        one, seen = self._files[numbers[0]], self._seen[numbers[0]]
        with ClosedIndexFile(self._disk, one.path, self._layout) as file:
            reached, number, first = self._reached
            if (reached, number) != (low, numbers[0]):
                first = entries_before(file, one.keep, low)
            some = file.entries(first + 1, min(count + 1, one.keep - first))
            begin = file.header.begin_timestamp
        if len(some) < count or begin <= 0 or (some["physical_offset"][count:] < high).any():
            return False
        some = some[:count]
        if not np.array_equal(some["physical_offset"], physical) or not np.array_equal(some["key_hash"], hashes):
            return False
        since = stored - begin - _SECOND * some["time_diff"].astype(np.int64)
        untimed = first == 0  # as in `_times`
        if ((since < 0) | (since >= _SECOND))[untimed:].any():
            return False
        seen.compared += int(np.count_nonzero(physical[1:] != physical[:-1])) + 1
        self._reached = (high, numbers[0], first + count)
        return True

    def _differences(
        self, entries: _Entries, physical: NDArray[np.int64], hashes: NDArray[np.int64], stored: NDArray[np.int64]
    ) -> None:
        import numpy as np

        groups = grouped((physical, hashes), (entries.physical, entries.key_hash))
        lacks = (groups.there < groups.derived)[groups.of_keys]
        strange = groups.derived[groups.of_entries] == 0
        if self._tags is not None:
            strange[strange] = ~self._tags.mask(entries.physical[strange], entries.key_hash[strange])
        with_others = np.unique(entries.physical[strange])
        if self._tags is not None:  # one that lacks no more than its tag's, and has no other, was put so
            only = lacks & ~np.isin(physical, with_others)
            lacks[only] = ~self._tags.mask(physical[only], hashes[only])
        lacking = np.unique(physical[lacks])
        for i, one in enumerate(self._files):
            self._seen[i].compared += int(((entries.file == i) & ~strange).sum())
            here = lacking[(lacking >= one.begin) & (lacking <= one.end)]
            mixed = np.isin(here, with_others)
            self._seen[i].missing += int((~mixed).sum())
            self._seen[i].others += int(mixed.sum())
            mine = np.unique(entries.physical[strange & (entries.file == i)])
            self._seen[i].strange += _rows(mine[~np.isin(mine, physical)], np.unique(physical))
        self._times(_Entries(*(column[~strange] for column in entries)), groups.per_entry(stored)[~strange])

    def _times(self, entries: _Entries, stored: NDArray[np.int64]) -> None:
        """Entry 1 is measured against the file before, and its own time is never used (IndexReader.query)."""
        import numpy as np

        right = np.where(entries.begin <= 0, 0, np.clip((stored - entries.begin) // _SECOND, 0, INT_MAX))
        wrong = (entries.number > 1) & (entries.time != right)
        if not wrong.any():
            return
        same = np.diff(entries.file) == 0
        before = np.where(np.append(False, same) & (entries.number > 2), np.roll(entries.time, 1), -1)
        after = np.where(np.append(same, False), np.roll(entries.time, -1), INT_MAX)
        fits = wrong & (before <= right) & (right <= after) & ((entries.time < before) | (entries.time > after))
        for file, many in Counter(entries.file[fits].tolist()).items():
            self._seen[file].mistimed += many
        for file, many in Counter(entries.file[wrong].tolist()).items():
            self._seen[file].times += min(many, len(np.unique(entries.physical[wrong & (entries.file == file)])))

    def _entries(self, low: int, high: int) -> _Entries:
        """The entries that point into [low, high)."""
        import numpy as np

        parts: list[NDArray[np.int64]] = []
        for i, one in enumerate(self._files):
            if one.begin >= high or one.end < low:
                continue
            with ClosedIndexFile(self._disk, one.path, self._layout) as file:
                first, after = entries_before(file, one.keep, low), entries_before(file, one.keep, high)
                if after - first > MOST_ENTRIES:
                    edges = [int(file.entries(number, 1)[0]["physical_offset"]) for number in (first + 1, after)]
                    self._seen[i].strange.append([min(edges), max(edges)])
                    continue
                some = file.entries(first + 1, after - first)
                begin = file.header.begin_timestamp
            same = np.ones(len(some), dtype=np.int64)
            parts.append(
                np.stack(
                    [
                        some["physical_offset"].astype(np.int64),
                        some["key_hash"].astype(np.int64),
                        some["time_diff"].astype(np.int64),
                        np.arange(first + 1, after + 1),
                        same * i,
                        same * begin,
                    ]
                )
            )
        return _Entries(*(np.concatenate(parts, axis=1) if parts else np.zeros((6, 0), dtype=np.int64)))


def _rows(places: NDArray[np.int64], known: NDArray[np.int64]) -> list[list[int]]:
    """Places (ascending) in rows that have no known one between them; of many in a row the first and the last."""
    import numpy as np

    if not len(places):
        return []
    between = np.searchsorted(known, places)
    cuts = np.flatnonzero(np.diff(between)) + 1
    rows = np.split(places, cuts)
    return [row.tolist() if len(row) <= MOST_STRANGE else [int(row[0]), int(row[-1])] for row in rows]
