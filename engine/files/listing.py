"""Which segments a queue of files has, seen from its directories alone: nothing is opened, nothing is written.

A segment is a regular file of exactly the set size whose name is 20 digits, a multiple of that size. All else
is `odd`, with the reason: Apache refuses to start over any of these (MappedFileQueue.doLoad); what becomes of
them is decided by the repair layer. The directory `lost+found` that a file system makes where its disk is mounted
is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.files.entry import Entry, FileKind
from engine.format.names import segment_offset

LOST_FOUND = "lost+found"
"""The directory that mkfs makes at the top of a file system, and fsck fills."""

_OF_RSYNC = re.compile(r"\.~tmp~|\.rsync-partial|\..+\.[A-Za-z0-9]{6}")


def left_by_rsync(name: str) -> bool:
    """Whether an rsync that was interrupted leaves such a name: of `--delay-updates`, `--partial-dir` (as its manual
    names it), or of a file that it was writing.
    """
    return _OF_RSYNC.fullmatch(name) is not None


class Oddness(Enum):
    """Why an entry is no segment."""

    EMPTY = "an empty file"
    WRONG_SIZE = "a file of another size than the setting"
    STRANGE_NAME = "a name that is not 20 digits"
    MISALIGNED = "a name that is not a multiple of the file size"
    NOT_A_FILE = "not a file"
    ABSENT = "a link whose target does not exist"
    DUPLICATE = "a second file for the same offset"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment on disk: start offset and size in bytes, modification time in ns since 1970."""

    path: str
    offset: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class OddEntry:
    """A name in a segment directory that is no segment, and why; size in bytes. `what`: its kind in words."""

    path: str
    size: int
    why: Oddness
    what: str = FileKind.FILE.value


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Offsets [start, end), in bytes, that no segment between the first and the last holds."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentListing:
    """What `list_segments` saw: segments by offset, odd entries by path, directories that are not there."""

    file_size: int
    files: tuple[SegmentFile, ...]
    odd: tuple[OddEntry, ...]
    missing: tuple[str, ...]

    @property
    def min_offset(self) -> int:
        """Start of the first segment, bytes; −1 without segments (as Apache getMinOffset)."""
        return self.files[0].offset if self.files else -1

    @property
    def end_offset(self) -> int:
        """End of the last segment, bytes; 0 without segments."""
        return self.files[-1].offset + self.file_size if self.files else 0

    @property
    def gaps(self) -> tuple[MissingOffsets, ...]:
        """Ranges that are missing in the middle."""
        return tuple(
            MissingOffsets(one.offset + self.file_size, two.offset)
            for one, two in pairwise(self.files)
            if two.offset != one.offset + self.file_size
        )


def list_segments(
    disk: Disk, directories: Iterable[str], file_size: int, known: Mapping[str, Sequence[Entry]] | None = None
) -> SegmentListing:
    """Look at the directories (several for a multi-path commitlog). Raises StorageError when one can't be listed.

    A directory that is not there is no error: it is in `missing`. `known`: what was just seen in some of them.
    """
    if file_size < 1:
        raise InvalidArgument(f"segment size must be ≥ 1, not {file_size}")
    segments: dict[int, SegmentFile] = {}
    odd: list[OddEntry] = []
    missing: list[str] = []
    for directory in directories:
        entries = (known or {}).get(directory)
        if entries is None and not disk.exists(directory):
            missing.append(directory)
            continue
        for entry in disk.scandir(directory) if entries is None else entries:
            if is_lost_found(entry):
                continue
            offset = segment_offset(entry.name)
            why = _oddness(entry, offset, file_size)
            if why is None and offset in segments:
                why = Oddness.DUPLICATE
            if why is not None or offset is None:
                odd.append(OddEntry(entry.path, entry.size, why or Oddness.STRANGE_NAME, entry.what))
            else:
                segments[offset] = SegmentFile(entry.path, offset, entry.size, entry.mtime_ns)
    return SegmentListing(
        file_size,
        tuple(segments[offset] for offset in sorted(segments)),
        tuple(sorted(odd, key=lambda entry: Path(entry.path))),
        tuple(missing),
    )


def is_lost_found(entry: Entry) -> bool:
    """Whether this is the directory that a file system keeps at its top."""
    return entry.name == LOST_FOUND and entry.is_directory


def _oddness(entry: Entry, offset: int | None, file_size: int) -> Oddness | None:
    if entry.kind is FileKind.ABSENT and offset is not None:
        return Oddness.ABSENT
    if not entry.is_file:
        return Oddness.NOT_A_FILE
    if offset is None:
        return Oddness.STRANGE_NAME
    if entry.size == 0:
        return Oddness.EMPTY
    if entry.size != file_size:
        return Oddness.WRONG_SIZE
    return Oddness.MISALIGNED if offset % file_size else None
