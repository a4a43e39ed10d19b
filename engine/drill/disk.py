"""The disk of a drill: it fails as the script says, says what room there is, and never waits for the device.

A kill keeps the page cache, and a power cut is a model (engine.files.durable), so no drill needs a sync to reach the
device; that is what makes hundreds of them quick. Operations are numbered, so that the code, not the script, enumerates
where to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING

from engine.files.faults import SPACE_TAKING, FaultyDisk
from engine.files.file_system import Usage
from engine.files.libc import Libc

if TYPE_CHECKING:
    from engine.files.durable import Lose
    from engine.files.operations import Doing

TOTAL = 1 << 40
"""Bytes of the disk whose used ratio a script sets."""


class _NoSync(Libc):
    __slots__ = ()

    def msync(self, address: int, length: int) -> None:
        """Nothing: see the module."""
        del address, length

    def syncfs(self, descriptor: int) -> None:
        """Nothing, too."""
        del descriptor


class DrillDisk(FaultyDisk):
    """See the module.

    Args:
        root: as FaultyDisk.
        mapped: as Disk.
        used_ratio: what every file system seems to be used (0 to 1); None: the truth.

    Attributes:
        taken: operations that took space.
    """

    def __init__(self, root: str | None = None, *, mapped: bool = True, used_ratio: float | None = None) -> None:
        super().__init__(root, mapped=mapped)
        self.libc = _NoSync()
        self.used_ratio = used_ratio
        self.taken = 0

    def fsync(self, descriptor: int) -> None:
        """Nothing: see the module."""
        del descriptor

    def usage(self, path: str) -> Usage:
        """As the script says."""
        if self.used_ratio is None:
            return super().usage(path)
        used = round(TOTAL * self.used_ratio)
        return Usage(TOTAL, used, TOTAL - used)

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        """Count what takes space."""
        with self._model_lock:
            self.taken += doing.operation in SPACE_TAKING
            return super().begin(doing)


class CuttingDisk(DrillDisk):
    """Leaves a copy of the store just before certain changes, whichever thread makes them: kills, or power cuts.

    Args:
        root: as FaultyDisk.
        moments: numbers of the changes (1 is the first) before which a copy is made.
        copy_to: gives the directory of the copy at a moment; called while nothing else changes the store.
        lose: what a copy lacks of what was not synced: "none" for a kill.
        torn: by sector instead of by page.
        rng: decides what is lost.
    """

    def __init__(
        self,
        root: str,
        moments: Collection[int],
        copy_to: Callable[[int], str],
        *,
        lose: Lose,
        torn: bool,
        rng: Random,
        mapped: bool = True,
    ) -> None:
        super().__init__(root, mapped=mapped)
        self._moments = frozenset(moments)
        self._copy_to = copy_to
        self._lose: Lose = lose
        self._torn = torn
        self._rng = rng

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        """Copy first, when this is one of the moments."""
        with self._model_lock:
            before = self.changes_seen
            note = super().begin(doing)
            if self.changes_seen != before and self.changes_seen in self._moments:
                self.crash_copy(self._copy_to(self.changes_seen), self._rng, self._lose, torn=self._torn)
            return note
