"""A path of the settings with a blank or a comment at its end, or in quotes, where the plain one is there: a slip.

A broker takes all of them for a part of the name (java.util.Properties keeps them): started with such a line it makes
that directory, and an empty log in it. Nothing must be given up for lost before the line is mended.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from engine.broker_conf.values import COMMENT
from engine.errors import DataIsAbsent, NextStep
from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

ROOT = "storePathRootDir"
_BLANK = "a blank at an end"
_COMMENT = "a comment after the path"
_QUOTES = "quotes around it"
_RELATIVE = "no / at its beginning"


def meant_instead(disk: Disk, path: str) -> str | None:
    """The path without blanks, quotes and comment, where that is a directory, and `path` is none, or holds no segment.

    The longest one: a directory may have such a character in its name.
    """
    fronts = [path, *(path[: comment.start()] for comment in reversed([*COMMENT.finditer(path)]))]
    bare = (one for front in map(str.strip, fronts) for one in (front, _unquoted(front)))
    plain = next((one for one in bare if one not in ("", path) and disk.is_dir(one)), None)
    if plain is None:
        return None
    if disk.is_dir(path) and any(names.segment_offset(name) is not None for name in disk.listdir(path)):
        return None
    return plain


def slip_of(path: str, plain: str) -> str:
    """What is wrong with a path whose directory is `plain`."""
    if path.strip() == plain:
        return _BLANK
    return _QUOTES if _unquoted(path.strip()) == plain else _COMMENT


def _unquoted(path: str) -> str:
    """Without the quotes at both ends; as it is where there are none."""
    return path[1:-1].strip() if len(path) > 1 and path[0] == path[-1] and path[0] in "\"'" else path


def slip_in_a_path(disk: Disk, config: StoreConfig) -> DataIsAbsent | None:
    """Why no store with such a path is changed: the store's, where none is there, or a directory of the log."""
    root = os.fspath(config.store_path_root_dir)
    plain = meant_instead(disk, root)
    if plain is not None and not (disk.is_dir(root) and _holds_a_store(disk, root)):
        return refusal(config, ROOT, root, plain)
    for path in log_settings(config):
        plain = meant_instead(disk, path)
        if plain is not None:
            return refusal(config, key_of(config, path), path, plain)
    return None


def log_settings(config: StoreConfig) -> tuple[str, ...]:
    """Directories of the log as settings name them; none where it lies below the store's."""
    is_set = config.store_path_commit_log or config.read_only_commit_log_store_paths
    return tuple(config.log_directories) if is_set else ()


def slip_for_a_new_store(disk: Disk, config: StoreConfig) -> DataIsAbsent | None:
    """Why no store is made with these settings: it would be beside the store, or the disk, that is meant."""
    root = os.fspath(config.store_path_root_dir)
    plain = meant_instead(disk, root)
    if plain is None:
        return slip_in_a_path(disk, config)
    return refusal(config, ROOT, root, plain, is_made=_holds_a_store(disk, plain))


def told_of_a_new_store(config: StoreConfig) -> list[str]:
    """A sentence for each path that a store was made with and that looks like a slip: nothing else could be meant."""
    paths = [(ROOT, os.fspath(config.store_path_root_dir))]
    paths += [(key_of(config, path), path) for path in log_settings(config)]
    notes = []
    for key, path in paths:
        is_typed = _is_typed(config, key)
        slip = _BLANK if path != path.strip() else None if is_typed else _slip_of_a_setting(path)
        if slip is not None:
            what = "the store's path" if is_typed else f"{key} in {_file(config)}"
            notes.append(f'{what} has {slip}; a broker uses the directory "{path}", too')
    return notes


def _slip_of_a_setting(path: str) -> str | None:
    if COMMENT.search(path):
        return _COMMENT
    if path.startswith(("'", '"')):
        return _QUOTES
    return None if path.startswith("/") else _RELATIVE


def _holds_a_store(disk: Disk, path: str) -> bool:
    return any(name in disk.listdir(path) for name in (names.COMMITLOG, names.CONSUMEQUEUE, names.CHECKPOINT))


def key_of(config: StoreConfig, path: str) -> str:
    """The setting that names a directory of the log."""
    writable = (os.fspath(one) for one in config.commit_log_paths)
    return "storePathCommitLog" if path in writable else "readOnlyCommitLogStorePaths"


def refusal(config: StoreConfig, key: str, path: str, plain: str, *, is_made: bool = False) -> DataIsAbsent:
    """The error, with what to mend. `is_made`: one was about to make a store, and it is there."""
    slip = slip_of(path, plain)
    if _is_typed(config, key):
        what, step = "the store's path", f"name the store without the {_word(slip)}: {shlex.quote(plain)}"
    else:
        run = "rstore status: the store exists already" if is_made else "this again"
        what, step = key, hint_of(config, key, slip, run)
    return DataIsAbsent(
        f'{what} has {slip}: "{path}" is not the directory "{plain}", which is there',
        path=path,
        hint="nothing was changed",
        next_step=NextStep(None, step),
    )


def hint_of(config: StoreConfig, key: str, slip: str, run: str = "this again") -> str:
    """What to do about a setting. `slip`: as `slip_of` says it."""
    return f"take the {_word(slip)} out of {key} in {_file(config)}, then run {run}; start no broker before that"


def _word(slip: str) -> str:
    return next(word for word in ("blank", "comment", "quotes") if word in slip)


def _is_typed(config: StoreConfig, key: str) -> bool:
    """Whether it is no setting, but the store's path as somebody typed it."""
    return key == ROOT and ("--store" in config.typed or "-c" not in config.typed)


def _file(config: StoreConfig) -> str:
    given = dict(zip(config.typed, config.typed[1:], strict=False)).get("-c")
    return "the broker's settings (-c)" if given is None else given
