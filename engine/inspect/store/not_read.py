"""Files beside the commit log's that hold something, and that no reader reads: no verdict passes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.files.listing import Oddness, list_segments
from engine.inspect.store.segment_size import segment_size

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.odd import OddFile

_NOT_FILES = (Oddness.NOT_A_FILE, Oddness.ABSENT)


def not_read(disk: Disk, config: StoreConfig) -> tuple[OddFile, ...]:
    """What names and lengths alone tell, of a log of any kind. Raises StorageError."""
    directories = [path for path in config.log_directories if disk.is_dir(path)]
    size = config.mapped_file_size_commit_log
    if "mapped_file_size_commit_log" not in config.given:
        size = segment_size(disk, (entry for path in directories for entry in disk.scandir(path))) or size
    odd = [one for one in list_segments(disk, directories, size).odd if one.size and one.why not in _NOT_FILES]
    if not odd:
        return ()
    from engine.inspect.store.odd import listed  # not loaded where there is nothing to say

    return tuple(listed(one, movable=False) for one in odd)
