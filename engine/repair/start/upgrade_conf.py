"""What a release makes of a broker's properties file that another one made otherwise, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker_conf import release_keys
from engine.broker_conf.properties import read_properties
from engine.broker_conf.release_keys import (
    DEFAULTS,
    RENAMED,
    default_in,
    is_effective,
    keys_of_release,
    readers_of,
)
from engine.errors import InvalidArgument, NotAFile
from engine.repair.start.upgrade_rules import RULES

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.finding import Findings

_ACL, _PLUG_IN = "aclEnable", "messageStorePlugIn"
_OF_5 = "org.apache.rocketmq.tieredstore."


def look_at_settings(disk: Disk, path: str, release: str, own: str | None, findings: Findings) -> None:
    """Judge each line that counts. `own`: the release that the file was for; None: not known.

    Raises:
        StorageError: the file can't be read. InvalidArgument: it is no properties file.
    """
    if disk.is_dir(path):
        raise NotAFile("a directory, not a file", path=path, hint="name the broker's properties file")
    try:
        given = read_properties(disk.read_file(path))
    except InvalidArgument as error:
        raise InvalidArgument(error.message, path=path, hint=error.hint) from None
    for key, line in given.last.items():
        where = f"{path}:{line.number}"
        value = given.values[key].strip()
        if key == _ACL and not is_effective(key, release):
            if value.lower() == "true":
                findings.add("acl-ignored", where, where, key)
        elif key == _PLUG_IN and RULES["plug-in"].applies(release) and _OF_5 in value:
            findings.add("plug-in", where, where, value)
        elif is_effective(key, release):
            if own is not None and not is_effective(key, own):
                findings.add("key-new", where, where, f"{key}: read since {_first(key)}")
        elif readers_of(key):
            instead = RENAMED.get(key) or next((old for old, new in RENAMED.items() if new == key), None)
            took = f"; {instead} is its name with this release" if instead in keys_of_release(release) else ""
            findings.add("key-gone", where, where, f"{key}: {_readers(key)}{took}")
    if own is not None:
        changed = [
            f"{key} {before} → {after}"
            for key in DEFAULTS
            if key not in given.last
            and (before := default_in(key, own)) is not None
            and (after := default_in(key, release)) is not None
            and before != after
            and key in keys_of_release(release)
        ]
        if changed:
            findings.add("default-changed", path, path, ", ".join(changed))


def _first(key: str) -> str:
    return next(one for one in release_keys.RELEASES if is_effective(key, one))


def _readers(key: str) -> str:
    readers = readers_of(key)
    last = readers[-1]
    if last == release_keys.RELEASES[-1]:
        return f"read since {readers[0]}"
    return f"read by {readers[0]}" if len(readers) == 1 else f"read by {readers[0]} to {last}"
