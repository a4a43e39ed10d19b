"""Which files a batch queue has, and which it should have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.written import is_zero
from engine.format.batch_unit import valid_units

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.repair.recover.batch_disk import HeldFile, HeldQueue


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The files of one queue; a file after its last unit may be there, as long as it holds nothing."""

    held: HeldQueue

    def are_whole(self, end: int) -> bool:
        """Whether they are what a queue has whose last unit is the one before `end`, as far as lengths and names go."""
        held = self.held
        at = held.first
        for file in held.files:
            if file.size != held.file_size or file.first != at or file.first > end:
                return False
            at += held.file_units
        return at >= end or not held.files

    def whole_before(self, disk: Disk, first: int, begin: int) -> int:
        """Units in the files right before the one that begins with the unit `first`, as far as all of them are units
        of records before the log's first byte, `begin`. Raises StorageError.
        """
        held = self.held
        by_first = {file.first: file for file in held.files}
        low = first
        while (file := by_first.get(low - held.file_units)) is not None and file.size == held.file_size:
            units = held.read(disk, file.first, low)
            if not valid_units(units).all() or (units["physical_offset"] >= begin).any():
                break
            low = file.first
        return first - low

    def to_resize(self, low: int, end: int) -> tuple[HeldFile, ...]:
        """Files with units of [low, end) that have another length."""
        return tuple(file for file in self.held.files if low <= file.first < end and file.size != self.held.file_size)

    def to_remove(self, disk: Disk, low: int, end: int) -> tuple[HeldFile, ...]:
        """Files without a unit of [low, end), but for one right after it that holds nothing. Raises StorageError."""
        return tuple(
            file
            for file in self.held.files
            if not low <= file.first < end
            and not (file.first == end and file.size == self.held.file_size and is_zero(disk, file.path))
        )
