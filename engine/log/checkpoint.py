"""The checkpoint file of an open store: three times that say how far log, queues and index are on disk.

Theory (Apache StoreCheckpoint): whoever has made something durable sets the store time of its newest message
here, and `flush` writes all three. They lie in the file's first 24 bytes, so within one sector: a crash leaves the
old ones or the new ones. After a crash they tell recovery from where on to look.

Invariants: what lies after the three times (5.x keeps two more fields there) is never changed. A file that is
missing or too short gets its 4096 bytes at the first flush, at one stroke; until then nothing is written.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format import checkpoint
from engine.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from engine.files.disk import Disk


class CheckpointFile:
    """The file and its times. Threads may set times and flush at once.

    Attributes:
        path: the file.
        physic_msg_timestamp: store time (ms) of the newest message that is durable in the commit log.
        logics_msg_timestamp: the same for the consume queues.
        index_msg_timestamp: the same for the index files that are full.
        finding: what is wrong with the file on disk, None when nothing is (a missing one is new, not wrong).
    """

    __slots__ = (
        "_disk",
        "_lock",
        "_whole",
        "finding",
        "index_msg_timestamp",
        "logics_msg_timestamp",
        "path",
        "physic_msg_timestamp",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._whole = False
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.finding: FormatError | None = None

    @classmethod
    def load(cls, disk: Disk, path: str) -> CheckpointFile:
        """Read the file; zeros when it is missing or shorter than the three times. Writes nothing.

        Raises:
            StorageError: it can't be read.
        """
        file = cls(disk, path)
        if not disk.exists(path):
            return file
        size = disk.stat(path).size
        if size >= checkpoint.FIELDS_SIZE:
            file.set(checkpoint.decode(disk.read_file(path, checkpoint.FIELDS_SIZE)))
        if size != checkpoint.FILE_SIZE:
            file.finding = FormatError(
                f"the checkpoint has {size} bytes instead of {checkpoint.FILE_SIZE}",
                path=path,
                hint="it is usable; the next clean shutdown rewrites it" if size < checkpoint.FILE_SIZE else None,
            )
        file._whole = size >= checkpoint.FILE_SIZE
        return file

    @property
    def value(self) -> Checkpoint:
        """The three times of this moment."""
        return Checkpoint(self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)

    def set(self, value: Checkpoint) -> None:
        """Take over all three times; `flush` writes them."""
        self.physic_msg_timestamp = value.physic_msg_timestamp
        self.logics_msg_timestamp = value.logics_msg_timestamp
        self.index_msg_timestamp = value.index_msg_timestamp

    def flush(self) -> None:
        """Make the three times durable.

        Raises:
            DiskFull, StorageError: the file on disk then holds the times of the flush before.
        """
        with self._lock:
            data = self.value.encode()
            if self._whole:
                self._overwrite(data)
            else:
                self._write_whole(data)
                self._whole = True
                self.finding = None

    def _overwrite(self, data: bytes) -> None:
        file = self._disk.open_raw(self.path, writable=True)
        try:
            file.write(0, data)
            file.sync(0, len(data))
        finally:
            file.close()

    def _write_whole(self, data: bytes) -> None:
        rest = self._disk.read_file(self.path)[len(data) :] if self._disk.exists(self.path) else b""
        self._disk.write_file_atomically(self.path, (data + rest).ljust(checkpoint.FILE_SIZE, b"\0"))
