"""Missing segments of the log that lie in a directory of the store which no setting names.

A log in several directories (storePathCommitLog) has holes for who gives no broker.conf, or one that names not all of
them: they are no loss. So is a segment that somebody moved aside. Its first record proves that it is the one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.format import names
from engine.format.record import MAGICS, V4_HEAD_SIZE, magic_at, physical_offset_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.inspect.store.survey import StoreFiles

_OTHERS = frozenset(names.FOLDERS) - {names.COMMITLOG}


def unnamed_segment(disk: Disk, files: StoreFiles, missing: Iterable[tuple[int, int]]) -> str | None:
    """The path of a segment that belongs into one of these ranges [from, to) of the log (physical), if there is one.

    Looked at are the directories in the store's own: one listing each, and the head of a file whose name fits.
    """
    holes = list(missing)
    if not holes:
        return None
    named = {disk.behind_link(path) for path in files.config.log_directories if disk.is_dir(path)}
    for directory in disk.scandir(files.root):
        if directory.name in _OTHERS or not directory.is_directory or disk.behind_link(directory.path) in named:
            continue
        for entry in disk.scandir(directory.path):
            offset = names.segment_offset(entry.name)
            wanted = offset is not None and any(low <= offset < high for low, high in holes)
            if offset is not None and wanted and _is_it(disk, files, entry, offset):
                return entry.path
    return None


def _is_it(disk: Disk, files: StoreFiles, entry: Entry, offset: int) -> bool:
    if not entry.is_file or entry.size != files.config.mapped_file_size_commit_log:
        return False
    try:
        reader = disk.open_reader(entry.path)
        try:
            head = bytes(reader.read(0, V4_HEAD_SIZE))
        finally:
            reader.close()
    except StorageError:
        return False
    return len(head) == V4_HEAD_SIZE and magic_at(head) in MAGICS and physical_offset_at(head) == offset
