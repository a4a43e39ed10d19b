"""Reading an index file: its chains, its entries, and whether they agree. Writes nothing.

Theory (Apache IndexFile): each key's hash selects a slot; the slot names the newest entry of its chain, each entry the
one before it. Only the hash is stored, so who asks must compare topic and key with the message itself.

In a sound file a link always leads to a smaller number. So a walk that follows only such links ends; Apache follows
any link and can run in a circle. A link that leads elsewhere ends the walk here and is a finding.

Two kinds read the same way: IndexFile (index_file.py, of an open store) and ClosedIndexFile, which reads by position,
so that a bad sector is a StorageError.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.errors import FormatError, StorageError, WrongFileSize
from engine.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    NO_ENTRY,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    decode_header,
    entry_dtype,
    time_diff,
    unpack_entry,
    unpack_slot,
)
from engine.format.numbers import LONG_MAX
from engine.log.index_chain import NumberedSlots, link
from engine.log.natives import OFFSETS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk

CHUNK = 1 << 20
"""Entries that are looked at together: some 100 MB of memory."""

_SECOND = 1000
_made = tuple.__new__
"""As in engine.log.commitlog."""


class IndexFault(enum.Enum):
    """What does not agree in an index file."""

    HASH = "negative key hash"
    OFFSET = "physical offset lower than in the previous entry"
    TIME = "negative time difference"
    PREVIOUS = "link to another entry than the previous one of its slot"
    SLOT = "slot does not name its newest entry"
    HEADER = "header does not match the entries"


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """The result of `verify`.

    Attributes:
        sound: entries 1 … sound agree with each other and may be kept.
        entry: number of the first one that does not, None when all that the header counts do.
        fault: the first thing that is wrong, None when nothing is. With `entry` None it is in slots or header.
    """

    sound: int
    entry: int | None = None
    fault: IndexFault | None = None


@dataclass(frozen=True, slots=True)
class IndexFaults:
    """Faults of one kind, and their number; `entry`: the first one concerned, None: in slots or header."""

    fault: IndexFault
    entry: int | None
    count: int


class IndexMatches(NamedTuple):
    """The result of a `query`: physical offsets, newest first, and what was wrong with the chain, if anything."""

    offsets: tuple[int, ...]
    finding: FormatError | None = None


class _Walk(NamedTuple):
    """How far a walk over a chain has come.

    Attributes:
        number: of the entry that is next; it is below `above`, −1: that is the newest of the slot, still to be read.
        place: position of what named it: the slot, or the entry before.
        offsets: physical offsets that count.
    """

    number: int
    above: int
    place: int
    offsets: list[int]


class IndexReader(ABC):
    """See the module. Base of the two kinds of file: each says how bytes are read.

    Attributes:
        path: the file.
        layout: where things lie in it.
    """

    __slots__ = ("_entries_at", "_slots", "layout", "path")

    def __init__(self, path: str, layout: IndexLayout) -> None:
        self.path = path
        self.layout = layout
        self._slots = layout.slots
        self._entries_at = layout.entries_position

    @abstractmethod
    def _read(self, position: int, length: int) -> memoryview:
        """Bytes of the file. Raises StorageError."""

    def whole(self) -> memoryview | None:
        """All bytes of the file, where they are in memory: they stay readable. None: it is read piece by piece."""
        return None

    @property
    def header(self) -> IndexHeader:
        """The header of this moment."""
        return decode_header(self._read(0, HEADER_SIZE))

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more. Source: IndexFile#isWriteFull."""
        return self.header.index_count >= self.layout.entries

    @property
    def entry_count(self) -> int:
        """Entries in it, by its header; they have the numbers 1 … entry_count."""
        return min(self.header.index_count, self.layout.entries) - 1

    def entries(self, first: int = 1, count: int | None = None) -> NDArray[np.void]:
        """Entries from number `first` on (default: all): entry_dtype()[n], read-only, on a map without a copy."""
        import numpy as np

        available = self.entry_count - first + 1
        wanted = max(0, available if count is None else min(count, available))
        buffer = self._read(self.layout.entry_position(first), wanted * ENTRY_SIZE) if wanted else b""
        return np.frombuffer(buffer, dtype=entry_dtype())

    def slots(self, first: int = 0, count: int | None = None) -> NDArray[np.int32]:
        """Slots from number `first` on (default: all): big-endian int32[n], read-only, on a map without a copy."""
        import numpy as np

        wanted = self.layout.slots - first if count is None else min(count, self.layout.slots - first)
        return np.frombuffer(self._read(self.layout.slot_position(first), wanted * SLOT_SIZE), dtype=">i4")

    def entries_at_end(self) -> int:
        """How many entries, the newest ones, have the header's endPhyOffset: keys of one message."""
        import numpy as np

        end = self.header.end_phy_offset
        count = self.entry_count
        entries_at_end = 0
        for stop in range(count, 0, -1024):
            first = max(1, stop - 1023)
            offsets = self.entries(first, stop - first + 1)["physical_offset"]
            others = np.flatnonzero(offsets != end)
            if len(others):
                return entries_at_end + len(offsets) - 1 - int(others[-1])
            entries_at_end += len(offsets)
        return entries_at_end

    def query(
        self,
        key_hash: int,
        begin: int,
        end: int,
        max_num: int,
        *,
        accept: Callable[[int], bool] | None = None,
        whole: memoryview | None = None,
    ) -> IndexMatches:
        """Up to `max_num` physical offsets of messages with this key hash stored in [begin, end] (ms), newest first.

        Whole seconds are stored, so a message up to 999 ms older than `begin` may be among them. The walk ends at the
        first entry that is older. `accept`: decides which offsets count (default: all). `whole`: its bytes, for who has
        them already.

        Source: IndexFile#selectPhyOffset; the time of entry 1 is the header's, as its own is measured against the file
        before.
        """
        whole = self.whole() if whole is None else whole
        walk = None if whole is None else OFFSETS.after(1)
        number, above, place = NO_ENTRY, -1, HEADER_SIZE + key_hash % self._slots * SLOT_SIZE
        offsets: list[int] = []
        while walk is not None and 0 <= begin <= end <= LONG_MAX and max_num > len(offsets):
            step = walk(
                whole, key_hash, self._slots, self.layout.entries, begin, end,
                min(max_num - len(offsets), CHUNK), number, above, None,
            )  # fmt: skip
            if step is None or (not step[2] and step[0] != NO_ENTRY):  # the plain way says what is wrong there
                break
            number, above = step[0], step[1]
            if step[2]:
                place = self._entries_at + above * ENTRY_SIZE
            offsets += step[3] if accept is None else [offset for offset in step[3] if accept(offset)]
            if number == NO_ENTRY or len(offsets) >= max_num:
                return _made(IndexMatches, (tuple(offsets), None))
        return self._walked(key_hash, begin, end, max_num, whole, accept, _Walk(number, above, place, offsets))

    def _walked(
        self,
        key_hash: int,
        begin: int,
        end: int,
        max_num: int,
        whole: memoryview | None,
        accept: Callable[[int], bool] | None,
        walked: _Walk,
    ) -> IndexMatches:
        """As `query`, an entry at a time, from where somebody has walked."""
        number, above, place, offsets = walked
        first_entry = self._entries_at
        if above < 0:
            (number,) = unpack_slot(self._read(place, SLOT_SIZE)) if whole is None else unpack_slot(whole, place)
        header = self.header  # read after the slot: a writer counts an entry before it names it
        if above < 0:
            above = self._above(header)
        if number == NO_ENTRY or max_num <= 0:
            return IndexMatches(tuple(offsets))
        slot = HEADER_SIZE + key_hash % self._slots * SLOT_SIZE
        while NO_ENTRY < number < above:
            place = first_entry + number * ENTRY_SIZE
            entry_hash, offset, diff, previous = (
                unpack_entry(self._read(place, ENTRY_SIZE)) if whole is None else unpack_entry(whole, place)
            )
            if diff < 0:
                return IndexMatches(tuple(offsets), self._finding(IndexFault.TIME, place))
            seconds = 0 if number == 1 else diff
            time = header.begin_timestamp + seconds * _SECOND
            newest = time if number == 1 else time + _SECOND - 1
            if entry_hash == key_hash and newest >= begin and time <= end:
                if accept is None or accept(offset):
                    offsets.append(offset)
                if len(offsets) >= max_num:
                    return IndexMatches(tuple(offsets))
            if previous == NO_ENTRY or newest < begin:
                return IndexMatches(tuple(offsets))
            above, number = number, previous
        fault = IndexFault.SLOT if place == slot else IndexFault.PREVIOUS
        return IndexMatches(tuple(offsets), self._finding(fault, place))

    def _above(self, header: IndexHeader) -> int:
        """The number that every number in a slot is below."""
        return min(header.index_count, self.layout.entries)

    def verify(self) -> IndexCheck:
        """Whether everything in the file agrees; how much does. Bounded in memory: some 100 MB and 4 bytes a slot.

        Apache's files do: offsets never decrease, each link leads to the entry before in the slot, each slot names its
        newest entry, the header counts both and has the first and last entry's offset and time.

        Raises:
            StorageError: the system can't read it.
        """
        count = self.entry_count
        first = next(self.faults(), None)
        if first is None:
            return IndexCheck(count)
        return IndexCheck(count if first.entry is None else first.entry - 1, first.entry, first.fault)

    def faults(self, *, growing: bool = False) -> Iterator[IndexFaults]:
        """Everything that does not agree, by kind and piece of the file; the first one is the first in the file.

        Args:
            growing: another process puts keys meanwhile: only the entries that are there now are looked at.

        Raises:
            StorageError: the system can't read it.
        """
        header = self.header
        slots = NumberedSlots(self.layout.slots)
        count = min(header.index_count, self.layout.entries) - 1
        last_offset = first_offset = -1
        last_diff = 0
        for first in range(1, count + 1, CHUNK):
            entries = self.entries(first, min(CHUNK, count - first + 1))
            offsets = entries["physical_offset"].astype("i8")
            for at, fault, many in _faults(entries, offsets, last_offset, link(slots, entries["key_hash"], first)):
                yield IndexFaults(fault, first + at, many)
            if first == 1:
                first_offset = int(offsets[0])
            last_offset, last_diff = int(offsets[-1]), int(entries["time_diff"][-1])
        if growing:
            return
        for slot in range(0, self.layout.slots, CHUNK):
            stored = self.slots(slot, CHUNK)
            wrong = int((stored != slots.newest[slot : slot + len(stored)]).sum())
            if wrong:
                yield IndexFaults(IndexFault.SLOT, None, wrong)
        if (
            header.index_count > self.layout.entries
            or header.hash_slot_count != slots.used
            or (count and not _fits(header, count, first_offset, last_offset, last_diff))
        ):
            yield IndexFaults(IndexFault.HEADER, None, 1)

    def _finding(self, fault: IndexFault, place: int) -> FormatError:
        return FormatError(fault.value, path=self.path, offset=place, hint="run rstore check")


