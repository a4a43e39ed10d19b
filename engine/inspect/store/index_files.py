"""Index files as they lie there: which of them stay, as far as their entries agree, and in which order.

Names ascend in the order of the log (Apache finds files by their names' order). Where what files hold says otherwise,
they were swapped, renamed or copied: as many stay as are in order, the others are made anew from the log.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format.index_file import IndexHeader, time_diff
from engine.inspect.store.index_torn import first_torn
from engine.log.index_reader import ClosedIndexFile, IndexCheck, IndexFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.files.disk import Disk
    from engine.inspect.store.survey import IndexName, StoreFiles

VERIFIED_ANYWAY = 16 << 20
"""Bytes of index files, the newest ones, that are verified entry by entry in any case: a moment's work."""
MOST_SORTED = 2000
"""Files out of order that are looked at together; of more the first ones in order stay."""


@dataclass(slots=True)
class KeptIndexFile:
    """A file that stays: entries kept, and the physical offsets of its first and last kept entry."""

    name: str
    path: str
    had: int
    keep: int
    begin: int
    end: int
    end_timestamp: int
    rewind: bool


class IndexFiles:
    """Judges the index files of one store.

    Args:
        disk: how files are reached.
        files: the store.
        stored_at: store time (ms) of the sound record at a physical offset, None without one.
        abnormal: the store was not closed: files newer than the checkpoint may be torn.
        whole: verify every file entry by entry.

    Attributes:
        removed: names of files that are deleted.
        findings: why.
    """

    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        stored_at: Callable[[int], int | None],
        *,
        abnormal: bool,
        whole: bool,
    ) -> None:
        self._disk = disk
        self._files = files
        self._layout = files.index_layout
        self._log_min = files.log[0].offset if files.log else 0
        self._stored_at = stored_at
        self._abnormal = abnormal
        self._whole = whole
        self.removed: list[str] = []
        self.findings: list[str] = []

    def judge(self) -> list[KeptIndexFile]:
        """The files that stay, as far as their entries agree."""
        kept: list[KeptIndexFile] = []
        present = [f for f in self._files.index if self._is_whole(f)]
        size = self._layout.file_size
        for i, name in enumerate(present):
            with ClosedIndexFile(self._disk, name.path, self._layout) as file:
                header = file.header
                check = self._check(file, header, small=(len(present) - i) * size <= VERIFIED_ANYWAY)
                last = i == len(present) - 1
                if check.fault is not None:
                    self.findings.append(f"index/{name.name}: {check.fault.value}")
                # A header with wrong fields can't be distinguished from a right one: that file is rebuilt as a whole.
                lost = check.sound == 0 or check.fault is IndexFault.HEADER or (check.entry is not None and not last)
                if check.fault is not None and lost:
                    self.removed.append(name.name)
                    continue
                kept.append(_keep(file, name, header, check))
        return self._in_order(kept)

    def verify(self, kept: KeptIndexFile) -> bool:
        """Whether all of a file agrees."""
        with ClosedIndexFile(self._disk, kept.path, self._layout) as file:
            return file.verify().fault is None

    def drop(self, kept: KeptIndexFile, why: str) -> None:
        """Have a file made anew."""
        self.removed.append(kept.name)
        self.findings.append(f"index/{kept.name}: {why}")

    def _is_whole(self, name: IndexName) -> bool:
        if not name.whole:
            self.findings.append(f"index/{name.name}: {name.size} bytes instead of {self._layout.file_size}")
            self.removed.append(name.name)
        return name.whole

    def _check(self, file: ClosedIndexFile, header: IndexHeader, *, small: bool) -> IndexCheck:
        """All of a file that a crash may have torn, or that costs little; of the others what a glance tells."""
        suspect = self._abnormal and header.end_timestamp > self._files.checkpoint.index_msg_timestamp
        if suspect or self._whole or small or not self._looks_right(file, header):
            check = file.verify()
            torn = first_torn(file, check.sound, self._log_min, self._stored_at) if suspect else None
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
        begin, end = header.begin_timestamp, header.end_timestamp
        if count > 1 and time_diff(end, begin) != int(last["time_diff"]):
            return False
        return (int(first["physical_offset"]), int(last["physical_offset"])) == (
            header.begin_phy_offset,
            header.end_phy_offset,
        )

    def _in_order(self, kept: list[KeptIndexFile]) -> list[KeptIndexFile]:
        """Those of the files that stand in the order of the log: the most entries that can stay together."""
        full = [one for one in kept if one.keep]
        if all(b.begin >= a.end for a, b in pairwise(full)):
            return kept
        stay = {id(one) for one in _longest(full)}
        for one in full:
            if id(one) not in stay:
                self.drop(one, f"its entries ({one.begin} to {one.end}) are out of order with the other files")
        return [one for one in kept if not one.keep or id(one) in stay]


def _longest(files: list[KeptIndexFile]) -> list[KeptIndexFile]:
    """Of files by name, those with the most entries of which each begins where the one before it ends, or after."""
    if len(files) > MOST_SORTED:
        chosen: list[KeptIndexFile] = []
        for one in files:
            if not chosen or one.begin >= chosen[-1].end:
                chosen.append(one)
        return chosen
    best: list[tuple[int, int | None]] = []  # entries up to each file with it, and the file before it
    for i, one in enumerate(files):
        before = max((j for j in range(i) if one.begin >= files[j].end), key=lambda j: best[j][0], default=None)
        best.append((one.keep + (0 if before is None else best[before][0]), before))
    at: int | None = max(range(len(files)), key=lambda i: best[i][0])
    longest: list[KeptIndexFile] = []
    while at is not None:
        longest.append(files[at])
        at = best[at][1]
    return longest[::-1]


def _keep(file: ClosedIndexFile, name: IndexName, header: IndexHeader, check: IndexCheck) -> KeptIndexFile:
    count = check.sound
    begin = int(file.entries(1, 1)[0]["physical_offset"]) if count else header.begin_phy_offset
    end = int(file.entries(count, 1)[0]["physical_offset"]) if count else header.end_phy_offset
    rewind = check.fault is not None
    return KeptIndexFile(name.name, name.path, file.entry_count, count, begin, end, header.end_timestamp, rewind)


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
