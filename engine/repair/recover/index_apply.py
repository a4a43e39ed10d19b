"""A plan's changes of the index: files that are deleted, rewound or made, keys that are put."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine.files.libc import Libc
from engine.inspect.store.spool import CHUNK_ROWS
from engine.log.index_file import IndexFile
from engine.log.index_service import IndexService
from engine.repair.recover.index_plan import index_directory
from engine.repair.trees import sync_file

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.spool import KeySpool
    from engine.repair.recover.plan import RecoverPlan

_MANY = 1 << 21
"""Keys from which on what planning has freed is given back before more is taken: that takes some milliseconds."""


class IndexApplier:
    """Does what the plan says of the index."""

    def __init__(self, disk: Disk, plan: RecoverPlan) -> None:
        self._disk = disk
        self._plan = plan
        self._files = plan.files

    def run(self) -> tuple[str, ...]:
        """Do it. The names of the index files. Raises DiskFull, StorageError."""
        disk, index = self._disk, self._plan.index
        directory = index_directory(self._files)
        if not index.enabled:
            return index.names_after
        for name in index.removed:
            path = os.path.join(directory, name)
            if disk.exists(path):
                disk.step("recover.remove-index")
                disk.unlink(path)
                disk.sync_dir(directory)
        layout = self._files.index_layout
        for rewind in index.rewinds:
            disk.step("recover.rewind-index")
            file = IndexFile.open(disk, os.path.join(directory, rewind.name), layout)
            try:
                file.rewind(rewind.keep, previous=rewind.previous, end_timestamp=rewind.end_timestamp)
            finally:
                file.shutdown()
        made: list[str] = []
        for insert in index.inserts:
            disk.step("recover.insert-index")
            made += self._insert(directory, insert.name, insert.keys)
        service = IndexService(disk, directory, layout)
        service.open(index.names_after)
        if index.keys_put >= _MANY:
            Libc().give_back_freed()
        with ThreadPoolExecutor(1, "rstore-index") as beside:
            # by this thread alone where each run is to make the same changes in the same order (`Disk.concurrent`)
            service.expect_keys(index.keys_put, beside if disk.concurrent else None)
            try:
                since = CHUNK_ROWS
                for keys in index.tail.chunks() if index.keys_put else ():
                    if since >= CHUNK_ROWS:
                        disk.step("recover.put-keys")
                        since = 0
                    service.put(keys)
                    service.begin_writing()
                    since += len(keys)
                service.flush_all()
                last = [os.path.basename(file.path) for file in service.files]
            finally:
                service.shutdown()
        for name in index.names_after:  # a killed broker's pages may be in the cache only, but the checkpoint vouches
            sync_file(disk, os.path.join(directory, name), layout.file_size)
        return tuple(sorted({*made, *last}))

    def _insert(self, directory: str, name: str, spool: KeySpool) -> list[str]:
        """Put keys into files of their own, named from `name` on."""
        made: list[str] = []
        file: IndexFile | None = None
        number = int(name)
        for keys in spool.chunks():
            done = 0
            while done < len(keys):
                if file is None or file.is_full:
                    if file is not None:
                        file.flush()
                        file.shutdown()
                    made.append(f"{number + len(made):017d}")
                    path = os.path.join(directory, made[-1])
                    file = IndexFile.create(self._disk, path, self._files.index_layout)
                    file.gather_slots(len(spool))
                columns = (keys.key_hash[done:], keys.physical_offset[done:], keys.store_timestamp[done:])
                done += file.put_keys(*columns)
                file.begin_writing()
        if file is not None:
            file.flush()
            file.shutdown()
        return made
