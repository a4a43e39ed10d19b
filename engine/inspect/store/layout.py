"""Where each file of the commit log's directories belongs: by what its own records say, not by its name alone.

An interrupted copy leaves files of another length, temporary names (`.00000000000000131072.Xy12ab`) and copies; a hand
that mends leaves swapped names. Apache starts over none of these, or reads them at wrong offsets. So each file's first
records are looked at (segment_look.py), and the log is planned as it will be:

- A file whose records name another place than its name gets its own name back, when that place is free: it lies in a
  hole of the log or next to it, or units of the queues point at just these records.
- Two files for one place: the one with the right name stays where it is complete, i.e. has the right length and is
  sound as far as its log goes. What an old backup beside it holds more was cut on purpose, or is another store's: the
  backup is set aside. Else the one stays that holds all that the other holds. Where each holds records that the other
  lacks, the one stays whose name is right (or else that has more of them), and that is not done unasked.
- A file shorter than the setting is filled up with zeros, a longer one is cut: what it loses behind the setting's size
  is saved. Zeros cost nothing; anything else is not cut unasked.
- A file of no sound record under another name than a segment's is no part of the log, as ever.

Nothing here is about damage inside the files: planning goes on over the log as it will be, and finds it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.errors import CannotMend, RStoreError, StorageError, WrongFileSize
from engine.files.listing import Oddness, left_by_rsync
from engine.files.written import is_written
from engine.format.names import segment_name, segment_offset
from engine.inspect.finding import Fix
from engine.inspect.next_step import bring, command_line, step
from engine.inspect.store.foreign_end import Signs, is_another_stores
from engine.inspect.store.moves import Way, quarantine_target
from engine.inspect.store.odd import ABSENT, SIZE, STRAY, OddFile, moved_by_hand
from engine.inspect.store.segment_contest import Belonging, compared, is_complete
from engine.inspect.store.segment_look import SegmentLook, look_across, look_at_head
from engine.inspect.store.segment_size import contradicts, segment_size
from engine.inspect.store.survey import StoreFiles
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk

_FILES = {kind.value for kind in Oddness if kind is not Oddness.NOT_A_FILE}
_SURE = 2
"""Records that must agree before a file with a segment's name is taken for another segment."""
COPY = "a copy of records that are in the log"
MORE = "records that are not in the complete segment with this offset"
REST = "records of this offset range that the log's own segment lacks"
FOREIGN = "records that belong to no offset of this log"
UNREAD = "a file with unreadable parts: its contents are unknown"
OUT_OF_ORDER = "a file of the commit log has the wrong name or size for a segment"
NOTHING = "no sound record in it"
MOVING = ".moving"
"""What a file's name ends in between its old name and its new one."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """A file of the log that gets another name: both paths, its length, how many records were asked."""

    path: str
    target: str
    size: int

    @property
    def way(self) -> Way:
        """By way of a name in between: files may change places."""
        return Way(self.path, self.target + MOVING, self.target)


@dataclass(frozen=True, slots=True)
class Resize:
    """A file of the log (under the name that it will have) that gets another length; `data`: zeros alone go, or not."""

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


@dataclass(slots=True)
class _File:
    """One file. `name`: the offset that its name says; `place`: where it belongs, in the directory `into` (its own)."""

    path: str
    size: int
    name: int | None
    look: SegmentLook
    place: int | None = None
    into: str = ""

    def at(self, file_size: int) -> Segment:
        """It as a segment at its place."""
        assert self.place is not None
        target = os.path.join(self.into or os.path.dirname(self.path), segment_name(self.place))
        source = None if target == self.path else self.path
        held = None if self.size == file_size else self.size
        return Segment(self.place, file_size, target, source=source, held=held)


def layout_of(disk: Disk, files: StoreFiles) -> Layout:
    """Look at the first records of every file in the commit log's directories. Raises StorageError."""
    return _Planner(disk, files).plan()


def demand_in_order(disk: Disk, files: StoreFiles) -> None:
    """For a change that plans without recovery. Raises CannotMend: a file of the log has another name or length."""
    layout = layout_of(disk, files)
    if layout.always is not None:
        raise layout.always
    paths = (*(r.path for r in layout.relocations), *(r.segment.file for r in layout.resizes), *sorted(layout.unplaced))
    if paths:
        fix = Fix.RECOVER if layout.refusal is None else Fix.BRIDGE
        raise CannotMend(OUT_OF_ORDER, path=paths[0], next_step=step(files.config, fix))


