"""What of a store can't be made anew from its log: configuration, checkpoint, the ends of expired queues;
and the seals of its segments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.config import STORE_CONF
from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.written import written_end
from engine.format import names
from engine.format.queue_unit import UNIT_SIZE, decode
from engine.seals.directory import seal_path, sealed_offsets, seals_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.files.disk import Disk
    from engine.inspect.store.survey import QueueFiles, StoreFiles
    from engine.log.source import Segment

_AGAIN_MS = 100
_TRIES = 20
_BACKUP = ".bak"
_LINK = ": a link (--follow-links reads what it leads to)"


@dataclass(frozen=True, slots=True)
class Beside:
    """Files beside the log, by their path in the store; `skipped`: what is none, and why."""

    paths: tuple[str, ...]
    skipped: tuple[str, ...]


def files_beside(disk: Disk, files: StoreFiles, expired: Sequence[str]) -> Beside:
    """See the module; `expired`: as `ends_of_expired` gave them.

    A broker that saves a table removes the old file before the new one takes its name (MixAll#string2File): where
    a table is missing beside its .bak, it is looked for again.
    """
    config = os.path.join(files.root, names.CONFIG)
    for _ in range(_TRIES):
        beside = _look(disk, files, config, expired)
        present = set(beside.paths)
        if not any(path.endswith(_BACKUP) and path.removesuffix(_BACKUP) not in present for path in beside.paths):
            break
        if not files.abort:  # nobody is about to write it
            break
        disk.sleep_ms(_AGAIN_MS)
    return beside


def _look(disk: Disk, files: StoreFiles, config: str, expired: Sequence[str]) -> Beside:
    paths = list(expired)
    skipped: list[str] = []
    if disk.is_dir(config):
        _below(disk, files, config, paths, skipped)
    for name in (names.CHECKPOINT, STORE_CONF):
        entry = disk.look(os.path.join(files.root, name))
        if entry is not None and entry.is_file:
            paths.append(name)
    return Beside(tuple(sorted(paths)), tuple(sorted(skipped)))


def _below(disk: Disk, files: StoreFiles, directory: str, paths: list[str], skipped: list[str]) -> None:
    for entry in disk.scandir(directory):
        path = os.path.relpath(entry.path, files.root)
        if disk.link_of(entry.path) and not files.config.follow_links:
            skipped.append(path + _LINK)
        elif entry.is_directory:
            _below(disk, files, entry.path, paths, skipped)
        elif entry.is_file:
            paths.append(path)
        else:
            skipped.append(f"{path}: {entry.what}")


def seals_of(disk: Disk, files: StoreFiles, segments: Iterable[Segment]) -> Beside:
    """The seals of these segments; links are none: what they lead to may be anything."""
    there = {one.offset for one in segments}
    directory = seals_directory(files.root)
    places = [seal_path(directory, at) for at in sealed_offsets(disk, directory) if at in there]
    links = [] if files.config.follow_links else [path for path in places if disk.link_of(path)]
    return Beside(
        tuple(os.path.relpath(path, files.root) for path in places if path not in links),
        tuple(os.path.relpath(path, files.root) + _LINK for path in links),
    )


def ends_of_expired(disk: Disk, files: StoreFiles) -> list[str]:
    """The last file of each queue without a message in the log: its next queue offset is known from nowhere else."""
    start = files.log[0].offset if files.log else 0
    ends = (_last_with_units(disk, queue, start) for queue in files.queues)
    return [os.path.relpath(path, files.root) for path in ends if path is not None]


def _last_with_units(disk: Disk, queue: QueueFiles, start: int) -> str | None:
    for file in reversed(queue.files):
        try:
            reader = disk.open_reader(file.path)
        except StorageError:  # expired meanwhile
            continue
        try:
            end = written_end(reader, 0, file.size)
            if end == 0 and file.offset == 0:
                continue
            at = (end - 1) // UNIT_SIZE * UNIT_SIZE
            is_expired = end == 0 or decode(reader.read(at, UNIT_SIZE)).physical_offset < start
        finally:
            reader.close()
        return file.path if is_expired else None
    return None
