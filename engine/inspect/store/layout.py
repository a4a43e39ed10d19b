"""The log as recovery will leave it: every file of its directories under its own name, with a segment's length.

An interrupted copy leaves files of another length, temporary names (`.00000000000000131072.Xy12ab`) and copies; a
repair by hand leaves exchanged names. Apache does not start over these, or reads them at wrong offsets. So the log is
planned as it will be (RECOVERY.md "Names and lengths of segments"):

- segment_place.py finds which file is which segment, by the records in it; what belongs nowhere goes to quarantine/.
- A file shorter than the setting is filled with zeros, a longer one is cut: the bytes after the setting's size are
  saved. Zeros cost nothing; anything else is not cut without an operator's choice.
- A file without a sound record, under another name than a segment's, is no part of the log.

Nothing here is about damage inside the files: planning continues on the log as it will be, and finds it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import CannotRepair, RStoreError, StorageError, WrongFileSize
from engine.files.listing import Oddness
from engine.files.written import is_written
from engine.inspect.finding_codes import Fix
from engine.inspect.next_step import bring, command_line, step
from engine.inspect.store.moves import Way, quarantine_target
from engine.inspect.store.odd import ABSENT, SIZE, STRAY, OddFile, moved_by_hand
from engine.inspect.store.segment_place import NOTHING, Placing
from engine.inspect.store.segment_size import contradicts, segment_size
from engine.inspect.store.survey import StoreFiles
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk

_FILES = {kind.value for kind in Oddness if kind is not Oddness.NOT_A_FILE}
OUT_OF_ORDER = "a file of the commit log has the wrong name or size for a segment"
MOVING = ".moving"
"""What a file's name ends in between its old name and its new one."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """A file of the log that gets another name: both paths and its length in bytes."""

    path: str
    target: str
    size: int

    @property
    def way(self) -> Way:
        """By way of a name in between: files may change places."""
        return Way(self.path, self.target + MOVING, self.target)


@dataclass(frozen=True, slots=True)
class Resize:
    """A file of the log (under the name that it will have) that gets another length; `data`: more than zeros is cut."""

    segment: Segment
    data: bool = False

    @property
    def held(self) -> int:
        """Its length now."""
        assert self.segment.held is not None
        return self.segment.held


@dataclass(frozen=True, slots=True)
class Layout:
    """The log's files as they will be.

    `segments`: by offset. `relocations`, `resizes`: what makes them so. `aside`: what goes to quarantine/, with why.
    `unplaced`: paths of those whose records the log lacks. `left`: odd entries that are none of the layout's.
    `rivals`: those set aside, as segments at their places, that hold records which the segment there lacks, while their
    names are no segment's that stays. `problems`: a sentence each. `refusal`: of a plan that was not told to give
    anything up; `always`: of any.
    """

    segments: tuple[Segment, ...]
    relocations: tuple[Relocation, ...] = ()
    resizes: tuple[Resize, ...] = ()
    aside: tuple[OddFile, ...] = ()
    unplaced: frozenset[str] = frozenset()
    left: tuple[OddFile, ...] = ()
    problems: tuple[str, ...] = ()
    rivals: tuple[Segment, ...] = ()
    refusal: RStoreError | None = None
    always: RStoreError | None = None

    @property
    def changed(self) -> bool:
        """Whether a file gets another name or length. What is set aside counts for itself."""
        return bool(self.relocations or self.resizes)


def layout_of(disk: Disk, files: StoreFiles) -> Layout:
    """Look at the first records of every file in the commit log's directories. Raises StorageError.

    The log of a DLedger store is as it lies: nothing changes it.
    """
    if files.dledger is not None:
        return Layout(files.log, left=files.odd)
    return _Planner(disk, files).plan()


def demand_in_order(disk: Disk, files: StoreFiles) -> None:
    """For a change that plans without recovery. Raises CannotRepair: a file of the log has another name or length."""
    layout = layout_of(disk, files)
    if layout.always is not None:
        raise layout.always
    paths = (*(r.path for r in layout.relocations), *(r.segment.file for r in layout.resizes), *sorted(layout.unplaced))
    if paths:
        fix = Fix.RECOVER if layout.refusal is None else Fix.BRIDGE
        raise CannotRepair(OUT_OF_ORDER, path=paths[0], next_step=step(files.config, fix))


def arranged(files: StoreFiles, layout: Layout) -> StoreFiles:
    """The store with its log as it will be."""
    return replace(files, log=layout.segments, odd=layout.left)


