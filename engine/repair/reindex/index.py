"""Index files, built aside from what the log gives: by one writer, or each file by a writer of its own.

A file takes as many keys as it has room for, in log order. So who knows how many keys there are in all knows which of
them go into which file (`shares`), and files can be written apart (`build_share`), byte by byte what one writer would
have written: of the file before, a file says only where and when that ended.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import DiskFull
from engine.format import names
from engine.format.quantities import counted
from engine.inspect.store.index_files import entries_before
from engine.log.index_file import IndexFile
from engine.log.index_reader import ClosedIndexFile
from engine.log.index_service import IndexService
from engine.log.scan import RecordBatch
from engine.repair.trees import same_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.format.index_file import IndexLayout
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import Keys
    from engine.log.scan import Scanner


class IndexBuilder:
    """Builds the index below `into`; entries of messages before `begin` are taken over while their files are sound."""

    def __init__(self, disk: Disk, files: StoreFiles, into: str, begin: int) -> None:
        self._disk = disk
        self._files = files
        self._begin = begin
        self._directory = os.path.join(into, names.INDEX)
        self._service = IndexService(disk, self._directory, files.index_layout)
        self.keys = 0
        self.problems: list[str] = []

    def take_over(self, scanner: Scanner) -> None:
        """Copy the files that begin before the place where rebuilding does; the last one as far as it lies before."""
        self._disk.mkdirs(self._directory)
        layout, kept = self._files.index_layout, []
        previous = (0, 0)
        for index_file in self._files.index:
            if not index_file.whole:
                break
            with ClosedIndexFile(self._disk, index_file.path, layout) as old:
                if old.entry_count == 0 or old.header.begin_phy_offset >= self._begin:
                    break
                check = old.verify()
                keep = entries_before(old, check.sound, self._begin)
                last = int(old.entries(keep, 1)[0]["physical_offset"]) if keep else -1
                whole = keep == old.entry_count and check.fault is None
                end_timestamp = old.header.end_timestamp
            if check.fault is not None and keep == check.sound:
                self.problems.append(
                    f"index/{index_file.name}: {check.fault.value}; its keys of messages before the log start are lost"
                )
                break
            if not keep:
                break
            target = os.path.join(self._directory, index_file.name)
            self._disk.copy_file(index_file.path, target)
            kept.append(index_file.name)
            if not whole:
                file = IndexFile.open(self._disk, target, layout)
                try:
                    file.rewind(keep, previous=previous, end_timestamp=_store_timestamp(scanner, last))
                finally:
                    file.shutdown()
                break
            previous = (last, end_timestamp)
        self._service.open(kept)

    def put(self, keys: Keys) -> None:
        """Put the keys of a batch, in log order.

        Raises:
            DiskFull: they take more files than there is space for; nothing of it was written. StorageError.
        """
        demand_space(self._disk, self._directory, self._files.index_layout, len(keys))
        self._service.expect_keys(len(keys))
        self.keys += self._service.put(keys)
        self._service.begin_writing()

    def close(self) -> None:
        """Make everything durable."""
        self._service.shutdown()
        self._disk.sync_dir(self._directory)

    def names(self) -> list[str]:
        """The files that were built, by name."""
        return sorted(self._disk.listdir(self._directory))

    def changed(self) -> bool:
        """Whether the files differ from the store's, names aside."""
        old = [index_file.path for index_file in self._files.index]
        new = [os.path.join(self._directory, name) for name in self.names()]
        if len(old) != len(new):
            return True
        return not all(same_file(self._disk, a, b) for a, b in zip(old, new, strict=True))


@dataclass(frozen=True, slots=True)
class IndexShare:
    """One index file, and the keys that it gets: [first, end) of all that the log gives, by number in log order.

    `place`: its number among the files, from 0. `begun`: the file is there, with older keys before these. `before`:
    physical offset and store time (ms) that the file before ended with; None: those of key `first` - 1.
    """

    name: str
    place: int
    first: int
    end: int
    begun: bool
    before: tuple[int, int] | None


def shares(disk: Disk, directory: str, layout: IndexLayout, keys: int) -> list[IndexShare]:
    """How `keys` keys are dealt out to index files after those that `take_over` left in `directory`.

    Raises:
        DiskFull: there is no space for them. StorageError.
    """
    demand_space(disk, directory, layout, keys)
    kept = sorted(disk.listdir(directory))
    index_shares: list[IndexShare] = []
    before: tuple[int, int] | None = (0, 0)
    number = int(names.index_name(disk.now_ms()))
    first = 0
    if kept and keys:
        number = max(number, int(kept[-1]) + 1)
        with ClosedIndexFile(disk, os.path.join(directory, kept[-1]), layout) as last:
            header = last.header
        before = (header.end_phy_offset, header.end_timestamp)
        first = min(keys, layout.entries - header.index_count)
        if first > 0:
            index_shares.append(IndexShare(kept[-1], len(kept) - 1, 0, first, True, None))
            before = None
    room = layout.entries - 1
    while first < keys:
        end = min(keys, first + room)
        place = index_shares[-1].place + 1 if index_shares else len(kept)
        index_shares.append(IndexShare(names.index_name_of(number), place, first, end, False, before))
        first, before, number = end, None, number + 1
    return index_shares


def build_share(
    disk: Disk, path: str, layout: IndexLayout, share: IndexShare, before: tuple[int, int], keys: Iterable[Keys]
) -> None:
    """Write one file at `path`, durably.

    Args:
        disk: how files are reached.
        path: of the file; with `begun` it is there.
        layout: settings maxHashSlotNum and maxIndexNum.
        share: which file.
        before: what the file before ended with: physical offset, store time (ms).
        keys: those of the share, in log order, in pieces.

    Raises:
        DiskFull, StorageError.
    """
    file = IndexFile.open(disk, path, layout) if share.begun else IndexFile.create(disk, path, layout, *before)
    file.gather_slots(share.end - share.first)
    try:
        for some in keys:
            put = 0
            while put < len(some):
                put += file.put_keys(some.key_hash[put:], some.physical_offset[put:], some.store_timestamp[put:])
            file.begin_writing()
        file.flush()
    finally:
        file.shutdown()


def demand_space(disk: Disk, directory: str, layout: IndexLayout, keys: int) -> None:
    """Raises DiskFull: so many keys take more files than there is space for."""
    needed = keys // layout.entries * layout.file_size  # the file that is open takes the rest
    usable = disk.writable(directory)
    if needed > usable:
        raise DiskFull(
            f"the next {counted(keys, 'key')} take {needed} bytes of index files, {usable} are usable",
            path=directory,
            hint=f"is maxIndexNum = {layout.entries} the broker's?",
        )


def _store_timestamp(scanner: Scanner, offset: int) -> int | None:
    """Store time (ms) of the record at a physical offset, None when the log has none there."""
    if offset < 0:
        return None
    for event in scanner.scan(offset, offset + 1):
        if isinstance(event, RecordBatch):
            return event.first_store_timestamp
    return None
