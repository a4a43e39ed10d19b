"""How full the disks of a store are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store import MessageStore


def disk_ratios(store: MessageStore) -> list[tuple[str, float]]:
    """Used part of the disks of log, queues and index, by Apache's names. Raises StorageError."""
    config = store.config
    root = os.fspath(config.store_path_root_dir)
    log = os.fspath(config.commit_log_paths[0])
    return [(name, store.disk.disk_used_ratio(path)) for name, path in (("CL", log), ("CQ", root), ("INDEX", root))]
