"""The files beside a restored log: configuration, and what else can't be made anew."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.backup.manifest import PIECE_SIZE, StoredFile
from engine.backup.restore.topics import of_topics, table_of_topics
from engine.config import STORE_CONF, STORE_SIZES, apache_key
from engine.format import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.manifest import Snapshot
    from engine.backup.repository import Repository
    from engine.files.disk import Disk


def write_files(
    disk: Disk, repository: Repository, snapshot: Snapshot, root: str, end: int, topics: frozenset[str]
) -> None:
    """See the module. The checkpoint only of a log that is restored whole: `end` is where it ends.

    `topics`: what belongs to these alone; empty: all. `rstore.conf` has the sizes of the store's files.

    Raises:
        FormatError, StorageError: the repository is damaged, or the disk refused.
    """
    is_whole = end >= snapshot.end
    for file in snapshot.files:
        if (file.path == names.CHECKPOINT and not is_whole) or file.path == STORE_CONF:
            continue
        if file.path.startswith(names.SEALS + "/") and (topics or not _is_sealed(file.path, snapshot, end)):
            continue
        if topics and not of_topics(file.path, topics):
            continue
        path = os.path.join(root, file.path)
        disk.mkdirs(os.path.dirname(path))
        if topics and file.path.startswith(names.CONFIG + "/"):
            table = table_of_topics(file.path, b"".join(bytes_of(repository, file)), topics)
            disk.write_file_atomically(path, table)
        else:
            _write_file(disk, repository, path, file)
    keys = sorted(snapshot.sizes.keys() & set(map(apache_key, STORE_SIZES)))
    lines = [f"{key}={snapshot.sizes[key]}" for key in keys]
    disk.write_file_atomically(os.path.join(root, STORE_CONF), ("\n".join(lines) + "\n").encode())


def _is_sealed(path: str, snapshot: Snapshot, end: int) -> bool:
    """Whether the segment of a seal is restored as it was backed up: whole."""
    offset = names.seal_offset(os.path.basename(path))
    return any(one.offset == offset and one.is_complete and one.offset + one.size <= end for one in snapshot.segments)


def bytes_of(repository: Repository, file: StoredFile) -> Iterator[bytes]:
    """A file's bytes, in order; zeros at its end left out. Raises NotFound, FormatError, StorageError."""
    at = 0
    for position, data in _content(repository, file):
        yield bytes(position - at) + data
        at = position + len(data)


def _write_file(disk: Disk, repository: Repository, path: str, file: StoredFile) -> None:
    target = disk.open_raw(path, writable=True, create=True)
    try:
        target.set_size(0)
        target.set_size(file.size)
        for at, data in _content(repository, file):
            target.write(at, data)
        target.sync(0, file.size)
    finally:
        target.close()
    disk.sync_dir(os.path.dirname(path))


def _content(repository: Repository, file: StoredFile) -> Iterator[tuple[int, bytes]]:
    """A file's bytes by position, zeros left out."""
    for number, piece in enumerate(file.pieces):
        if piece is not None:
            yield number * PIECE_SIZE, repository.get_piece(piece)
