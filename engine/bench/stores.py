"""The stores around a workload's log: one that is kept, and the copies that the measures run on.

What is kept is what Apache's store leaves when its process is killed, untouched (`left/`: its queues, its index, full
of holes, its checkpoint, the abort file, the next segment), and beside it the same closed by rstore's own recovery.
Without Java the log is written here, and only the closed store is kept: a copy that is to look killed gets a next
segment. A copy has the same log by hard links (no measure on a copy writes the log, which is checked), so that the page
cache is as warm for one copy as for the other; queues and index, which are written, are copied and synced first.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from engine.bench.workload import BORN_MS, PER_MS
from engine.config import STORE_CONF, STORE_SIZES, apache_key
from engine.dataclass import dataclass
from engine.errors import CannotRepair, StorageError
from engine.files.disk import Disk
from engine.format import names
from engine.format.checkpoint import FILE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.bench.workload import Workload

LEFT = "left"
KEPT = "workload.json"
"""Written last into a kept store: what it was made of."""
_READ = 1 << 20
_SYNCED = 500
"""Files that are synced one by one; more are synced with all else on the machine."""


class CopyState(enum.Enum):
    """What a copy is like."""

    LOG_ONLY = "log only, after a crash: everything is to be rebuilt"
    CRASHED = "as a killed process leaves it: queues, index, checkpoint, the next segment"
    CLOSED = "closed cleanly"
    BARE = "closed cleanly, log only: neither queues nor index"


@dataclass(frozen=True, slots=True)
class Made:
    """What a workload's store holds: messages, bytes of their records, when the first was stored, how many each ms.

    `by_apache`: Apache's store wrote it, and what that left is there, too.
    """

    messages: int
    record_bytes: int
    by_apache: bool = False
    first_ms: int = BORN_MS
    per_ms: int = PER_MS


@dataclass(frozen=True, slots=True)
class KeptStore:
    """The closed store of a workload, at `root`, and, where Apache made it, what that left, at `root`/left."""

    workload: Workload
    root: Path
    made: Made

    @property
    def messages(self) -> int:
        """In its log."""
        return self.made.messages

    @property
    def record_bytes(self) -> int:
        """Bytes of their records."""
        return self.made.record_bytes

    def copy(self, state: CopyState, into: Path) -> Path:
        """A store in that state at `into`, which is made anew.

        Raises:
            StorageError: it can't be copied; OSError.
        """
        remove(into)
        into.mkdir(parents=True)
        killed = state in (CopyState.CRASHED, CopyState.LOG_ONLY)
        source = self.root / LEFT if killed and self.made.by_apache else self.root
        cp("-al", source / names.COMMITLOG, into)
        if state in (CopyState.CRASHED, CopyState.CLOSED):
            for name in (names.CONSUMEQUEUE, names.INDEX):
                cp("-a", "--reflink=auto", "--sparse=auto", source / name, into)
            cp("-a", source / names.CHECKPOINT, into)
        else:
            (into / names.CHECKPOINT).write_bytes(bytes(FILE_SIZE))
        if not (state is CopyState.CRASHED and self.made.by_apache):  # untouched: its files tell their sizes
            write_sizes(self.workload, into)
        if killed:
            (into / names.ABORT).touch()
            if not self.made.by_apache:
                make_next_segment(self.workload, into / names.COMMITLOG)
        _sync(into)
        return into

    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Name, size and modification time (ns) of the log's files: no measure may change them."""
        segments = sorted((self.root / names.COMMITLOG).iterdir())
        return tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in segments)

    def demand_same(self, stamps: tuple[tuple[str, int, int], ...]) -> None:
        """Raises CannotRepair when the log is no longer as `stamps` says: what was measured is worth nothing then."""
        if stamps != self.stamps():
            raise CannotRepair("a measurement wrote to the log that all of them share", path=self.root)


def write_sizes(workload: Workload, root: Path) -> None:
    """rstore.conf, which tells the command line the sizes that the files of a small store don't."""
    config = workload.config(root)
    lines = [f"{apache_key(name)}={getattr(config, name)}" for name in STORE_SIZES]
    (root / STORE_CONF).write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_next_segment(workload: Workload, log: Path) -> None:
    """The segment that a broker has ready before it needs it: all hole."""
    last = max(int(path.name) for path in log.iterdir())
    with (log / names.segment_name(last + workload.segment)).open("wb") as file:
        file.truncate(workload.segment)


