"""Stores for tests of seals: made, sealed, damaged at places that the test knows."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from engine.config import of_store
from engine.files.disk import Disk
from engine.seals.layout import PAGE_SIZE
from engine.seals.scrub import scrub
from engine.seals.scrub_result import Scrubbed, ScrubOptions
from engine.seals.sealing import Sealed, SealOptions, seal_store
from engine.store import MessageStore
from tests.engine.opening import message, small

Page = tuple[int, int]
"""Physical offset of a segment, number of a page in it."""


def filled(root: Path, count: int = 900, size: int = 300) -> Path:
    """A closed store of some segments of 64 KiB."""
    rng = Random(3)
    with MessageStore.open(small(root)) as store:
        for number in range(count):
            store.put(message(rng.randbytes(size), KEYS=f"key{number}", TAGS="tag", UNIQ_KEY=f"ID{number:08d}"))
    return root


def seal(root: Path, disk: Disk | None = None, **options: object) -> Sealed:
    """Seal what is not sealed."""
    return seal_store(disk or Disk(), of_store(root), SealOptions(**options))  # type: ignore[arg-type]


def scrubbed(root: Path, disk: Disk | None = None, **options: object) -> Scrubbed:
    """One pass."""
    return scrub(disk or Disk(), of_store(root), ScrubOptions(**options))  # type: ignore[arg-type]


def segments(root: Path) -> list[Path]:
    """Files of the log, by offset."""
    return sorted((root / "commitlog").iterdir())


def write(path: Path, position: int, data: bytes) -> None:
    """Other bytes, as rot leaves them: the file's time stays."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def pages_of(result: Scrubbed, *kinds: str) -> set[Page]:
    """The pages that a scrub names, of some kinds (default: all)."""
    return {
        (one.segment, page)
        for one in result.wrong
        if not kinds or one.kind in kinds
        for page in range(
            (one.offset - one.segment) // PAGE_SIZE, -(-(one.offset - one.segment + one.length) // PAGE_SIZE)
        )
    }
