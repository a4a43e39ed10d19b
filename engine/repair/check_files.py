"""What the names and lengths of a store's files tell: settings that nobody gave, and what a start stumbles over."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.files.listing import Oddness
from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.repair.finding import Findings
    from engine.repair.survey import OddFile, StoreFiles

_SIZES = {Oddness.WRONG_SIZE.value, Oddness.MISALIGNED.value, Oddness.DUPLICATE.value}
_STRAYS = {Oddness.EMPTY.value, Oddness.STRANGE_NAME.value, Oddness.NOT_A_FILE.value}


def file_findings(files: StoreFiles, found: Findings, *, live: bool, leave_out: frozenset[str] = frozenset()) -> None:
    """What the names and lengths of a store's files tell. `leave_out`: paths that were told of already."""
    for odd in files.odd:
        where = os.path.relpath(odd.path, files.root)
        code = "file-size" if odd.why in _SIZES else "file-odd" if not _stops_a_start(odd.why) else "file-stray"
        if odd.path not in leave_out and not (live and code == "file-stray"):  # one in the making has no length yet
            found.add(code, where, where, f"{odd.why}, {odd.size} bytes{_advice(files, odd, where)}")
    for index in files.index:
        if not index.whole and not (live and index.size == 0):
            where = f"index/{index.name}"
            found.add("file-size", where, where, f"{index.size} instead of {files.index_layout.file_size} bytes")
    if files.abort and not live:
        found.add("not-closed", names.ABORT, names.ABORT)
    if not files.log and any(queue.files for queue in files.queues):
        found.add("log-gone", names.COMMITLOG, os.fspath(files.config.commit_log_paths[0]))


def _advice(files: StoreFiles, odd: OddFile, where: str) -> str:
    """What to do with a segment of another length than the rest: recovery must not guess whether data is missing."""
    if odd.why != Oddness.WRONG_SIZE.value or os.path.dirname(odd.path) not in files.config.log_directories:
        return ""
    size = files.config.mapped_file_size_commit_log
    if odd.size < size and files.log:
        return f": cut short? truncate -s {size} {shlex.quote(where)} gives it its length back, then run rstore recover"
    return f": mappedFileSizeCommitLog is {size}; is the setting right, and does the file belong here?"


def settled(disk: Disk, config: StoreConfig) -> StoreConfig:
    """`config` with what the store's directories tell and nobody said: the extension and its size, multi-dispatch."""
    root = os.fspath(config.store_path_root_dir)
    changes: dict[str, Any] = {}
    ext = _files_below(disk, os.path.join(root, names.CONSUMEQUEUE_EXT))
    if ext and "enable_consume_queue_ext" not in config.given:
        changes["enable_consume_queue_ext"] = True
    if ext and "mapped_file_size_consume_queue_ext" not in config.given:
        changes["mapped_file_size_consume_queue_ext"] = Counter(ext).most_common(1)[0][0]
    queues = os.path.join(root, names.CONSUMEQUEUE)
    lmq = disk.is_dir(queues) and any(names.is_lmq(name) for name in disk.listdir(queues))
    if lmq and not config.given & {"enable_lmq", "enable_multi_dispatch"}:
        changes["enable_lmq"] = changes["enable_multi_dispatch"] = True
    return dataclasses.replace(config, **changes).checked() if changes else config


def _files_below(disk: Disk, directory: str) -> list[int]:
    """Sizes of the files of an extension."""
    if not disk.is_dir(directory):
        return []
    sizes = []
    for topic in disk.scandir(directory):
        for queue in () if topic.is_file else disk.scandir(topic.path):
            sizes += [e.size for e in (() if queue.is_file else disk.scandir(queue.path)) if e.is_file and e.size >= 64]
    return sizes


def _stops_a_start(why: str) -> bool:
    return why in _STRAYS or why.startswith("no index file")
