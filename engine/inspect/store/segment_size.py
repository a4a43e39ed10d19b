"""How long a commit log's files are when no setting says so: by their lengths and names, also where some of them
were cut short or made longer.

Each length speaks for itself, and so do the distances of the names. The one wins that most names are multiples of; then
the one that most speaks for: files of that length, those of them that end as a whole file does (in zeros or with a
blank record: Apache keeps 8 bytes free at each file's end), and files that begin where another of that length ends.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format.message import blank_length
from engine.format.names import segment_offset
from engine.format.record import BLANK_SIZE
from engine.log.scan import Blank, Scanner
from engine.log.source import ClosedLog, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.entry import Entry

LEAST, MOST = 4096, (1 << 31) - 1
"""mappedFileSizeCommitLog is a Java int; files of less than a page are none of a broker's."""
_TAIL = 2 * BLANK_SIZE


def segment_size(disk: Disk, entries: Iterable[Entry]) -> int | None:
    """The length (bytes); None where nothing tells: no file has a segment's name, or just one that was cut."""
    evidence = _Said(disk, entries)
    return max(evidence.candidates, key=evidence.key, default=None)


def settled_segment_size(disk: Disk, config: StoreConfig, directories: Iterable[str]) -> int:
    """The length of the log's segments (bytes): as a setting gives it, else as the files in `directories` have it."""
    size = None
    if "mapped_file_size_commit_log" not in config.given:
        size = segment_size(disk, (entry for path in directories for entry in disk.scandir(path)))
    return config.mapped_file_size_commit_log if size is None else size


def contradicts(disk: Disk, entries: Iterable[Entry], size: int) -> int | None:
    """The length that the files have, where that is another than a setting's `size` beyond doubt."""
    evidence = _Said(disk, entries)
    likely = max(evidence.candidates, key=evidence.key, default=None)
    if likely is None or likely == size or evidence.key(likely)[:2] <= evidence.key(size)[:2]:
        return None
    return likely if evidence.is_sure_of(likely) and evidence.follow(likely) >= evidence.follow(size) else None


class _Said:
    """What names and lengths say."""

    def __init__(self, disk: Disk, entries: Iterable[Entry]) -> None:
        named = [(offset, e) for e in entries if e.is_file and (offset := segment_offset(e.name)) is not None]
        self.lengths = Counter(entry.size for _, entry in named if entry.size)
        self._offsets = {offset for offset, _ in named}
        if len(self.lengths) == 1 and len(named) > 1:  # as ever: nothing needs to be read
            self._whole = self.lengths
        else:
            alone = self.lengths.total() == 1  # nothing else tells its length: it is worth reading
            self._whole = Counter(
                e.size
                for offset, e in named
                if e.size and (not _ends_in_data(disk, e) or (alone and _ends_in_blank(disk, e, offset)))
            )

    @property
    def candidates(self) -> set[int]:
        """Lengths that files have, or that their names allow."""
        steps = [two - one for one, two in pairwise(sorted(self._offsets))]
        names = {*steps, math.gcd(*self._offsets)}
        cut = self.lengths.total() == 1 and not self._whole
        sizes = names | (set() if cut else {*self.lengths})
        return {size for size in sizes if LEAST <= size <= MOST}

    def key(self, size: int) -> tuple[int, int, int]:
        """How much speaks for a length."""
        agree = sum(1 for offset in self._offsets if offset % size == 0)
        return agree, self.lengths[size] + self._whole[size] + self.follow(size), size

    def follow(self, size: int) -> int:
        """How many files begin where another of this length would end."""
        return sum(1 for offset in self._offsets if offset + size in self._offsets)

    def is_sure_of(self, size: int) -> bool:
        """Whether most files have this length, more than one of them, and most of those end as whole ones."""
        most = 2 * self.lengths[size] > self.lengths.total() and 2 * self._whole[size] > self.lengths[size]
        return most and self.lengths[size] > 1


def _ends_in_data(disk: Disk, entry: Entry) -> bool:
    """Whether a file ends in the middle of something: neither in zeros, nor in a blank record that ends with it."""
    try:
        reader = disk.open_reader(entry.path)
        try:
            tail = bytes(reader.read(entry.size - _TAIL, _TAIL))
        finally:
            reader.close()
    except StorageError:
        return False
    blank = any(blank_length(tail[at:]) == len(tail) - at for at in range(len(tail) - BLANK_SIZE + 1))
    return any(tail[-BLANK_SIZE:]) and not blank


def _ends_in_blank(disk: Disk, entry: Entry, offset: int) -> bool:
    """Whether the chain of records leads to a blank record that ends with the file, whatever lies after its head."""
    with ClosedLog(disk, [Segment(offset, entry.size, entry.path)]) as log:
        return any(isinstance(event, Blank) for event in Scanner(log).scan(offset))