def close_left(workload: Workload, root: Path) -> None:
    """Beside what Apache left (`root`/left) the same store at `root`, not yet recovered: the log by hard links."""
    left = root / LEFT
    cp("-al", left / names.COMMITLOG, root)
    for name in (names.CONSUMEQUEUE, names.INDEX, names.CHECKPOINT, names.ABORT):
        cp("-a", "--reflink=auto", "--sparse=auto", left / name, root)
    write_sizes(workload, root)


def keep(
    workload: Workload,
    work: Path,
    make: Callable[[Workload, Path], Made],
    stem: str | None = None,
    *,
    by_apache: bool = False,
) -> KeptStore:
    """The workload's store below `work`; `make(workload, root)` makes it when it isn't there as it has to be.

    `by_apache`: who is to have made it. Raises what `make` raises, and OSError.
    """
    root = work / (stem or workload.name)
    known = root / KEPT
    with contextlib.suppress(OSError, ValueError, TypeError):
        key, made_text = known.read_text(encoding="utf-8").splitlines()
        made = Made(**json.loads(made_text))
        if key == workload.key and made.by_apache == by_apache:
            return KeptStore(workload, root, made)
    remove(root)
    root.mkdir(parents=True)
    made = make(workload, root)
    known.write_text(f"{workload.key}\n{json.dumps(asdict(made))}\n", encoding="utf-8")
    return KeptStore(workload, root, made)


def remove(path: Path) -> None:
    """Remove a directory and all below it, if it is there. Raises OSError."""
    if path.exists():
        shutil.rmtree(path)


def retire(root: Path, retired: Path) -> None:
    """Take a store away: one of many files goes, without its blocks, below `retired`, and any other is removed.

    Where thousands of files were just removed, ext4 looks for a free inode past each of them, and a copy, or a rebuild
    that is measured, takes many times as long (recently_deleted in the kernel's ext4).

    Raises OSError.
    """
    files = list(_files(root))
    if len(files) <= _SYNCED:
        remove(root)
        return
    retired.mkdir(exist_ok=True)
    place = retired / str(len(list(retired.iterdir())))
    root.rename(place)
    for path in _files(place):
        if path.stat().st_nlink > 1:  # the log, which other stores have, too
            path.unlink()
        else:
            os.truncate(path, 0)


def demand_space(work: Path, wanted: int) -> None:
    """Raises StorageError when `wanted` bytes don't fit below `work`."""
    free = Disk().writable(str(work))
    if free < wanted:
        raise StorageError(
            f"{wanted >> 20} MiB are needed for the logs and their copies, {free >> 20} MiB are free",
            path=work,
            hint="use another directory (--work) or smaller logs (--size)",
        )


# --- the page cache --------------------------------------------------------------------------------------------------


def warm(root: Path) -> None:
    """Read all that has blocks of the store, so that it is in the page cache."""
    buffer = bytearray(_READ)
    for path in _files(root):
        with path.open("rb", buffering=0) as file:
            for start, end in _data_ranges(file.fileno()):
                file.seek(start)
                while file.tell() < end and file.readinto(buffer):
                    pass


def cool(root: Path) -> str:
    """Take the store's files, and no others, out of the page cache; how that was done."""
    _sync(root)
    for path in _files(root):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return "posix_fadvise(DONTNEED) over each file of the store, after sync"


def _sync(root: Path) -> None:
    """Write the store's files back, so that it doesn't happen in the middle of a measure."""
    files = list(_files(root))
    if len(files) > _SYNCED:
        os.sync()
        return
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _files(root: Path) -> Iterator[Path]:
    for directory, _, files in os.walk(root):
        for name in files:
            yield Path(directory, name)


def _data_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """Where the file has blocks: [start, end) in bytes."""
    size = os.fstat(descriptor).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        yield at, end
        at = end


def cp(*words: str | Path) -> None:
    """The system's `cp`, which knows holes, links and clones. Raises StorageError."""
    ran = subprocess.run(["cp", *words], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise StorageError(f"cp: {' '.join(ran.stderr.split())}", path=words[-1])
