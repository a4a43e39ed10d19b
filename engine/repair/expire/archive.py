"""Where segments are kept that expire deletes, as far as expire knows it (engine.backup.archive.keeping)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A segment whose bytes were read back from the archive's repository, and what holds them there."""

    segment: Segment
    name: str


class SegmentArchive(Protocol):
    """An archive of a store's segments."""

    def hold(self) -> AbstractContextManager[None]:
        """Nobody removes what holds segments, from the plan to the end. Raises StoreLocked, StorageError."""
        ...

    def held(
        self,
        disk: Disk,
        files: StoreFiles,
        segments: Sequence[Segment],
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[tuple[HeldSegment, ...], str]:
        """Those of the segments, from the first on, whose bytes were read back, and why the next one wasn't.

        Writes nothing. Raises Refused, StorageError.
        """
        ...

    def keep(
        self, disk: Disk, files: StoreFiles, held: Sequence[HeldSegment], progress: Callable[[int, int], None] | None
    ) -> None:
        """Keep them from now on: when it returns, their files may be deleted. Raises StoreLocked, StorageError."""
        ...
