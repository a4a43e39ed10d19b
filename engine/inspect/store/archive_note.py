"""The note in a store that it has an archive: config/rstoreArchive.json. It is backed up with the store."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, NextStep
from engine.format import names
from engine.inspect import next_step

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

ARCHIVE_NOTE = "rstoreArchive.json"
_LARGEST = 65536
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ArchiveNote:
    """The archive of a store: its id, the repository that has it (id, and location as it was last given), and the name
    of the store's snapshots there."""

    archive: str
    repository: str
    location: str
    store: str

    def encode(self) -> bytes:
        """The file."""
        return (
            json.dumps(
                {"archive": self.archive, "repository": self.repository, "location": self.location, "store": self.store}
            )
            + "\n"
        ).encode("utf-8", "surrogateescape")

    def step(self, config: StoreConfig, *words: str) -> NextStep:
        """The command that reads through to the archive."""
        command = next_step.command_line(config, *words, "--archive", self.location)
        return NextStep(command, "reads the store's archive, too")


def note_path(root: str) -> str:
    """Where the note lies in a store."""
    return os.path.join(root, names.CONFIG, ARCHIVE_NOTE)


def archive_note(disk: Disk, root: str) -> ArchiveNote | None:
    """The note of a store; None: it has no archive. Raises StorageError; FormatError: it can't be read."""
    path = note_path(root)
    if not disk.exists(path):
        return None
    try:
        fields = json.loads(disk.read_file(path, _LARGEST).decode("utf-8", "surrogateescape"))
        values = [fields[name] for name in ("archive", "repository", "location", "store")]
        if not all(isinstance(value, str) for value in values) or not _ID.fullmatch(values[0]):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        hint = "restore it from a backup; without it the archive is named with --archive-name"
        raise FormatError("the note of the store's archive is damaged", path=path, hint=hint) from None
    return ArchiveNote(*values)
