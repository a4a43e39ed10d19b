"""The last states of config/ that a daemon keeps: `<store>/config.history/<file>/<UTC time>`.

Outside of config/, so that who loses that has them still; no broker looks there. A state is kept when its bytes differ
from those of the one before. Of many the old ones thin out: the newest `NEWEST`, then one an hour for a day and one a
day for a week; files of more than `LARGEST` bytes are not kept.
"""

from __future__ import annotations

import os
import time
from calendar import timegm
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.inspect.store.config_files import ConfigFileState, ConfigText, directory_of, parse
from engine.inspect.store.config_shapes import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk

HISTORY = "config.history"
NEWEST, HOURS, DAYS = 8, 24, 7
LARGEST = 16 << 20
MINUTE_MS = 60_000
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_FORM = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state that was kept. `time_ms`: since when the file held it, or when it was first seen."""

    name: str
    id: str
    time_ms: int
    size: int
    path: str

    @property
    def place(self) -> str:
        """Its path in the store."""
        return f"{HISTORY}/{self.name}/{self.id}"

    def read(self, disk: Disk) -> ConfigText:
        """What it holds. Raises StorageError."""
        if self.size > LARGEST:
            return ConfigText(ConfigFileState.BROKEN, problem=f"{self.size} bytes")
        return parse(self.data(disk))

    def data(self, disk: Disk) -> bytes:
        """Its bytes. Raises StorageError."""
        return disk.read_file(self.path, LARGEST)


def states(disk: Disk, root: str, name: str) -> list[KeptState]:
    """The states of a file that were kept, newest first. Raises StorageError."""
    directory = os.path.join(root, HISTORY, name)
    kept = []
    for entry in disk.scandir(directory) if disk.is_dir(directory) else ():
        at = _time_of(entry.name)
        if at is not None and entry.is_file and entry.size:
            kept.append(KeptState(name, entry.name, at, entry.size, entry.path))
    return sorted(kept, key=lambda state: (state.time_ms, state.id), reverse=True)


def every_state(disk: Disk, root: str) -> list[KeptState]:
    """Those of all files, newest first. Raises StorageError."""
    kept = [state for name in TABLES for state in states(disk, root, name)]
    return sorted(kept, key=lambda state: (state.time_ms, state.name), reverse=True)


def keep(disk: Disk, root: str, name: str, data: bytes, now_ms: int) -> bool:
    """Keep a state, unless it is the newest already; whether it was. Raises StorageError, DiskFull."""
    if not data or len(data) > LARGEST:
        return False
    known = states(disk, root, name)
    if known and known[0].size == len(data) and known[0].data(disk) == data:
        return False
    directory = os.path.join(root, HISTORY, name)
    disk.mkdirs(directory)
    now_ms = max(now_ms, known[0].time_ms + 1 if known else 0)
    disk.write_file_atomically(os.path.join(directory, id_of(now_ms)), data)
    for state in too_many([now_ms, *(state.time_ms for state in known)]):
        disk.unlink(os.path.join(directory, id_of(state)), missing_ok=True)
    return True


def keep_all(disk: Disk, root: str, now_ms: int) -> None:
    """Keep what config/ holds now. A file that can't be read is passed over."""
    for name in TABLES:
        path = os.path.join(directory_of(root), name)
        try:
            if disk.exists(path) and disk.stat(path).is_file and disk.stat(path).size <= LARGEST:
                keep(disk, root, name, disk.read_file(path, LARGEST), now_ms)
        except StorageError:
            continue


def too_many(times: Sequence[int]) -> list[int]:
    """Which of these states (ms, newest first) go: of each hour and each day that is kept, the oldest stays."""
    kept = set(times[:NEWEST])
    for length, most in ((_HOUR_MS, HOURS), (_DAY_MS, DAYS)):
        oldest = {at // length: at for at in times}
        kept.update(oldest[bucket] for bucket in sorted(oldest, reverse=True)[:most])
    return [at for at in times if at not in kept]


def id_of(millis: int) -> str:
    """The name of a state: UTC time to the millisecond."""
    return time.strftime(_FORM, time.gmtime(millis // 1000)) + f".{millis % 1000:03d}Z"


def _time_of(name: str) -> int | None:
    try:
        seconds, _, rest = name.removesuffix("Z").partition(".")
        at = timegm(time.strptime(seconds, _FORM)) * 1000 + int(rest)
    except ValueError:
        return None
    return at if id_of(at) == name else None
