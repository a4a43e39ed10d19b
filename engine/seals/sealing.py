"""`seal`: each complete segment that has no seal gets one; what became of those that have one is told.

A segment whose file was written after it was sealed keeps its seal: that is damage, a repair of another program, or a
copy that took another time along. Where its bytes are those that were sealed, the seal gets the new time; else only
`renew` makes a new one. The same goes for a seal that is damaged itself.
"""

from __future__ import annotations

import enum
import getpass
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import FormatError, OutsideStore, RStoreError, Shortage, StorageError
from engine.files.lock import StoreLock
from engine.files.low_priority import BytePace
from engine.inspect.store.change_gate import ChangeKind, refuse_change
from engine.inspect.store.survey import survey
from engine.seals.directory import read_seal_in, remove_seal, sealed_offsets, seals_directory, write_seal
from engine.seals.make import complete_segments, make_seal
from engine.seals.seal import hash_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment
    from engine.seals.seal import Seal

    Tick = Callable[[int, int], None]


class SealState(enum.Enum):
    """What there is of a segment's seal."""

    SEALED = "sealed"
    UNSEALED = "not sealed"
    WRITTEN = "written after it was sealed"
    DAMAGED = "seal damaged"
    GONE = "segment deleted"
    REWRITTEN = "being written again"
    """A broker's recovery has ended the log in a segment that was complete before."""


@dataclass(frozen=True, slots=True)
class SealRow:
    """A complete segment, or one that is no longer there, and its seal. `problem`: why the seal can't be read."""

    offset: int
    state: SealState
    segment: Segment | None
    seal: Seal | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """One line of `seal --list`."""
        seal = self.seal
        size = self.segment.size if self.segment is not None else seal.size if seal is not None else 0
        return {
            "segment": self.offset,
            "bytes": size,
            "state": self.state.name.lower(),
            "sealed": None if seal is None else seal.sealed_ms,
            "by": None if seal is None else seal.by,
            "records": None if seal is None else seal.records,
            "damage": 0 if seal is None else len(seal.damage),
            "root": None if seal is None else seal.root.hex(),
            "problem": self.problem or None,
        }


@dataclass(frozen=True, slots=True)
class SealOptions:
    """How segments are sealed.

    Attributes:
        directory: where seals are kept; None: in the store.
        jobs: segments at a time.
        rate: bytes a second that are read at most; None: as fast as it goes.
        renew: seal anew what was written after it was sealed, and what has a damaged seal.
        dry_run: say what would be sealed.
        stop: set, it ends the run.
    """

    directory: str | None = None
    jobs: int = 1
    rate: int | None = None
    renew: bool = False
    dry_run: bool = False
    stop: threading.Event | None = None


@dataclass(slots=True)
class Sealed:
    """What a run has done, or (`dry_run`) would do: `made` and `kept` by segment, `removed` seals of deleted segments.

    `refreshed`: segments whose file has another time and the sealed bytes. `open`: those that only `renew` seals anew.
    `failed`: segments that could not be sealed, and why.
    """

    directory: str
    dry_run: bool
    made: list[SealRow] = field(default_factory=list)
    kept: int = 0
    refreshed: list[int] = field(default_factory=list)
    open: list[SealRow] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    read: int = 0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every complete segment is sealed now, and holds no damage that this run has seen."""
        damaged = any(row.seal is not None and row.seal.damage for row in self.made)
        return not (self.open or self.failed or damaged)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `rstore seal`."""
        return {
            "directory": self.directory,
            "dryRun": self.dry_run,
            "sealed": [row.to_json() for row in self.made],
            "alreadySealed": self.kept,
            "refreshed": self.refreshed,
            "notRenewed": [row.to_json() for row in self.open],
            "removed": self.removed,
            "failed": [{"segment": offset, "error": error} for offset, error in self.failed],
            "bytesRead": self.read,
            "seconds": round(self.seconds, 3),
        }


def list_seals(disk: Disk, files: StoreFiles, directory: str | None = None) -> list[SealRow]:
    """Every complete segment and every seal, by offset. Raises StorageError."""
    where = directory or seals_directory(files.root)
    complete = {one.offset for one in complete_segments(disk, files)}
    segments = {one.offset: one for one in files.log}
    offsets = sorted({*complete, *sealed_offsets(disk, where)})
    rows = [_row(disk, where, segments.get(offset), offset) for offset in offsets]
    return [_as_complete(row, row.offset in complete) for row in rows]


def _as_complete(row: SealRow, is_complete: bool) -> SealRow:
    if is_complete or row.state not in (SealState.WRITTEN, SealState.DAMAGED):
        return row
    return replace(row, state=SealState.REWRITTEN)


