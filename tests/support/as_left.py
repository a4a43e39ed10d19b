"""Stores as a broker that was killed leaves them: files of default length, mostly holes, and the next one ready."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.bench.workload import GIB, Workload, write_log
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.checkpoint import FILE_SIZE
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover


def as_left(root: Path, files: int = 1, *, records: int = 40, queues: int = 4) -> StoreConfig:
    """Make a store of `files` segments of 1 GiB with so many records each, queues and index, and the next segment.

    It was never closed: the abort file is there. Skips where the file system has no holes.
    """
    work = Workload("left", 128, queues=queues, size=files * GIB, segment=GIB)
    work = replace(work, fill=(records + 0.5) * work.record_size / GIB)
    log = root / "commitlog"
    write_log(work, log)
    last = log / f"{(files - 1) * GIB:020d}"
    with last.open("r+b") as file:
        file.truncate(records * work.record_size)
        file.truncate(GIB)
    if sum(path.stat().st_blocks for path in log.iterdir()) * 512 > files * 2 * records * work.record_size + (1 << 25):
        pytest.skip("this file system has no holes")
    (root / "checkpoint").write_bytes(bytes(FILE_SIZE))
    (root / "abort").touch()
    config = StoreConfig().with_changes(store_path_root_dir=root, max_hash_slot_num=1000, max_index_num=100_000)
    apply(Disk(), plan_recover(Disk(), config))
    with (log / f"{files * GIB:020d}").open("wb") as file:
        file.truncate(GIB)
    (root / "abort").touch()
    return config
