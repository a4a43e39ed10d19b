"""Stores that Apache wrote, and what our own scanner derives from their logs: to be written again and compared."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from engine.config import StoreConfig
from engine.config import parse as parse_config
from engine.files.disk import Disk
from engine.format.index_file import IndexLayout
from engine.format.names import segment_offset
from engine.log.derive import Deriver, DeriveRules, Keys, QueueNumbers, TopicQueue, Units
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from tests.support import fixtures, golden

GOLDEN = golden.NAMES
FIXTURES = ("clean-small", "crashed-small", "transient-ext", "lmq")


@functools.cache
def config_of(name: str, *, ours: bool) -> StoreConfig:
    """Settings of a store of fixtures/ (`ours`) or a golden one."""
    if ours:
        settings = json.loads((fixtures.FIXTURES / f"{name}.manifest.json").read_text(encoding="utf-8"))["settings"]
        return parse_config("\n".join(f"{key}={str(value).lower()}" for key, value in settings.items()))
    return StoreConfig() if name.startswith("default") else dataclasses.replace(StoreConfig(), **golden.SMALL_SETTINGS)


def layout_of(config: StoreConfig) -> IndexLayout:
    return IndexLayout(config.max_hash_slot_num, config.max_index_num)


def derived(store: Path, config: StoreConfig, window: int = 1 << 16) -> tuple[QueueNumbers, list[tuple[Units, Keys]]]:
    """What a whole log gives, a few kilobytes of it a batch."""
    size = config.mapped_file_size_commit_log
    files = sorted((store / "commitlog").iterdir())
    segments = [Segment(segment_offset(path.name) or 0, size, str(path)) for path in files]
    numbers = QueueNumbers()
    deriver = Deriver(DeriveRules.of(config), numbers)
    with ClosedLog(Disk(), segments) as log:
        batches = [event for event in Scanner(log, window=window).scan(0) if isinstance(event, RecordBatch)]
        return numbers, [deriver.derive(batch) for batch in batches]


def by_queue(numbers: QueueNumbers, units: Units) -> Iterator[tuple[TopicQueue, Units]]:
    """A batch's units, queue by queue."""
    for number in sorted(set(units.queue.tolist())):
        mask = units.queue == number
        columns = (getattr(units, field.name)[mask] for field in dataclasses.fields(Units))
        yield numbers[number], Units(*columns)


def files_below(root: Path) -> dict[str, Path]:
    """Every file below a directory, by its path in there."""
    return {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
