"""The epochs of a RocketMQ 5 broker under a controller, from the file or, as its broker does, from its copy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.format import epoch_file, names
from engine.inspect.store.config_files import BACKUP

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.format.epoch_file import EpochEntry
    from engine.inspect.store.survey import StoreFiles


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


def dump_epochs(disk: Disk, files: StoreFiles) -> EpochDump:
    """Source: CheckpointFile#read, which goes to the copy where the file is broken or empty. Raises StorageError."""
    path = files.config.other.get("storePathEpochFile", "").strip() or os.path.join(files.root, names.EPOCH_FILE)
    problems: list[FormatError] = []
    for name in (path, path + BACKUP):
        if disk.look(name) is None:
            continue
        try:
            entries = epoch_file.decode(disk.read_file(name, epoch_file.LARGEST + 1))
        except FormatError as error:
            problems.append(FormatError(error.message, path=name, offset=error.offset))
            continue
        if entries:
            return EpochDump(entries, name, tuple(problems))
    return EpochDump(problems=tuple(problems))
