"""Writes units into the files of a closed consume queue: at given offsets, in any order; missing files are made.

Through the channel, never through a map: a mender must not meet a full disk as SIGBUS. A new file is as long as the
setting says and sparse, as Apache's are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format.names import segment_name, segment_offset
from engine.format.queue_unit import UNIT_SIZE

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile
    from engine.files.sync_later import SyncLater


class QueueWriter:
    """Units of one queue. A context manager.

    Args:
        disk: how files are reached.
        directory: the queue's.
        file_size: bytes of a file, a multiple of
        unit_size: bytes of a unit.
        later: takes note of what is to be made durable.
    """

    def __init__(
        self, disk: Disk, directory: str, file_size: int, later: SyncLater, *, unit_size: int = UNIT_SIZE
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file_size = file_size
        self._unit_size = unit_size
        self._later = later
        self._open: dict[int, RawFile] = {}
        self._all_made = False  # no file was there

    def __enter__(self) -> QueueWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, start: int, rows: bytes | memoryview) -> None:
        """Write whole units from the one of number `start` on: its queue offset, but in batch queues.

        Raises:
            DiskFull, StorageError.
        """
        at = start * self._unit_size
        data = memoryview(rows)
        while data:
            offset = at - at % self._file_size
            room = offset + self._file_size - at
            self._file(offset).write(at - offset, data[:room])
            at += min(room, len(data))
            data = data[room:]

    def clear(self, start: int, end: int) -> None:
        """Make the units [start, end) zero, in files that are there."""
        for offset in range(
            start * self._unit_size - start * self._unit_size % self._file_size, end * self._unit_size, self._file_size
        ):
            if offset in self._open or self._disk.exists(self._path(offset)):
                low = max(start * self._unit_size, offset)
                high = min(end * self._unit_size, offset + self._file_size)
                self._file(offset).write(low - offset, bytes(high - low))

    def remove_from(self, end: int) -> None:
        """Remove the files that begin at queue offset `end` or after, last one first."""
        if self._all_made:
            return
        for entry in sorted(self._disk.scandir(self._directory), key=lambda e: e.name, reverse=True):
            offset = segment_offset(entry.name)
            if entry.is_file and offset is not None and offset >= end * self._unit_size:
                file = self._open.pop(offset, None)
                if file is not None:
                    file.close()
                self._disk.step("queue.remove-file")
                self._disk.unlink(entry.path)
                self._later.forget(entry.path)
                self._later.directory(self._directory)

    def close(self) -> None:
        """Close the files."""
        for file in self._open.values():
            self._later.file(file.path, self._file_size)
            file.close()
        self._open.clear()

    def _file(self, offset: int) -> RawFile:
        file = self._open.get(offset)
        if file is None:
            path = self._path(offset)
            if not self._disk.exists(path):
                if not self._open and not self._disk.exists(self._directory):
                    self._disk.mkdirs(self._directory, later=self._later)
                    self._all_made = True
                file = self._disk.open_raw(path, new=True)
                file.set_size(self._file_size)
                self._later.directory(self._directory)
            else:
                file = self._disk.open_raw(path, writable=True)
            self._open[offset] = file
        return file

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, segment_name(offset))
