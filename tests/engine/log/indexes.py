"""What the tests of index files and of their service share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.files.disk import Disk
from engine.format.index_file import IndexLayout
from engine.log.derive import Keys
from engine.log.index_file import IndexFile
from engine.log.index_service import IndexService

LAYOUT = IndexLayout(slots=7, entries=40)
FOREVER = (0, 1 << 62)
START = 1_700_000_000_000
NAME = "20260101000000000"


@dataclass(frozen=True)
class Place:
    disk: Disk
    root: str

    @property
    def path(self) -> str:
        return f"{self.root}/{NAME}"

    def file(self, end_phy_offset: int = 0, end_timestamp: int = 0) -> IndexFile:
        return IndexFile.create(self.disk, self.path, LAYOUT, end_phy_offset, end_timestamp)

    def service(self, layout: IndexLayout = LAYOUT, **more: Any) -> IndexService:
        return IndexService(self.disk, f"{self.root}/index", layout, more.pop("clock", None), **more)


def keys_of(rows: list[tuple[int, int, int]]) -> Keys:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    return Keys(table[:, 0].astype(np.int32), table[:, 1], table[:, 2])


def some_rows(count: int, step: int = 100, start: int = 0) -> list[tuple[int, int, int]]:
    """(hash, physical offset, store time): one key a message, 700 ms apart, eleven different hashes."""
    return [(n * n % 11, n * step, START + n * 700) for n in range(start, start + count)]


def put_rows(file: IndexFile, rows: list[tuple[int, int, int]]) -> int:
    keys = keys_of(rows)
    return file.put_keys(keys.key_hash, keys.physical_offset, keys.store_timestamp)
