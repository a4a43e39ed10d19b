"""Which file of the commit log's directories is which segment: by what its own records say, not by its name alone.

The rules (RECOVERY.md "Names and lengths of segments"), by the first records of each file (segment_look.py):

- A file whose records name another segment than its name gets that segment's name, when no file has it: it lies in a
  gap of the log or next to it, or units of the queues point at just these records.
- Of two files for one segment, the one with the right name stays where it is complete, i.e. has the right length and
  is sound as far as its log goes. What an old backup holds more was cut on purpose, or is another store's: the backup
  goes to quarantine/. Else the one stays that holds all that the other holds. Where each holds records that the other
  lacks, the one stays whose name is right (or else that has more of them), and that needs an operator's choice.

layout.py makes the plan of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.listing import left_by_rsync
from engine.format.names import segment_name, segment_offset
from engine.inspect.store.foreign_end import Signs, is_another_stores
from engine.inspect.store.odd import STRAY, OddFile
from engine.inspect.store.segment_contest import Belonging, compared, is_complete
from engine.inspect.store.segment_look import SegmentLook, look_across, look_at_head
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

_SURE = 2
"""Records that must agree before a file with a segment's name is taken for another segment."""
COPY = "a copy of records that are in the log"
MORE = "records that are not in the complete segment with this offset"
REST = "records of this offset range that the log's own segment lacks"
FOREIGN = "records that belong to no offset of this log"
UNREAD = "a file with unreadable parts: its contents are unknown"
NOTHING = "no sound record in it"


@dataclass(slots=True)
class LogFile:
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


class Placing:
    """Finds the place of each file. `aside`: what goes to quarantine/; `given_up`: those of them that hold records
    which the log lacks (why, and how many); `more`: by path of one that was set aside for a complete segment, that
    segment's offset and how many records more it holds.
    """

    def __init__(self, disk: Disk, files: StoreFiles) -> None:
        self._disk = disk
        self._files = files
        self._size = files.config.mapped_file_size_commit_log
        self._largest = files.config.max_message_size
        self._directories = {os.path.normpath(path) for path in files.config.log_directories}
        self._belonging = Belonging(disk, files)
        self.aside: list[OddFile] = []
        self.given_up: list[tuple[LogFile, str, int]] = []
        self.more: dict[str, tuple[int, int]] = {}
        self._back: list[LogFile] = []  # lost another place, and hold records of the one that their name says
        self._names: set[int | None] = set()
        self._last = -1  # the last place of a file with the right name that holds records

    def look(self, odd: Sequence[OddFile]) -> list[LogFile]:
        """Every file with what its records say; all of a file is asked where its head does not agree with its name."""
        segment_files = [LogFile(s.path, s.size, s.offset, self._head(s.path, s.size)) for s in self._files.log]
        last = max((file.name or 0 for file in segment_files if not file.look.empty), default=-1)
        for other in odd:
            name = segment_offset(os.path.basename(other.path))
            head = self._head(other.path, other.size)
            segment_files.append(
                LogFile(other.path, other.size, None if name is None or name % self._size else name, head)
            )
        for file in segment_files:
            ahead = file.look.empty and file.size == self._size and (file.name or 0) > last  # made ahead of time
            if not ahead and not 0 < file.look.most == file.look.votes(file.name):
                file.look = look_across(self._disk, file.path, file.size, self._largest)
        return segment_files

    def _head(self, path: str, size: int) -> SegmentLook:
        return look_at_head(self._disk, path, size, self._largest)

    def place(self, looked_at: list[LogFile]) -> list[LogFile]:
        """The files that make up the log, each at its place."""
        sure: dict[int, list[LogFile]] = {}
        named: list[LogFile] = []
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

    def from_leavings(self, left: Sequence[OddFile], placed: Sequence[LogFile]) -> list[LogFile]:
        """Files for holes of the log, and for what the queues' units point at, out of directories that rsync left."""
        taken = {file.place or 0 for file in placed if file.size}
        low, high = min(taken, default=0), max(taken, default=0)
        taken_out: list[LogFile] = []
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
                    taken_out.append(LogFile(entry.path, entry.size, None, look, home, directory))
        return taken_out

    def _goes_by_name(self, file: LogFile, home: int | None, own: int, names: set[int | None]) -> bool:
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

    def _belonging_ones(self, placed: dict[int, LogFile]) -> list[LogFile]:
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

    def without_foreign_end(self, placed: list[LogFile]) -> list[LogFile]:
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

    def _shown(self, file: LogFile) -> bool:
        """Whether units of the queues show a file's records."""
        assert file.place is not None
        return self._belonging.judge(file.place, file.look.witnesses) > 0

    def _contest(self, claims: list[LogFile]) -> LogFile:
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
                    self.more[file.path] = best.place or 0, its.lacking
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

    def _stays(self, best: LogFile, rival: LogFile) -> bool:
        """Whether a file has its place by its name, which the rival's is not, and is complete.

        Units that point at the rival's records alone speak against it: it may be another store's.
        """
        if best.name != best.place or rival.name == best.place or self._is_rather(rival, 0, best, 0):
            return False
        assert best.place is not None
        return is_complete(self._disk, best.at(self._size), self._largest, goes_on=best.place < self._last)

    def _is_rather(self, file: LogFile, records: int, best: LogFile, best_records: int) -> bool:
        """Whether `file` is rather this log's than `best` is: by the queues' units, then its name, then its records."""
        assert file.place is not None
        its, the_other = (self._belonging.judge(file.place, one.look.witnesses) > 0 for one in (file, best))
        if its != the_other:
            return its
        return best.name != best.place and records > best_records

    def _set_aside(self, file: LogFile, why: str) -> bool:
        """False: it stays where its name says, as it holds records of that place, too."""
        if file.place != file.name and file.look.votes(file.name):
            file.place = file.name
            self._back.append(file)
            return False
        self.aside.append(OddFile(file.path, file.size, why, movable=True, code=STRAY))
        return True

    def _without_records(self, file: LogFile) -> None:
        """A file in which no record was found, and that has no place: what can't be read may hold some."""
        if file.look.unread:
            self._give_up(file, UNREAD, 0)
        elif file.place is not None:
            self._set_aside(file, NOTHING)

    def _give_up(self, file: LogFile, why: str, records: int) -> None:
        if self._set_aside(file, why):
            self.given_up.append((file, why, records))

    def rivals_of(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """Those whose names nothing else gets: they may stay until their records were written elsewhere."""
        taken = {segment.path for segment in segments}
        return tuple(file.at(self._size) for file, why, _ in self.given_up if why == REST and file.path not in taken)