class ClosedIndexFile(IndexReader):
    """An index file of a closed store, or of one that another process writes: read by position. A context manager."""

    __slots__ = ("_file",)

    def __init__(self, disk: Disk, path: str, layout: IndexLayout) -> None:
        """Open it.

        Raises:
            WrongFileSize: its length is not the layout's. StorageError.
        """
        super().__init__(path, layout)
        self._file = disk.open_reader(path)
        size = self._file.size()
        if size != layout.file_size:
            self._file.close()
            raise WrongFileSize(
                f"an index file with {layout.slots} slots and {layout.entries} entries has {layout.file_size} bytes, "
                f"this one has {size}",
                path=path,
                hint="check maxHashSlotNum and maxIndexNum in the broker's configuration",
            )

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def __enter__(self) -> ClosedIndexFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _above(self, header: IndexHeader) -> int:
        # A count that is damaged must hide no key: an entry that a slot names was there when the slot was written, and
        # who asks compares with the message.
        return self.layout.entries

    def _read(self, position: int, length: int) -> memoryview:
        buffer = self._file.read(position, length)
        if len(buffer) < length:
            raise StorageError("unexpected end of the file", path=self.path, offset=position + len(buffer))
        return buffer


def _faults(
    entries: NDArray[np.void], offsets: NDArray[np.int64], before: int, previous: NDArray[np.int32]
) -> list[tuple[int, IndexFault, int]]:
    """Each kind that is there: (place in the array of its first, kind, how many), by place.

    `before`: offset of the entry before.
    """
    import numpy as np

    wrong = {
        IndexFault.HASH: entries["key_hash"] < 0,
        IndexFault.OFFSET: np.diff(offsets, prepend=max(before, 0)) < 0,
        IndexFault.TIME: entries["time_diff"] < 0,
        IndexFault.PREVIOUS: entries["previous"] != previous,
    }
    places = [(int(np.argmax(mask)), fault, int(mask.sum())) for fault, mask in wrong.items() if mask.any()]
    return sorted(places, key=lambda one: one[0])


def _fits(header: IndexHeader, count: int, first_offset: int, last_offset: int, last_diff: int) -> bool:
    """Whether a header has its first and last entry's offsets and times."""
    begin, end = header.begin_timestamp, header.end_timestamp
    times = end == begin if count == 1 else time_diff(end, begin) == last_diff
    return times and (header.begin_phy_offset, header.end_phy_offset) == (first_offset, last_offset)
