"""Making a closed store durable as it lies: what a killed process has written may be in the system's memory alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.files.sync_later import SyncLater
from engine.format import names

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

_ALONE = (names.CHECKPOINT, names.ABORT)


def sync_store(disk: Disk, files: StoreFiles) -> int:
    """Sync all files of a store, and the directories that name them; how many files. Changes no byte.

    Raises:
        StorageError.
    """
    later = SyncLater(disk)
    paths = {segment.path: segment.size for segment in files.log}
    paths |= {file.path: file.size for queue in files.queues for file in queue.files}
    paths |= {index.path: index.size for index in files.index}
    config = os.path.join(files.root, names.CONFIG)
    for entry in disk.scandir(config) if disk.is_dir(config) else ():
        if entry.is_file:
            paths[entry.path] = entry.size
    for name in _ALONE:
        path = os.path.join(files.root, name)
        if disk.exists(path):
            paths[path] = disk.stat(path).size
    for path, size in paths.items():
        later.file(path, size)
    for directory in {os.path.dirname(path) for path in paths}:
        later.directory(directory)
    later.flush()
    return len(paths)
