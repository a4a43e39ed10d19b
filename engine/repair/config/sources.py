"""Where a lost table of config/ may survive: the file's readable part, `.tmp`, `.bak`, the history, other directories.

In this order, freshest first: the first source that knows an entry is believed. A broker writes `<file>.tmp`, deletes
the file and renames (MixAll#string2File): killed in between, the newest state is in the `.tmp`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import names
from engine.inspect.store.config_files import (
    BACKUP,
    TEMPORARY,
    ConfigFileState,
    ConfigTable,
    as_table,
    directory_of,
    read_table,
    read_text,
)
from engine.inspect.store.config_shapes import CONSUMERS, LMQ_CONSUMERS, TABLES
from engine.repair.config.history import states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk


@dataclass(frozen=True, slots=True)
class Source:
    """One state of a file. `label`: what the operator is told; `own`: of this store, so that it can't be ahead of it;
    `is_file`: the file itself."""

    label: str
    table: ConfigTable
    own: bool = True
    is_file: bool = False

    @property
    def value(self) -> dict[str, Any]:
        """All that the file holds, as far as it can be read."""
        value = self.table.text.value
        return value if isinstance(value, dict) else {}


def sources_of(disk: Disk, root: str, name: str, directories: Sequence[str]) -> list[Source]:
    """Every source of a file that holds anything, freshest first. Raises StorageError."""
    directory = directory_of(root)
    own = [
        Source(f"config/{name}", read_table(disk, directory, name), is_file=True),
        Source(f"config/{name}{TEMPORARY}", as_table(name, read_text(disk, directory, name + TEMPORARY))),
        Source(f"config/{name}{BACKUP}", read_table(disk, directory, name, backup=True)),
        *(Source(f"{state.place}", as_table(name, state.read(disk))) for state in states(disk, root, name)),
    ]
    if own[1].table.state is not ConfigFileState.SOUND:  # half of a state that was being written
        del own[1]
    other = [
        Source(os.path.join(place, one), as_table(name, read_text(disk, place, one)), own=False)
        for place in directories
        for one in _names_of(name)
    ]
    return [source for source in (*own, *other) if any(source.table.tables.values())]


def config_directory(disk: Disk, place: str) -> str:
    """The directory that `--from` means: a config/, or that of a store.

    Raises:
        InvalidArgument: there is none, or no file of a broker is in it. StorageError.
    """
    inner = os.path.join(place, names.CONFIG)
    directory = inner if disk.is_dir(inner) else place
    if not disk.is_dir(directory):
        raise InvalidArgument("--from: no such directory", path=place, hint="name a config/ or a store")
    if not any(disk.exists(os.path.join(directory, one)) for name in TABLES for one in (name, name + BACKUP)):
        raise InvalidArgument(
            "--from: no configuration file of a broker in it", path=directory, hint="name a config/ or a store"
        )
    return directory


def _names_of(name: str) -> list[str]:
    """A file and its .bak. Offsets of another store may be in the other of the two files."""
    other = {CONSUMERS: LMQ_CONSUMERS, LMQ_CONSUMERS: CONSUMERS}.get(name)
    file_names = [name, name + BACKUP]
    return file_names if other is None else [*file_names, other, other + BACKUP]