def seal_store(disk: Disk, config: StoreConfig, options: SealOptions, progress: Tick | None = None) -> Sealed:
    """Seal what is not sealed yet. Killed at any point, it is run again.

    Raises:
        NotAStore, NewerStore, StorageError, DiskFull. StoreLocked: somebody else seals. NotInstalled.
    """
    hash_of(b"")
    files = survey(disk, config)
    refuse_change(files.root, files.newer, ChangeKind.SEAL)
    directory = options.directory or seals_directory(files.root)
    result = Sealed(directory, options.dry_run)
    began = time.monotonic()
    if options.dry_run:
        _Sealing(disk, files, options, result, progress).plan()
    else:
        disk.mkdirs(directory)
        with StoreLock(disk, directory, what="the directory of seals"):
            _Sealing(disk, files, options, result, progress).run()
    result.seconds = time.monotonic() - began
    return result


class _Stopped(Exception):
    """The run ends within a segment."""


class _Sealing:
    def __init__(
        self, disk: Disk, files: StoreFiles, options: SealOptions, result: Sealed, progress: Tick | None
    ) -> None:
        self._disk = disk
        self._files = files
        self._options = options
        self._result = result
        self._progress = progress
        self._stop = options.stop or threading.Event()
        self._pace = BytePace(options.rate, self._stop)
        self._lock = threading.Lock()
        self._total = 0
        self._by = user_and_host()

    def plan(self) -> list[SealRow]:
        """What is to be read; the rest is in the result."""
        rows = list_seals(self._disk, self._files, self._options.directory)
        todo: list[SealRow] = []
        for row in rows:
            if row.state is SealState.GONE:
                # One of a later log is left: nobody has deleted that by retention.
                if self._files.log and row.offset < self._files.log[0].offset:
                    self._result.removed.append(row.offset)
            elif row.state is SealState.REWRITTEN:
                self._result.removed.append(row.offset)
            elif row.state is SealState.SEALED:
                self._result.kept += 1
            elif row.state is SealState.DAMAGED and not self._options.renew:
                self._result.open.append(row)
            else:
                todo.append(row)
        if self._options.dry_run:
            self._result.made += todo
        return todo

    def run(self) -> None:
        todo = self.plan()
        for offset in self._result.removed:
            remove_seal(self._disk, self._result.directory, offset)
        self._total = sum(row.segment.size for row in todo if row.segment is not None)
        with ThreadPoolExecutor(self._options.jobs, "rstore-seal") as pool:
            try:
                for row, made in zip(todo, pool.map(self._make, todo), strict=True):
                    if made is not None:
                        self._keep(row, made)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, row: SealRow) -> Seal | None:
        """The segment's seal of now; None where it can't be made, which is noted, or the run ends."""
        if row.segment is None or self._stop.is_set():
            return None
        try:
            return make_seal(
                self._disk,
                row.segment,
                max_message_size=self._files.config.max_message_size,
                by=self._by,
                total=self._total,
                progress=self._tick,
            )
        except _Stopped:
            return None
        except StorageError as error:
            if self._disk.exists(row.segment.path):  # else a broker has deleted it: retention begins at the front
                with self._lock:
                    self._result.failed.append((row.offset, str(error)))
            return None

    def _keep(self, row: SealRow, made: Seal) -> None:
        if row.state is SealState.WRITTEN and row.seal is not None:
            if made.root == row.seal.root:
                if self._write(replace(row.seal, mtime_ns=made.mtime_ns)):
                    self._result.refreshed.append(row.offset)
                return
            if not self._options.renew:
                self._result.open.append(row)
                return
        if self._write(made):
            self._result.made.append(replace(row, seal=made, state=SealState.SEALED))

    def _write(self, seal: Seal) -> bool:
        """Keep a seal; False where something stands in its place: the others are made all the same."""
        try:
            write_seal(self._disk, self._result.directory, seal)
        except Shortage:
            raise
        except (StorageError, OutsideStore) as error:
            self._result.failed.append((seal.offset, str(error)))
            return False
        return True

    def _tick(self, size: int) -> None:
        self._pace.wait(size)
        if self._stop.is_set():
            raise _Stopped
        with self._lock:
            self._result.read += size
            read = self._result.read
        if self._progress is not None:
            self._progress(read, self._total)


def _row(disk: Disk, directory: str, segment: Segment | None, offset: int) -> SealRow:
    try:
        seal = read_seal_in(disk, directory, offset)
    except (FormatError, StorageError) as error:
        return SealRow(
            offset, SealState.DAMAGED if segment is not None else SealState.GONE, segment, problem=str(error)
        )
    if segment is None:
        return SealRow(offset, SealState.GONE, None, seal)
    if seal is None:
        return SealRow(offset, SealState.UNSEALED, segment)
    is_same = (seal.size, seal.mtime_ns) == (segment.size, mtime_of(disk, segment))
    return SealRow(offset, SealState.SEALED if is_same else SealState.WRITTEN, segment, seal)


def user_and_host() -> str:
    """Who works here."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user id that has no name
        return f"{os.getuid()}@{socket.gethostname()}"


def mtime_of(disk: Disk, segment: Segment) -> int:
    """A segment's modification time, ns; 0 where it has been deleted meanwhile."""
    try:
        return disk.stat(segment.path).mtime_ns
    except RStoreError:
        if disk.exists(segment.path):
            raise
        return 0