def arranged(files: StoreFiles, layout: Layout) -> StoreFiles:
    """The store with its log as it will be."""
    return replace(files, log=layout.segments, odd=layout.left)


class _Planner:
    def __init__(self, disk: Disk, files: StoreFiles) -> None:
        self._disk = disk
        self._files = files
        self._size = files.config.mapped_file_size_commit_log
        self._largest = files.config.max_message_size
        self._directories = {os.path.normpath(path) for path in files.config.log_directories}
        self._belonging = Belonging(disk, files)
        self._aside: list[OddFile] = []
        self._problems: list[str] = []
        self._given_up: list[tuple[_File, str, int]] = []
        self._more: dict[str, tuple[int, int]] = {}  # set aside beside a complete segment: its place, records more
        self._back: list[_File] = []  # lost another place, and hold records of the one that their name says
        self._names: set[int | None] = set()
        self._last = -1  # the last place of a file with the right name that holds records

    def plan(self) -> Layout:
        """See `layout_of`."""
        always = self._wrong_setting()
        if always is not None:
            return Layout(self._files.log, left=self._files.odd, always=always)
        mine = [odd for odd in self._files.odd if self._is_mine(odd)]
        left = [odd for odd in self._files.odd if not self._is_mine(odd)]
        looked_at = self._look(mine)
        placed = self._place(looked_at)
        # An empty file at an end of the log is what a crash leaves while a segment is made: it holds nothing.
        held = {file.place or 0 for file in placed if file.size}
        ends = (min(held, default=0), max(held, default=0))
        placed = [file for file in placed if file.size or ends[0] < (file.place or 0) < ends[1]]
        placed = self._without_foreign_end(placed)
        placed += self._from_leavings(left, placed)
        used = {file.path for file in placed} | {odd.path for odd in self._aside}
        for odd in mine:
            if odd.path not in used and odd.code != STRAY:
                self._aside.append(OddFile(odd.path, odd.size, NOTHING, movable=True, code=STRAY))
            elif odd.path not in used:
                left.append(odd)
        aside = [moved_by_hand(self._disk, self._files.root, odd) for odd in self._aside]
        left += [odd for odd in aside if not odd.movable]
        self._aside = [odd for odd in aside if odd.movable]
        segments = tuple(file.at(self._size) for file in sorted(placed, key=lambda file: file.place or 0))
        return self._made(segments, tuple(left))

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

    # --- looking ----------------------------------------------------------------------------------------------------

    def _look(self, odd: Sequence[OddFile]) -> list[_File]:
        """Every file with what its records say; all of a file is asked where its head does not agree with its name."""
        segment_files = [_File(s.path, s.size, s.offset, self._head(s.path, s.size)) for s in self._files.log]
        last = max((file.name or 0 for file in segment_files if not file.look.empty), default=-1)
        for other in odd:
            name = segment_offset(os.path.basename(other.path))
            head = self._head(other.path, other.size)
            segment_files.append(
                _File(other.path, other.size, None if name is None or name % self._size else name, head)
            )
        for file in segment_files:
            ahead = file.look.empty and file.size == self._size and (file.name or 0) > last  # made ahead of time
            if not ahead and not 0 < file.look.most == file.look.votes(file.name):
                file.look = look_across(self._disk, file.path, file.size, self._largest)
        return segment_files

    def _head(self, path: str, size: int) -> SegmentLook:
        return look_at_head(self._disk, path, size, self._largest)

    # --- placing ----------------------------------------------------------------------------------------------------

    def _place(self, looked_at: list[_File]) -> list[_File]:
        """The files that make up the log, each at its place."""
        sure: dict[int, list[_File]] = {}
        named: list[_File] = []
        names = self._names = {file.name for file in looked_at if file.size}
        for file in looked_at:
            home, own = file.look.home(self._size), file.look.votes(file.name)
            if file.name is not None and self._goes_by_name(file, home, own, names):
                file.place = file.name
                if own:
                    sure.setdefault(file.name, []).append(file)
                else:
                    named.append(file)
            elif home is not None:
                file.place = home
                sure.setdefault(home, []).append(file)
            elif file.look.witnesses:
                self._give_up(file, FOREIGN, len(file.look.witnesses))
            else:
                self._without_records(file)
        self._last = max((f.place or 0 for f in looked_at if f.place == f.name and f.look.witnesses), default=-1)
        placed = {place: self._contest(claims) for place, claims in sure.items()}
        for file in [*named, *self._back]:
            assert file.place is not None
            home = file.look.home(self._size)
            if file.place in placed and home is not None and home not in placed and not file.look.votes(file.name):
                file.place = home
            if file.place not in placed:
                placed[file.place] = file
            elif file.look.witnesses:
                placed[file.place] = self._contest([placed[file.place], file])
            elif file.size:
                self._without_records(file)
        return self._belonging_ones(placed)

    def _from_leavings(self, left: Sequence[OddFile], placed: Sequence[_File]) -> list[_File]:
        """Files for holes of the log, and for what the queues' units point at, out of directories that rsync left."""
        taken = {file.place or 0 for file in placed if file.size}
        low, high = min(taken, default=0), max(taken, default=0)
        taken_out: list[_File] = []
        for odd in left:
            directory = os.path.dirname(odd.path)
            if not (odd.movable and directory in self._directories and left_by_rsync(os.path.basename(odd.path))):
                continue
            for entry in self._disk.scandir(odd.path) if self._disk.is_dir(odd.path) else ():
                if not entry.is_file or not entry.size:
                    continue
                look = look_across(self._disk, entry.path, entry.size, self._largest)
                home = look.home(self._size)
                if home is None or home in taken:
                    continue
                if low < home < high or self._belonging.judge(home, look.witnesses) > 0:
                    taken.add(home)
                    taken_out.append(_File(entry.path, entry.size, None, look, home, directory))
        return taken_out

    def _goes_by_name(self, file: _File, home: int | None, own: int, names: set[int | None]) -> bool:
        """Whether a file lies where its name says, for all that its records say."""
        votes = file.look.most if home is None else file.look.votes(home)
        if own >= votes:
            return True
        if votes >= _SURE:
            return False
        if home is None or file.name is None:
            return True
        if self._belonging.judge(home, file.look.witnesses) > 0:
            return False
        if self._belonging.is_denied(file.name, self._size, file.look.witnesses):
            return False
        if home in names:  # a single record: its field may be damaged
            return True
        return not (home - self._size in names - {file.name} and file.name - self._size not in names)

    def _belonging_ones(self, placed: dict[int, _File]) -> list[_File]:
        """Without those that get another name, but are not this log's.

        Where no file has its own name, those are that units show: after a close, each message has one.
        """
        kept = {place for place, file in placed.items() if file.name == place}
        out = [placed[place] for place in kept]
        moved = sorted((f for p, f in placed.items() if p not in kept), key=lambda f: f.place or 0)
        if not kept and (self._files.abort or not self._belonging.has_units):
            return moved
        undecided = []
        for file in moved:
            assert file.place is not None
            judged = self._belonging.judge(file.place, file.look.witnesses)
            if judged > 0:
                kept.add(file.place)
                out.append(file)
            elif judged < 0 or self._belonging.is_denied(file.place, self._size, file.look.witnesses):
                self._give_up(file, FOREIGN, len(file.look.witnesses))
            else:
                undecided.append(file)
        for file in undecided:
            assert file.place is not None
            adjacent = bool(kept) and min(kept) - self._size <= file.place <= max(kept) + self._size
            if adjacent or (
                kept and file.place in self._names
            ):  # the log had a segment of that name: it changed places
                kept.add(file.place)
                out.append(file)
            else:
                self._give_up(file, FOREIGN, len(file.look.witnesses))
        return out

    def _without_foreign_end(self, placed: list[_File]) -> list[_File]:
        """Without the last segments, as far as they are another store's."""
        left = sorted(placed, key=lambda file: file.place or 0)
        while True:
            filled = [i for i, file in enumerate(left) if file.look.witnesses]
            if len(filled) < 2:
                return left
            segments = [file.at(self._size) for file in left[: filled[-1] + 1]]
            last, witnesses = left[filled[-1]], left[filled[-1]].look.witnesses
            if segments[-2].end != segments[-1].offset or self._belonging.judge(segments[-1].offset, witnesses) > 0:
                return left
            shown = not self._files.abort and self._shown(left[filled[-1] - 1])
            signs = Signs(last.place == last.name, shown)
            if not is_another_stores(self._disk, self._files, segments[:-1], segments[-1], signs, self._belonging):
                return left
            self._give_up(last, FOREIGN, len(witnesses))
            left.remove(last)

    def _shown(self, file: _File) -> bool:
        """Whether units of the queues show a file's records."""
        assert file.place is not None
        return self._belonging.judge(file.place, file.look.witnesses) > 0

    def _contest(self, claims: list[_File]) -> _File:
        """The one that stays of several files for one place."""
        order = sorted(claims, key=lambda f: (f.name != f.place, f.size != self._size, f.path))
        best = order[0]
        for file in order[1:]:
            mine = compared(self._disk, best.at(self._size), file.at(self._size), self._largest)
            its = compared(self._disk, file.at(self._size), best.at(self._size), self._largest)
            if its.nothing_more:
                self._set_aside(file, COPY)
            elif self._stays(best, file):
                self._set_aside(file, MORE if its.lacking else UNREAD)
                if its.lacking:
                    self._more[file.path] = best.place or 0, its.lacking
            elif its.lacking and not mine.lacking:
                if mine.readable:
                    self._set_aside(best, COPY)
                else:
                    self._give_up(best, UNREAD, 0)
                best = file
            elif self._is_rather(file, its.sound, best, mine.sound):
                self._give_up(best, REST if mine.lacking else UNREAD, mine.lacking)
                best = file
            else:
                self._give_up(file, REST if its.lacking else UNREAD, its.lacking)
        return best

    def _stays(self, best: _File, rival: _File) -> bool:
        """Whether a file has its place by its name, which the rival's is not, and is complete.

        Units that point at the rival's records alone speak against it: it may be another store's.
        """
        if best.name != best.place or rival.name == best.place or self._is_rather(rival, 0, best, 0):
            return False
        assert best.place is not None
        return is_complete(self._disk, best.at(self._size), self._largest, goes_on=best.place < self._last)

    def _is_rather(self, file: _File, records: int, best: _File, best_records: int) -> bool:
        """Whether `file` is rather this log's than `best` is: by the queues' units, then its name, then its records."""
        assert file.place is not None
        its, the_other = (self._belonging.judge(file.place, one.look.witnesses) > 0 for one in (file, best))
        if its != the_other:
            return its
        return best.name != best.place and records > best_records

    def _set_aside(self, file: _File, why: str) -> bool:
        """False: it stays where its name says, as it holds records of that place, too."""
        if file.place != file.name and file.look.votes(file.name):
            file.place = file.name
            self._back.append(file)
            return False
        self._aside.append(OddFile(file.path, file.size, why, movable=True, code=STRAY))
        return True

    def _without_records(self, file: _File) -> None:
        """A file in which no record was found, and that has no place: what can't be read may hold some."""
        if file.look.unread:
            self._give_up(file, UNREAD, 0)
        elif file.place is not None:
            self._set_aside(file, NOTHING)

    def _give_up(self, file: _File, why: str, records: int) -> None:
        if self._set_aside(file, why):
            self._given_up.append((file, why, records))

    def _rivals_of(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """Those whose names nothing else gets: they may stay until their records were written elsewhere."""
        taken = {segment.path for segment in segments}
        return tuple(file.at(self._size) for file, why, _ in self._given_up if why == REST and file.path not in taken)

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _made(self, segments: tuple[Segment, ...], left: tuple[OddFile, ...]) -> Layout:
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
        for odd in self._aside:
            problems.append(f"{os.path.relpath(odd.path, root)}: {self._why_aside(odd)}")
        return Layout(
            segments,
            relocations,
            resizes,
            tuple(self._aside),
            frozenset(file.path for file, _, _ in self._given_up),
            left,
            tuple(problems),
            self._rivals_of(segments),
            self._refusal(resizes),
        )

    def _why_aside(self, odd: OddFile) -> str:
        """A problem's words: why a file is set aside, and what reads the records that the log does not hold."""
        if odd.path in self._more:
            place, records = self._more[odd.path]
            there = quarantine_target(self._disk, self._files.root, odd.path)
            words = ("list",) if odd.copied else ("scan", "--file", there, "--base-offset", str(place))
            reads = "names its copy" if odd.copied else "reads it"
            command = command_line(self._files.config, "salvage", *words)
            return f"{records} {odd.why}: the file goes to quarantine/; {command} {reads}"
        records = next((n for file, _, n in self._given_up if file.path == odd.path), 0)
        counted = f" (at least {records})" if records else ""
        return f"{odd.description}{counted}: the file goes to quarantine/"

    def _has_data(self, segment: Segment, end: int) -> bool:
        """Whether a file holds anything but zeros behind the segment's size."""
        reader = self._disk.open_reader(segment.file)
        try:
            return is_written(reader, segment.size, end)
        except StorageError:  # nobody knows what is there
            return True
        finally:
            reader.close()

    def _refusal(self, resizes: Sequence[Resize]) -> RStoreError | None:
        for file, why, records in self._given_up:
            return CannotMend(
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
