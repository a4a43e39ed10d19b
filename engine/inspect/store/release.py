"""Which release of RocketMQ 5 wrote a store, as far as its files tell.

No file names the release that wrote it, but some files, and some keys of files, came with a release. Each is a sign
that this release, or a later one, has used the store; an earlier one may have, too, before an upgrade or after it.

Signs up to 5.2 are by the sources of 5.0.0 to 5.3.3 (TimerCheckpoint, CompactionPositionMgr, TransactionMetrics,
MessageStoreConfig#enabledAppendPropCRC, DataVersion#stateVersion); those of 5.4 and 5.5 by what 5.3.3, 5.4.0 and 5.5.0
left with default settings.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.format import checkpoint, names
from engine.inspect.store.newer import PROPERTY_CRC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

_MOST = 1 << 20
"""Bytes of a table of config/ that are looked at, of its front and of its end: keys in between are of groups."""


@dataclass(frozen=True, slots=True)
class Release:
    """The earliest release that leaves a file like `sign` (relative to the store)."""

    least: str
    sign: str

    def __str__(self) -> str:
        return f"RocketMQ {self.least} or later ({self.sign})"

    def is_since(self, release: str) -> bool:
        """Whether it is this release (such as 5.4) or a later one."""
        return _numbers(self.least) >= _numbers(release)

    def to_json(self) -> dict[str, str]:
        """One object."""
        return {"least": self.least, "sign": self.sign}


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def release_of(disk: Disk, files: StoreFiles) -> Release | None:
    """The release by its latest sign; None: there is none, or the store has nothing of RocketMQ 5."""
    return next(_signs(disk, files), None) if files.newer else None


def _signs(disk: Disk, files: StoreFiles) -> Iterator[Release]:
    """The latest release first."""
    root, crc = files.root, files.newer.where(PROPERTY_CRC)
    if _names(disk, root, "consumerOffset.json", b'"pullOffsetTable"'):
        yield Release("5.5", f"{names.CONFIG}/consumerOffset.json: pullOffsetTable")
    with contextlib.suppress(StorageError):
        if queues_offset(disk, root) > 0:
            yield Release("5.5", f"{names.CHECKPOINT}: logicsPhysicalOffset")
    if disk.exists(os.path.join(root, names.ROCKSDB_STORE)):
        yield Release("5.4", f"{names.ROCKSDB_STORE}/")
    if crc.startswith(names.COMMITLOG):  # a setting alone has written nothing yet
        yield Release("5.2", crc)
    if disk.exists(os.path.join(root, names.CONFIG, "transactionMetrics")):
        yield Release("5.2", f"{names.CONFIG}/transactionMetrics")
    if disk.exists(os.path.join(root, "compaction")):
        yield Release("5.1", "compaction/")
    for name in ("timerwheel", "batchconsumequeue", "epochFileCheckpoint"):
        if disk.exists(os.path.join(root, name)):
            yield Release("5.0", name)
    for name in ("topics.json", "consumerOffset.json"):
        if _names(disk, root, name, b'"stateVersion"'):
            yield Release("5.0", f"{names.CONFIG}/{name}: stateVersion")


def _names(disk: Disk, root: str, name: str, key: bytes) -> bool:
    """Whether a table has this key beside its front or its end."""
    path = os.path.join(root, names.CONFIG, name)
    with contextlib.suppress(StorageError):  # what can't be read is another's to say
        reader = disk.open_reader(path) if disk.exists(path) else None
        if reader is not None:
            try:
                size = reader.size()
                return any(key in bytes(reader.read(at, min(size, _MOST))) for at in {0, max(0, size - _MOST)})
            finally:
                reader.close()
    return False


def queues_offset(disk: Disk, root: str) -> int:
    """logicsPhysicalOffset of the checkpoint (5.5), 0 without one. Raises StorageError."""
    path = os.path.join(root, names.CHECKPOINT)
    entry = disk.look(path)
    there = entry is not None and entry.is_file
    return checkpoint.decode_queues_offset(disk.read_file(path, checkpoint.NEWER_SIZE)) if there else 0
