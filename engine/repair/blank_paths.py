"""A path of the settings with a blank at its end, where the one without it is there: a slip, not a lost disk.

A broker takes the blank for a part of the name (java.util.Properties keeps it): started with such a line it makes that
directory, and an empty log in it. Nothing must be given up for lost before the line is mended.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import DataIsAbsent, NextStep
from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk


def meant_instead(disk: Disk, path: str) -> str | None:
    """The path without the blanks at its ends, where that is a directory, and `path` is none, or holds no segment."""
    plain = path.strip()
    if plain in ("", path) or not disk.is_dir(plain):
        return None
    if disk.is_dir(path) and any(names.segment_offset(name) is not None for name in disk.listdir(path)):
        return None
    return plain


def blank_in_a_path(disk: Disk, config: StoreConfig) -> DataIsAbsent | None:
    """Why no store with such a path is changed: the first directory of the log that is meant to be another."""
    for path in config.log_directories:
        plain = meant_instead(disk, path)
        if plain is not None:
            return refusal(config, key_of(config, path), path, plain)
    return None


def key_of(config: StoreConfig, path: str) -> str:
    """The setting that names a directory of the log."""
    writable = (os.fspath(one) for one in config.commit_log_paths)
    return "storePathCommitLog" if path in writable else "readOnlyCommitLogStorePaths"


def refusal(config: StoreConfig, key: str, path: str, plain: str) -> DataIsAbsent:
    """The error, with the file and the line to mend in it."""
    return DataIsAbsent(
        f'{key} has a blank at an end of its path: "{path}" is not the directory "{plain}", which is there',
        path=path,
        hint="nothing was changed",
        next_step=NextStep(None, hint_of(config, key)),
    )


def hint_of(config: StoreConfig, key: str) -> str:
    """What to do about it."""
    given = dict(zip(config.typed, config.typed[1:], strict=False)).get("-c")
    where = "in the broker's settings (-c)" if given is None else f"in {given}"
    return f"take the blank out of {key} {where}, then run this again; start no broker before"
