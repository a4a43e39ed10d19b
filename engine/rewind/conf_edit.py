"""The broker's configuration file with some keys changed; all its other lines stay as they are."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from engine.broker_conf.properties import read_properties
from engine.broker_conf.values import ENCODING
from engine.dataclass import dataclass
from engine.errors import CannotRepair, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.files.disk import Disk

BEFORE = ".before-promote"
"""What the name of the old content ends in, beside the file."""


@dataclass(frozen=True, slots=True)
class ConfEdit:
    """A file that gets new content. `changes`: (key, old value, new value), old None: the key was not there.

    `kept`: where the old content goes.
    """

    path: str
    old: bytes
    new: bytes
    changes: tuple[tuple[str, str | None, str], ...]
    kept: str

    def to_json(self) -> dict[str, Any]:
        """One object."""
        changes = [{"key": key, "from": old, "to": new} for key, old, new in self.changes]
        return {"path": self.path, "changes": changes, "kept": self.kept if self.changes else None}


def plan_edit(disk: Disk, path: str, wanted: Mapping[str, str]) -> ConfEdit:
    """Plan to give keys of a properties file these values. Writes nothing.

    Raises:
        InvalidArgument: it is no file that a broker reads. CannotRepair: it can't be changed line by line.
        StorageError.
    """
    import javaproperties

    if not disk.exists(path) or not disk.stat(path).is_file:
        raise InvalidArgument("no such configuration file", path=path)
    old = disk.read_file(path)
    values = read_properties(old).values
    changes = tuple((key, values.get(key), new) for key, new in wanted.items() if values.get(key, "").strip() != new)
    if not changes:
        return ConfEdit(path, old, old, (), "")
    text = javaproperties.PropertiesFile.loads(old.decode(ENCODING))
    for key, _, value in changes:
        text[key] = value
    new = _with_ends_of(old, text.dumps().encode(ENCODING))
    if read_properties(new).values != values | {key: value for key, _, value in changes}:
        raise CannotRepair(
            "the configuration file can't be changed line by line",
            path=path,
            hint="leave out --conf, and set by hand: " + ", ".join(f"{key}={value}" for key, _, value in changes),
        )
    return ConfEdit(path, old, new, changes, _kept(disk, path, old))


def write_edit(disk: Disk, edit: ConfEdit) -> None:
    """Keep the old content beside the file, then replace that. Killed in between: plan and run it again."""
    if not edit.changes:
        return
    disk.step("promote.conf")
    if not disk.exists(edit.kept):
        disk.write_file_atomically(edit.kept, edit.old, like=edit.path)  # who may read it is the same
    disk.step("promote.conf-kept")
    disk.write_file_atomically(edit.path, edit.new)
    disk.step("promote.conf-written")


def _with_ends_of(old: bytes, new: bytes) -> bytes:
    """The new content with CRLF at the end of each line, where every line of the old one ends so."""
    if not 0 < old.count(b"\n") == old.count(b"\r\n"):
        return new
    return re.sub(rb"(?<!\r)\n", b"\r\n", new)


def _kept(disk: Disk, path: str, old: bytes) -> str:
    """A name that is free, or that a killed run has given this very content."""
    name, number = path + BEFORE, 1
    while disk.exists(name) and disk.read_file(name) != old:
        number += 1
        name = f"{path}{BEFORE}.{number}"
    return os.path.abspath(name)
