"""One split as Arrow batches: the engine's scan, its records as rows.

A body CRC mismatch is no damage here: it is a row whose `crc_ok` says so. Damage is where no record is.
"""

from __future__ import annotations

import os
import sys
from dataclasses import field, replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.names import segment_name
from engine.format.quantities import counted
from engine.log.scan import Damage, RecordBatch
from engine.log.source import Segment
from engine.pipeline.failures import carried
from engine.pipeline.filters import Wanted
from engine.pipeline.narrow import narrow_events
from engine.pipeline.options import FAIL, MARK, SKIP
from engine.pipeline.repositories import disk_of
from engine.pipeline.rows import Rows
from engine.pipeline.schema import COLUMNS
from engine.pipeline.splits import events, open_log
from engine.pipeline.worker import settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from engine.pipeline.narrow import FoundUnits
    from engine.pipeline.planning import StoreShare
    from engine.pipeline.splits import Split

__all__ = ["FAIL", "MARK", "SKIP", "ReadOptions", "read_share", "read_split"]

ROWS = 16384
"""Rows of an Arrow batch, at most: what a window of the log holds of small records is given in pieces."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How splits are read.

    Attributes:
        columns: names, in the order of the rows.
        on_damage: FAIL, MARK (a row whose `damage` says what) or SKIP (reported on stderr, a line a split).
        wanted: which records; damage is reported wherever it is met.
        decompress: whether compressed bodies are given as they were sent, where that can be done.
    """

    columns: tuple[str, ...] = tuple(COLUMNS)
    on_damage: str = FAIL
    wanted: Wanted = field(default_factory=Wanted)
    decompress: bool = False


def read_split(split: Split, options: ReadOptions, units: FoundUnits | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a split.

    Args:
        split: which.
        options: how.
        units: where all wanted records of it are; else the split is scanned.

    Raises:
        FormatError: damage, with FAIL. StorageError.
    """
    rows = Rows(split, options.columns, decompress=options.decompress)
    skipped: list[Damage] = []
    with open_log(split, disk_of(split.store)) as log:
        split_events = events(split, log, check_crc=False) if units is None else narrow_events(split, units, log)
        for event in split_events:
            if isinstance(event, RecordBatch):
                chosen = options.wanted.chosen(event)
                if chosen is None or chosen.any():
                    made = rows.of(event, chosen)
                    yield from (made.slice(at, ROWS) for at in range(0, len(made), ROWS))
            elif isinstance(event, Damage) and event.end > options.wanted.physical_offset.low:
                if options.on_damage == FAIL:
                    raise FormatError(
                        event.reason.value,
                        path=event.segment.path,
                        offset=event.offset,
                        hint="onDamage = mark adds a row for it, onDamage = skip continues after it",
                    )
                if options.on_damage == MARK:
                    yield rows.of_damage(event)
                else:
                    skipped.append(event)
    if skipped:
        _tell(split, skipped)


def read_share(share: StoreShare, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a share: as `read_split`, after what is missing before it. Raises as `read_split`."""
    with carried():
        yield from _rows_of(share, options)
    settle()


def _rows_of(share: StoreShare, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    for gap in share.gaps:
        if options.on_damage == MARK:
            missing = Segment(gap.offset, gap.length, segment_name(gap.offset))
            yield Rows(share.split, options.columns).of_gap(missing)
        else:
            name = share.split.store.name
            _say(f"{name}: {gap.length} bytes of the log from {gap.offset} on were skipped: their segments are missing")
    wanted = options.wanted.narrowed(physical_offset=share.rows)
    yield from read_split(share.split, replace(options, wanted=wanted), share.units)


def _tell(split: Split, skipped: list[Damage]) -> None:
    size = sum(event.length for event in skipped)
    first = skipped[0]
    _say(
        f"{split.store.name}: {os.path.basename(split.segment.path)}: skipped {size} bytes without a record in"
        f" {counted(len(skipped), 'place')}, the first at {first.offset}: {first.reason.value}"
    )


def _say(text: str) -> None:
    """Into the task's log."""
    print(f"rocketmq-store: {text}", file=sys.stderr, flush=True)
