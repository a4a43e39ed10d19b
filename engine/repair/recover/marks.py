"""Checkpoint and abort file as a recovery leaves them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import DiskFull
from engine.files.abort import AbortFile
from engine.format import names
from engine.format.checkpoint import FILE_SIZE, SAFETY_MS, Checkpoint
from engine.log.index_reader import ClosedIndexFile
from engine.repair.recover.index_plan import index_directory

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.repair.recover.plan import RecoverPlan


class Marks:
    """Writes them for a plan."""

    def __init__(self, disk: Disk, plan: RecoverPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._files = plan.files

    def leave_clean(self, index_files: tuple[str, ...]) -> None:
        """A checkpoint that says that everything is on disk, and no abort file: as after a clean shutdown.

        With damage left that a normal start would cut at, the abort file stays (or is made), and the checkpoint lets
        the next start begin with the last segment. It stays, too, where a broker has queues in RocksDB to build.
        """
        plan = self._plan
        if plan.changed or plan.marks:
            indexed = self._newest_indexed(index_files) if plan.keeps_abort else 0
            self.mark(SAFETY_MS if plan.trap is not None else 0, abort=plan.keeps_abort, indexed=indexed)

    def mark(self, ahead_ms: int, *, abort: bool, indexed: int = 0) -> None:
        """The checkpoint at the newest message, and so much after it; then the abort file, or none."""
        disk, files = self._disk, self._files
        emptied = self._plan.to is not None and self._plan.to == self._plan.log.min_offset
        newest = self._plan.log.end.last_store_timestamp or (0 if emptied else files.checkpoint.physic_msg_timestamp)
        newest += ahead_ms
        path = os.path.join(files.root, names.CHECKPOINT)
        whole = disk.read_file(path, FILE_SIZE) if disk.exists(path) else b""
        point = Checkpoint(newest, newest, max(newest, indexed)).encode()
        if self._plan.replica is not None:
            point += self._plan.replica.encode()
        try:
            disk.write_file_atomically(path, (point + whole[len(point) :]).ljust(FILE_SIZE, b"\0"))
        except DiskFull:
            if len(whole) < FILE_SIZE:
                raise
            self._overwrite_checkpoint(path, point)
        disk.step("recover.checkpoint-written")
        mark = AbortFile(disk, files.root)
        if abort:
            mark.create()
        elif files.abort:
            mark.remove()

    def _newest_indexed(self, index_files: tuple[str, ...]) -> int:
        """The newest store time (ms) that an index file holds, 0 without one: a clock may have gone back after it.

        A broker that was not closed takes files newer than the checkpoint for torn (IndexService#load deletes them).
        """
        directory, layout = index_directory(self._files), self._files.index_layout
        newest = 0
        for name in index_files:
            with ClosedIndexFile(self._disk, os.path.join(directory, name), layout) as file:
                newest = max(newest, file.header.end_timestamp)
        return newest

    def _overwrite_checkpoint(self, path: str, point: bytes) -> None:
        """On a full disk, as Apache does it always: a few bytes within one sector."""
        file = self._disk.open_raw(path, writable=True)
        try:
            file.write(0, point)
            file.sync(0, len(point))
        finally:
            file.close()