class _Planner:
    def __init__(self, disk: Disk, files: StoreFiles) -> None:
        self._disk = disk
        self._files = files
        self._size = files.config.mapped_file_size_commit_log
        self._directories = {os.path.normpath(path) for path in files.config.log_directories}
        self._placing = Placing(disk, files)

    def plan(self) -> Layout:
        """See `layout_of`."""
        always = self._wrong_setting()
        if always is not None:
            return Layout(self._files.log, left=self._files.odd, always=always)
        mine = [odd for odd in self._files.odd if self._is_mine(odd)]
        left = [odd for odd in self._files.odd if not self._is_mine(odd)]
        looked_at = self._placing.look(mine)
        placed = self._placing.place(looked_at)
        # An empty file at an end of the log is what a crash leaves while a segment is made: it holds nothing.
        held = {file.place or 0 for file in placed if file.size}
        ends = (min(held, default=0), max(held, default=0))
        placed = [file for file in placed if file.size or ends[0] < (file.place or 0) < ends[1]]
        placed = self._placing.without_foreign_end(placed)
        placed += self._placing.from_leavings(left, placed)
        aside = self._placing.aside
        used = {file.path for file in placed} | {odd.path for odd in aside}
        for odd in mine:
            if odd.path not in used and odd.code != STRAY:
                aside.append(OddFile(odd.path, odd.size, NOTHING, movable=True, code=STRAY))
            elif odd.path not in used:
                left.append(odd)
        moved = [moved_by_hand(self._disk, self._files.root, odd) for odd in aside]
        left += [odd for odd in moved if not odd.movable]
        segments = tuple(file.at(self._size) for file in sorted(placed, key=lambda file: file.place or 0))
        return self._made(segments, tuple(odd for odd in moved if odd.movable), tuple(left))

    def _wrong_setting(self) -> RStoreError | None:
        """A length that was given, or guessed, and that can't be that of these files."""
        if not any(self._is_mine(odd) and odd.code == SIZE for odd in self._files.odd):
            return None
        disk, given = self._disk, "mapped_file_size_commit_log" in self._files.config.given
        entries = [e for path in self._directories if disk.is_dir(path) for e in disk.scandir(path)]
        inferred = contradicts(disk, entries, self._size) if given else segment_size(disk, entries)
        if given and inferred is not None:
            return WrongFileSize(
                f"mappedFileSizeCommitLog is {self._size}, the segments have {inferred} bytes",
                path=self._files.config.log_directories[0],
                next_step=bring(
                    f"set mappedFileSizeCommitLog={inferred} in the broker.conf that -c names"
                    + (
                        f"; if {self._size} is right, the files were cut: truncate -s {self._size} restores their size"
                        if self._size > inferred
                        else ""
                    )
                ),
            )
        if not given and inferred is None and not self._files.log:
            return WrongFileSize(
                "segment size unknown: all segments were cut",
                path=self._files.config.log_directories[0],
                next_step=bring("give the broker's own mappedFileSizeCommitLog with -c broker.conf"),
            )
        return None

    def _is_mine(self, odd: OddFile) -> bool:
        return os.path.dirname(odd.path) in self._directories and odd.why in _FILES and odd.code != ABSENT

    def _made(self, segments: tuple[Segment, ...], aside: tuple[OddFile, ...], left: tuple[OddFile, ...]) -> Layout:
        relocations = tuple(
            Relocation(s.source, s.path, self._size if s.held is None else s.held)
            for s in segments
            if s.source is not None
        )
        resizes = tuple(
            Resize(s, data=s.held > s.size and self._has_data(s, s.held)) for s in segments if s.held is not None
        )
        root = self._files.root
        problems = [
            f"{os.path.relpath(r.path, root)}: its records belong to {os.path.basename(r.target)}" for r in relocations
        ]
        for resize in resizes:
            place = os.path.relpath(resize.segment.file, root)
            what = "is filled with zeros" if resize.segment.short else "is cut"
            problems.append(f"{place}: {resize.held} bytes instead of {resize.segment.size}: it {what}")
        for odd in aside:
            problems.append(f"{os.path.relpath(odd.path, root)}: {self._why_aside(odd)}")
        return Layout(
            segments,
            relocations,
            resizes,
            aside,
            frozenset(file.path for file, _, _ in self._placing.given_up),
            left,
            tuple(problems),
            self._placing.rivals_of(segments),
            self._refusal(resizes),
        )

    def _why_aside(self, odd: OddFile) -> str:
        """A problem's words: why a file is set aside, and what reads the records that the log does not hold."""
        if odd.path in self._placing.more:
            place, records = self._placing.more[odd.path]
            there = quarantine_target(self._disk, self._files.root, odd.path)
            words = ("list",) if odd.copied else ("scan", "--file", there, "--base-offset", str(place))
            reads = "names its copy" if odd.copied else "reads it"
            command = command_line(self._files.config, "salvage", *words)
            return f"{records} {odd.why}: the file goes to quarantine/; {command} {reads}"
        records = next((n for file, _, n in self._placing.given_up if file.path == odd.path), 0)
        counted = f" (at least {records})" if records else ""
        return f"{odd.description}{counted}: the file goes to quarantine/"

    def _has_data(self, segment: Segment, end: int) -> bool:
        """Whether a file holds anything but zeros after the segment's size."""
        reader = self._disk.open_reader(segment.file)
        try:
            return is_written(reader, segment.size, end)
        except StorageError:  # nobody knows what is there
            return True
        finally:
            reader.close()

    def _refusal(self, resizes: Sequence[Resize]) -> RStoreError | None:
        for file, why, records in self._placing.given_up:
            return CannotRepair(
                f"{records} {why}" if records else why,
                path=file.path,
                hint="--bridge moves the file to quarantine/, where rstore salvage scan --file FILE reads it"
                if records
                else "if you have a readable copy, put it in its place first; --bridge moves this one to quarantine/",
                next_step=step(self._files.config, Fix.BRIDGE),
            )
        for resize in resizes:
            if resize.data:
                more = resize.held - resize.segment.size
                return WrongFileSize(
                    f"{more} bytes too long for mappedFileSizeCommitLog ({resize.segment.size}), and not only zeros",
                    path=resize.segment.file,
                    hint="--bridge saves the bytes and cuts the file",
                    next_step=step(self._files.config, Fix.BRIDGE),
                )
        return None
