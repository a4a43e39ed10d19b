"""The epochs of a RocketMQ 5 broker under a controller, from the file or, as its broker does, from its copy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format import epoch_file, names
from engine.inspect.store.config_files import BACKUP

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.format.epoch_file import EpochEntry
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True, slots=True)
class EpochFile:
    """An epoch file as it lies there: its epochs, or why it can't be read."""

    path: str
    entries: tuple[EpochEntry, ...] = ()
    problem: FormatError | None = None


@dataclass(frozen=True, slots=True)
class EpochDump:
    """The epochs of a store.

    Attributes:
        entries: in the order of the file.
        source: the file that they were read from; None: there is none that can be read.
        problems: what is wrong with the files that were tried before it.
    """

    entries: tuple[EpochEntry, ...] = ()
    source: str | None = None
    problems: tuple[FormatError, ...] = ()

    def rows(self) -> list[dict[str, int | None]]:
        """The epochs with the physical offset at which each ends: where the next begins, null for the last.

        Source: EpochFileCache#initEntries.
        """
        ends = (*(one.start_offset for one in self.entries[1:]), None)
        return [
            {"epoch": one.epoch, "startOffset": one.start_offset, "endOffset": end}
            for one, end in zip(self.entries, ends, strict=False)
        ]


def epoch_files(disk: Disk, files: StoreFiles) -> tuple[EpochFile, ...]:
    """The file and its copy, in this order, those that are there. Raises StorageError."""
    path = files.config.other.get("storePathEpochFile", "").strip() or os.path.join(files.root, names.EPOCH_FILE)
    return tuple(_read(disk, name) for name in (path, path + BACKUP) if disk.look(name) is not None)


def _read(disk: Disk, path: str) -> EpochFile:
    try:
        return EpochFile(path, epoch_file.decode(disk.read_file(path, epoch_file.LARGEST + 1)))
    except FormatError as error:
        return EpochFile(path, problem=FormatError(error.message, path=path, offset=error.offset))


def dump_epochs(disk: Disk, files: StoreFiles) -> EpochDump:
    """Source: CheckpointFile#read, which goes to the copy where the file is broken or empty. Raises StorageError."""
    problems: list[FormatError] = []
    for one in epoch_files(disk, files):
        if one.problem is not None:
            problems.append(one.problem)
        elif one.entries:
            return EpochDump(one.entries, one.path, tuple(problems))
    return EpochDump(problems=tuple(problems))
