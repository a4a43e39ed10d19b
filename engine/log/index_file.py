"""One index file of an open store: keys are appended, chains are read. Format: engine/format/index_file.py.

Theory (Apache IndexFile): an entry goes after the last one and becomes the newest of its slot; the header follows
every entry. Many at once are the same: links come from a stable sort by slot, each slot is written once.

Invariants:
- The bytes after a batch are those that Apache leaves after putting each key. In particular a time difference is
  measured against the header before the entry changes it: the first entry of a later file against the end of the file
  before.
- Entries are in place, and counted, before a slot names them: a reader beside the writer sees whole chains.
- An invalid slot (below 1, above the entry's own) counts as an empty slot, as in Apache.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from engine.errors import InvalidArgument, StorageError
from engine.files.mapped_file import MappedFile
from engine.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    NO_ENTRY,
    POSITION_PREVIOUS,
    POSITION_TIME_DIFF,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    IndexLayout,
    decode_header,
    decode_slot,
    encode_slot,
    entry_dtype,
    time_diff,
)
from engine.format.numbers import INT_MAX
from engine.format.quantities import counted
from engine.log.index_chain import NumberedSlots, Runs
from engine.log.index_gather import GatheredSlots
from engine.log.index_reader import CHUNK, IndexReader
from engine.log.index_rewind import header_of, relinked

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.log.kernels.index import Linker, NewSlots

_Columns: TypeAlias = "tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]"
_BEGUN = 4 << 20
"""Bytes of entries or slots that are on their way to the device at once while more are written."""
_MANY = 512
"""Keys from which on the kernel is called."""
_WORTH_GATHERING = 1 << 16
"""Keys from which on slots are gathered in memory: as many touch each page of them, which costs more than all of it."""
_MOST_GATHERED = 64 << 20
"""Bytes of slots that are gathered at most (Apache's default: 20 MB)."""
_FEW = 12
"""Keys up to this number are put one by one: faster than making arrays of them."""


class IndexFile(IndexReader):
    """See the module. One writer, many readers; those that read by call `hold` and `release` it. Made by `create` or
    `open`.
    """

    __slots__ = ("_file", "_gathered", "_header", "_linker", "_undo", "_written_to")

    def __init__(self, file: MappedFile, layout: IndexLayout, header: IndexHeader) -> None:
        super().__init__(file.path, layout)
        self._file = file
        self._header = header
        self._undo: list[tuple[int, bytes]] = []
        self._linker: Linker | None = None
        self._gathered: GatheredSlots | None = None
        self._written_to = layout.entry_position(header.index_count)

    @classmethod
    def create(
        cls, disk: Disk, path: str, layout: IndexLayout, end_phy_offset: int = 0, end_timestamp: int = 0
    ) -> IndexFile:
        """Make a new file. The two ends are those of the file before it: copied into the header when above 0.

        Raises:
            DiskFull, StorageError: no file stays behind then. InvalidArgument: the name is no number.
        """
        file = MappedFile.create(disk, path, layout.file_size)
        file.advance(layout.file_size)
        offset, time = max(0, end_phy_offset), max(0, end_timestamp)
        header = IndexHeader(time, time, offset, offset)
        # Apache writes the counts with the first key only.
        try:
            file.write_at(0, replace(header, index_count=0).encode())
        except StorageError:
            file.destroy(0)
            raise
        return cls(file, layout, header)

    @classmethod
    def open(cls, disk: Disk, path: str, layout: IndexLayout, *, writable: bool = True) -> IndexFile:
        """Open an existing file.

        Raises:
            StorageError: it can't be, or it is shorter than the layout says.
        """
        file = MappedFile.open(disk, path, layout.file_size, writable=writable)
        return cls(file, layout, decode_header(file.view(0, HEADER_SIZE)))

    @property
    def header(self) -> IndexHeader:
        """The header of this moment."""
        return self._header

    # --- writing ----------------------------------------------------------------------------------------------------

    def gather_slots(self, keys: int, beside: Executor | None = None) -> None:
        """Have the slots in memory until the next `flush`: about so many keys are to come, and nobody reads before.

        Only of a file without entries, where that is worth it. A file whose writer was killed before the flush counts
        entries that no slot names: `verify` tells.

        Args:
            keys: how many, about.
            beside: one thread, which writes entries while those of the next put are linked. What fails there is raised
                by the next put, or the flush.
        """
        size = self.layout.slots * SLOT_SIZE
        worth_it = keys >= _WORTH_GATHERING and size <= _MOST_GATHERED
        if worth_it and self._header.index_count == 1 and self._linker_if_worth() is not None:
            with contextlib.suppress(OSError, MemoryError):  # without, it takes longer
                self._gathered = GatheredSlots(self._slots_anew(), beside)

    def put_keys(
        self, key_hash: NDArray[np.int32], physical_offset: NDArray[np.int64], store_timestamp: NDArray[np.int64]
    ) -> int:
        """Put keys in log order, as many as fit: columns of one length (hashes ≥ 0, bytes, ms).

        Returns:
            How many were put, from the front: fewer than given when the file is full now, or when there are very many.

        Raises:
            DiskFull, StorageError: none was put.
        """
        taken = min(len(key_hash), self.layout.entries - self._header.index_count)
        if taken <= 0:
            return 0
        if taken >= _MANY and (linker := self._linker_if_worth()) is not None:
            taken = min(taken, linker.MOST)
        columns = (key_hash[:taken], physical_offset[:taken], store_timestamp[:taken])
        if taken <= _FEW and self._gathered is None:
            self.put_few(*(column.tolist() for column in columns))
        else:
            self._put_many(*columns)
        return taken

    def has_room(self, keys: int) -> bool:
        """Whether so many keys go into it, and its blocks are there."""
        return self._header.index_count + keys <= self.layout.entries and self._file.is_allocated

    def put_few(self, key_hash: Sequence[int], physical_offset: Sequence[int], store_timestamp: Sequence[int]) -> int:
        """As `put_keys`, one by one: for the keys of one message."""
        header = self._header
        begin, begin_offset, used = header.begin_timestamp, header.begin_phy_offset, header.hash_slot_count
        number = header.index_count
        taken = min(len(key_hash), self.layout.entries - number)
        if taken <= 0:
            return 0
        self._file.ensure_allocated(0)
        self._write_back()
        self._write_slots()
        named: dict[int, int] = {}
        entries: list[bytes] = []
        for i in range(taken):
            slot = key_hash[i] % self.layout.slots
            previous = named.get(slot)
            if previous is None:
                previous = self._newest(slot, number)
                used += previous == NO_ENTRY
            diff = time_diff(store_timestamp[i], begin)
            entries.append(IndexEntry(key_hash[i], physical_offset[i], diff, previous).encode())
            named[slot] = number
            if number == 1:
                begin_offset, begin = physical_offset[i], store_timestamp[i]
            number += 1
        self._write(self.layout.entry_position(header.index_count), b"".join(entries))
        last = taken - 1
        end = IndexHeader(begin, store_timestamp[last], begin_offset, physical_offset[last], used, number)
        self._count_and_name(end, named.items())
        return taken

    def rewind(self, keep: int, *, previous: tuple[int, int] = (0, 0), end_timestamp: int | None = None) -> None:
        """Keep the entries 1 … `keep` only: the others become zeros, slots, links and header are rebuilt. Durable.

        The store time (ms) of the last kept entry's message may be given; else it is made from its whole seconds,
        rounded up, so that a query by time never passes it over.

        Args:
            keep: entries.
            previous: endPhyOffset and endTimestamp of the file before this one: an emptied file starts with them.
            end_timestamp: see above.

        Raises:
            InvalidArgument: it has fewer entries. DiskFull, StorageError: run it again.
        """
        if not 0 <= keep <= self.entry_count:
            raise InvalidArgument(
                f"cannot keep {keep} of {counted(self.entry_count, 'entry', 'entries')}", path=self.path
            )
        if self._gathered is not None:
            self._gathered.settle()
            self._gathered = None
        self._file.ensure_allocated(0)
        slots = NumberedSlots(self.layout.slots)
        for first, mended in relinked(self, keep, slots):
            self._write(self.layout.entry_position(first), mended.tobytes())
        header = header_of(self, keep, slots.used, previous, end_timestamp)
        self._file.invalidate_tail(self.layout.entry_position(keep + 1))
        self._file.advance(self.layout.file_size - self._file.wrote_position)
        self._write_header(header)
        self._write(HEADER_SIZE, slots.newest.astype(">i4").tobytes())
        self._file.sync()

    def relinked(self, keep: int) -> Iterator[tuple[int, int]]:
        """The entries among 1 … `keep` that `rewind` links anew, as (position in the file, bytes)."""
        for first, mended in relinked(self, keep, NumberedSlots(self.layout.slots)):
            yield self.layout.entry_position(first), len(mended) * ENTRY_SIZE

    def begin_writing(self) -> None:
        """Have the entries of so far on their way to the device, some MiB at a time: for who puts many, and flushes."""
        if self._gathered is None or not self._gathered.is_beside:
            self._begin_writing()

    def _begin_writing(self) -> None:
        end = self.layout.entry_position(self._header.index_count)
        if end - self._written_to >= _BEGUN:
            self._file.begin_writing(self._written_to, end)
            self._written_to = end

    def flush(self) -> bool:
        """Make everything durable; False (nothing done) after `shutdown`. Raises StorageError."""
        if not self._file.hold():
            return False
        try:
            self._write_slots()
            self._file.flush()
        finally:
            self._file.release()
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Count a reader; False after `shutdown` or `destroy`."""
        return self._file.hold()

    def release(self) -> None:
        """Count a reader less."""
        self._file.release()

    @property
    def available(self) -> bool:
        """Whether it can be held: it was not shut down or destroyed."""
        return self._file.available

    def shutdown(self) -> None:
        """Give the file back (when its last reader lets go); it stays on disk."""
        if self._gathered is not None:
            with contextlib.suppress(StorageError):  # a flush would have told
                self._gathered.settle()
        self._file.shutdown(0)

    def destroy(self, interval_forcibly_ms: int) -> bool:
        """Delete the file; False while a reader holds it: call again. Source: MappedFile#destroy."""
        return self._file.destroy(interval_forcibly_ms)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _read(self, position: int, length: int) -> memoryview:
        return self._file.view(position, length)

    def whole(self) -> memoryview | None:
        """As of the base; None also after `shutdown`."""
        return self._file.whole()

    def _write(self, position: int, data: bytes) -> None:
        self._file.write_at(position, data)

    def _write_header(self, header: IndexHeader) -> None:
        self._write(0, header.encode())
        self._header = header

    def _newest(self, slot: int, number: int) -> int:
        """What entry `number` is linked to in this slot."""
        stored = decode_slot(self._read(self.layout.slot_position(slot), SLOT_SIZE))
        return stored if NO_ENTRY < stored <= number else NO_ENTRY

    def _put_many(
        self, key_hash: NDArray[np.int32], physical_offset: NDArray[np.int64], store_timestamp: NDArray[np.int64]
    ) -> None:
        import numpy as np

        self._file.ensure_allocated(0)
        self._write_back()
        if self._gathered is not None:
            self._put_gathered(self._gathered, (key_hash, physical_offset, store_timestamp))
            return
        if len(key_hash) >= _MANY and (linker := self._linker_if_worth()) is not None:
            memory = self._file.writable(HEADER_SIZE, self.layout.slots * SLOT_SIZE)
            if memory is not None:
                try:
                    self._put_linked(linker, memory, key_hash, physical_offset, store_timestamp)
                except BaseException:
                    self._linker = None  # it knows slots of keys that are not there
                    raise
                return
        header, count = self._header, len(key_hash)
        first = header.index_count
        runs = Runs(key_hash % np.int32(self.layout.slots))
        before = self.slots()[runs.slot].astype(np.int32)
        own = runs.order[runs.head] + first
        before[(before < NO_ENTRY) | (before > own)] = NO_ENTRY
        begin, begin_offset = header.begin_timestamp, header.begin_phy_offset
        if first == 1:
            begin, begin_offset = int(store_timestamp[0]), int(physical_offset[0])
        records = np.empty(count, dtype=entry_dtype())
        records["key_hash"] = key_hash
        records["physical_offset"] = physical_offset
        records["previous"] = runs.previous(first, before)
        records["time_diff"] = ((store_timestamp - begin) // 1000).clip(0, INT_MAX) if begin > 0 else 0
        if first == 1:
            records["time_diff"][0] = time_diff(begin, header.begin_timestamp)
        self._file.write_at(self.layout.entry_position(first), memoryview(cast("bytes", records.view(np.uint8))))
        used = header.hash_slot_count + int(np.count_nonzero(before == NO_ENTRY))
        end, end_offset = int(store_timestamp[-1]), int(physical_offset[-1])
        now = IndexHeader(begin, end, begin_offset, end_offset, used, first + count)
        newest = runs.order[runs.tail] + first
        memory = self._file.writable(HEADER_SIZE, self.layout.slots * SLOT_SIZE)
        if memory is None:
            self._count_and_name(now, zip(runs.slot.tolist(), newest.tolist(), strict=True))
            return
        self._write_header(now)
        np.frombuffer(memory, dtype=">i4")[runs.slot] = newest

    def _linker_if_worth(self) -> Linker | None:
        """The kernel, where somebody has loaded the others already: alone it is not worth the time that takes."""
        if self._linker is None and "engine.log.kernels.walk" in sys.modules:
            from engine.log.kernels.index import Linker

            self._linker = Linker()
        return self._linker

    def _put_linked(
        self,
        linker: Linker,
        memory: memoryview,
        key_hash: NDArray[np.int32],
        physical_offset: NDArray[np.int64],
        store_timestamp: NDArray[np.int64],
    ) -> None:
        columns = (key_hash, physical_offset, store_timestamp)
        begin = self._begin_with(store_timestamp)
        self._put_entries(columns, begin, *linker.link(memory, columns, self._header.index_count, begin))
        linker.name(memory)

    def _put_gathered(self, gathered: GatheredSlots, columns: _Columns) -> None:
        begin = self._begin_with(columns[2])
        entries, fresh = gathered.link(columns, self._header.index_count, begin, self._slots_anew)
        before, header = self._header, self._header_with(columns, begin, fresh)

        def write() -> None:
            self._write_entries(before, header, entries)
            if gathered.is_beside:
                self._begin_writing()

        def failed() -> None:
            self._header = before

        self._header = header
        gathered.write(write, failed)

    def _slots_anew(self) -> NewSlots:
        """The slots of the entries that are counted, in memory."""
        import numpy as np

        from engine.log.kernels.index import NewSlots

        slots = NewSlots(self.layout.slots)
        newest = np.frombuffer(slots.memory, dtype=">i4")
        for first in range(1, self.entry_count + 1, CHUNK):
            hashes = self.entries(first, min(CHUNK, self.entry_count + 1 - first))["key_hash"]
            newest[hashes % np.int32(self.layout.slots)] = np.arange(first, first + len(hashes))  # the last one stays
        return slots

    def _write_slots(self) -> None:
        """Write the slots that are in memory to the file, if they are, each piece on its way to the device at once."""
        if self._gathered is None:
            return
        memory = self._gathered.slots(self._slots_anew).memory
        for at in range(0, len(memory), _BEGUN):
            piece = memory[at : at + _BEGUN]
            self._file.write_many_at(HEADER_SIZE + at, piece)
            self._file.begin_writing(HEADER_SIZE + at, HEADER_SIZE + at + len(piece))
        self._gathered = None

    def _begin_with(self, store_timestamp: NDArray[np.int64]) -> int:
        """What time differences count from (ms), now that entries with these store times are to come."""
        return int(store_timestamp[0]) if self._header.index_count == 1 else self._header.begin_timestamp

    def _put_entries(
        self,
        columns: _Columns,
        begin: int,
        entries: NDArray[np.uint8],
        fresh: int,
    ) -> None:
        """Write linked entries, and the header that counts them."""
        header = self._header_with(columns, begin, fresh)
        self._write_entries(self._header, header, entries)
        self._header = header

    def _header_with(self, columns: _Columns, begin: int, fresh: int) -> IndexHeader:
        """The header that counts more entries, of which so many are the first of their slot."""
        key_hash, physical_offset, store_timestamp = columns
        header = self._header
        begin_offset = int(physical_offset[0]) if header.index_count == 1 else header.begin_phy_offset
        end, end_offset = int(store_timestamp[-1]), int(physical_offset[-1])
        used, count = header.hash_slot_count + fresh, header.index_count + len(key_hash)
        return IndexHeader(begin, end, begin_offset, end_offset, used, count)

    def _write_entries(self, before: IndexHeader, header: IndexHeader, entries: NDArray[np.uint8]) -> None:
        """Write linked entries that one header counts and the one before doesn't, then that header."""
        first = before.index_count
        if first == 1:
            diff = time_diff(header.begin_timestamp, before.begin_timestamp)
            entries[POSITION_TIME_DIFF:POSITION_PREVIOUS] = list(diff.to_bytes(4, "big"))
        self._file.write_many_at(self.layout.entry_position(first), memoryview(cast("bytes", entries)))
        self._write(0, header.encode())

    def _count_and_name(self, header: IndexHeader, newest: Iterable[tuple[int, int]]) -> None:
        """Write the header that counts the new entries, then (slot, newest entry): all of it, or nothing of it.

        By channel each of these writes can meet a full disk: then all is written back, at the latest by the next put.
        """
        before = self._header
        self._undo.append((0, bytes(self._read(0, HEADER_SIZE))))
        try:
            self._write_header(header)
            for slot, number in newest:
                place = self.layout.slot_position(slot)
                self._undo.append((place, bytes(self._read(place, SLOT_SIZE))))
                self._write(place, encode_slot(number))
        except StorageError:
            self._header = before
            with contextlib.suppress(StorageError):
                self._write_back()
            raise
        self._undo.clear()

    def _write_back(self) -> None:
        """Undo what a put that failed has written."""
        while self._undo:
            self._write(*self._undo[-1])
            self._undo.pop()
