"""A path of the settings with a blank at its end, where the one without it is there: a slip, not a lost disk.

A broker takes the blank for a part of the name (java.util.Properties keeps it): started with such a line it makes that
directory, and an empty log in it. Nothing must be given up for lost before the line is mended.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from engine.errors import DataIsAbsent, NextStep
from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

ROOT = "storePathRootDir"


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


def blank_for_a_new_store(disk: Disk, config: StoreConfig) -> DataIsAbsent | None:
    """Why no store is made with these settings: it would be beside the store, or the disk, that is meant."""
    root = os.fspath(config.store_path_root_dir)
    plain = meant_instead(disk, root)
    if plain is None:
        return blank_in_a_path(disk, config)
    return refusal(config, ROOT, root, plain, is_made=_holds_a_store(disk, plain))


def told_of_a_new_store(config: StoreConfig) -> list[str]:
    """A sentence for each path with a blank at an end that a store was made with, as nothing else could be meant."""
    paths = [(ROOT, os.fspath(config.store_path_root_dir))]
    if config.store_path_commit_log or config.read_only_commit_log_store_paths:
        paths += [(key_of(config, path), path) for path in config.log_directories]
    said = []
    for key, path in paths:
        if path != path.strip():
            what = "the store's path" if _is_typed(config, key) else f"{key} in {_file(config)}"
            said.append(f'{what} has a blank at an end; a broker, too, uses the directory "{path}"')
    return said


def _holds_a_store(disk: Disk, path: str) -> bool:
    return any(name in disk.listdir(path) for name in (names.COMMITLOG, names.CONSUMEQUEUE, names.CHECKPOINT))


def key_of(config: StoreConfig, path: str) -> str:
    """The setting that names a directory of the log."""
    writable = (os.fspath(one) for one in config.commit_log_paths)
    return "storePathCommitLog" if path in writable else "readOnlyCommitLogStorePaths"


def refusal(config: StoreConfig, key: str, path: str, plain: str, *, is_made: bool = False) -> DataIsAbsent:
    """The error, with what to mend. `is_made`: one was about to make a store, and it is there."""
    if _is_typed(config, key):
        what, step = "the store's path", f"name the store without the blank: {shlex.quote(plain)}"
    else:
        what, step = key, hint_of(config, key, "rstore status: a store is there already" if is_made else "this again")
    return DataIsAbsent(
        f'{what} has a blank at an end: "{path}" is not the directory "{plain}", which is there',
        path=path,
        hint="nothing was changed",
        next_step=NextStep(None, step),
    )


def hint_of(config: StoreConfig, key: str, run: str = "this again") -> str:
    """What to do about a setting."""
    return f"take the blank out of {key} in {_file(config)}, then run {run}; start no broker before"


def _is_typed(config: StoreConfig, key: str) -> bool:
    """Whether it is no setting, but the store's path as somebody typed it."""
    return key == ROOT and ("--store" in config.typed or "-c" not in config.typed)


def _file(config: StoreConfig) -> str:
    given = dict(zip(config.typed, config.typed[1:], strict=False)).get("-c")
    return "the broker's settings (-c)" if given is None else given
