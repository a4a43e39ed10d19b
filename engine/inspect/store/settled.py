"""Settings that nobody gave, and that what lies in a store's directories tells."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.format import names

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk


def settled(disk: Disk, config: StoreConfig) -> StoreConfig:
    """`config` with what the store's directories tell and nobody said: the extension and its size, multi-dispatch."""
    root = os.fspath(config.store_path_root_dir)
    changes: dict[str, Any] = {}
    ext = _files_below(disk, os.path.join(root, names.CONSUMEQUEUE_EXT))
    if ext and "enable_consume_queue_ext" not in config.given:
        changes["enable_consume_queue_ext"] = True
    if ext and "mapped_file_size_consume_queue_ext" not in config.given:
        changes["mapped_file_size_consume_queue_ext"] = Counter(ext).most_common(1)[0][0]
    config = with_light_queues(disk, config)
    return dataclasses.replace(config, **changes).checked() if changes else config


def with_light_queues(disk: Disk, config: StoreConfig) -> StoreConfig:
    """`config` with multi-dispatch on where nobody said and the store has light queues (%LMQ%…): a broker had it on.

    Without it a recovery would leave what is missing from them as it is.
    """
    queues = os.path.join(os.fspath(config.store_path_root_dir), names.CONSUMEQUEUE)
    if config.given & {"enable_lmq", "enable_multi_dispatch"} or not disk.is_dir(queues):
        return config
    if not any(names.is_lmq(name) for name in disk.listdir(queues)):
        return config
    return dataclasses.replace(config, enable_lmq=True, enable_multi_dispatch=True)


def _files_below(disk: Disk, directory: str) -> list[int]:
    """Sizes of the files of an extension."""
    if not disk.is_dir(directory):
        return []
    sizes = []
    for topic in disk.scandir(directory):
        for queue in () if topic.is_file else disk.scandir(topic.path):
            sizes += [e.size for e in (() if queue.is_file else disk.scandir(queue.path)) if e.is_file and e.size >= 64]
    return sizes
