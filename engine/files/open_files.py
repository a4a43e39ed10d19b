"""Which queue files are mapped: a bounded number of all that a store has, those that were used last.

Theory: a system lets a process have so many maps (vm.max_map_count, 65530 by default), and a store may have more
queues. A file that nobody has used for a while gives its map up and gets it again with its next use; positions stay,
and so does who holds the file, so that nothing above notices. Least recently used, by a clock: the files stand in a
line, and the one in front goes if it was neither read nor appended to since the last look; else it stands at the end
again.

Invariants:
- What a file gives up is on disk: it is flushed before. A failed write-back of a file that nobody has open could be
  forgotten by the system.
- No lock of here is held while a file is flushed, mapped or given up.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import StorageError

if TYPE_CHECKING:
    from engine.files.mapped_file import MappedFile

MAX_MAP_COUNT = "/proc/sys/vm/max_map_count"
DEFAULT_MAPS = 65530
"""Of Linux (DEFAULT_MAX_MAP_COUNT)."""
_SHARE = 4
"""One of so many maps is left to the log, the index, threads and libraries."""
_AT_ONCE = 64
"""Files that are given up together, at most: one in so many that may be mapped."""


def most_maps() -> int:
    """How many queue files may be mapped, by what the system lets a process have."""
    try:
        limit = int(Path(MAX_MAP_COUNT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        limit = DEFAULT_MAPS
    return max(_AT_ONCE, limit - limit // _SHARE)


class OpenFiles:
    """See the module. Thread-safe.

    Args:
        most: files that are mapped at a time; None: as `most_maps` says. A few more while threads race.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most_maps() if most is None else max(1, most)
        self._lock = threading.Lock()
        self._line: deque[tuple[MappedFile, int]] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def opened(self, file: MappedFile) -> None:
        """A file is mapped now; give up others if there are too many. Never raises."""
        with self._lock:
            self._line.append((file, -1))
            if len(self._line) <= self.most:
                return
            victims = self._choose(file)
        kept = [victim for victim in victims if not _give_up(victim)]
        if kept:
            with self._lock:
                self._line.extend((victim, victim.wrote_position) for victim in kept)

    def _choose(self, newest: MappedFile) -> list[MappedFile]:
        """Take those out of the line that go. Closed ones leave it, too."""
        wanted = max(1, self.most // _AT_ONCE)
        victims: list[MappedFile] = []
        line = self._line
        for turn in range(2 * len(line)):
            if len(victims) >= wanted or len(line) <= 1:
                break
            file, seen = line.popleft()
            if not file.available:
                continue
            busy = file is newest or ((file.used or file.wrote_position != seen) and turn < len(line))
            if busy:
                file.used = False
                line.append((file, file.wrote_position))
            else:
                victims.append(file)
        return victims


def _give_up(file: MappedFile) -> bool:
    """Whether it is closed, or has no map any more. A file that can't be flushed keeps its map: its flush will tell."""
    try:
        file.flush(0)
    except StorageError:
        return False
    file.park()
    return True
