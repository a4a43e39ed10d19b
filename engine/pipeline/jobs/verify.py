"""`verify` on Spark: executors look at every record of their splits, the driver merges what they say store by store.

The judge is that of `rstore verify-crc` (engine.inspect.check.verify), and so is the answer, store by store. What only
the whole log can tell stays open until its parts are merged: damage after a split's last sound record is damage where
a sound record follows in a later split, and else it is judged as the log end.

Beside a live process a log is read up to the last record that was sound at planning.
"""

from __future__ import annotations

import os
import time
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.files.disk import Disk
from engine.inspect.check.verify import (
    Bad,
    VerifiedPart,
    VerifyResult,
    boundary,
    check_events,
    judge_tail,
    merge_parts,
    settle_crcs,
    settled_events,
)
from engine.inspect.store.newer import crc_demand, property_crc_place
from engine.log.property_crcs import CrcJudge
from engine.log.scan import Scanner, kernels_if_loaded
from engine.log.tally import RecordCounter, tallied
from engine.pipeline.jobs.tasks import cores_of, grouped, joined, run_groups
from engine.pipeline.repositories import disk_of
from engine.pipeline.result import JobResult, Table
from engine.pipeline.splits import SPLIT_BYTES, bounds, demand_met, log_end, open_log, plan_splits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from engine.format.property_crc import CrcDemand
    from engine.log.source import ClosedLog
    from engine.log.tally import Counted
    from engine.pipeline.splits import Split
    from engine.pipeline.stores import StoreRef

_STORES = ("store", "path", "records", "messages", "bytes", "damaged_places", "start", "end", "running")
_PLACES = ("store", "physical_offset", "length", "file", "reason")


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How a log is verified.

    Attributes:
        split_bytes: bytes of log that one task reads, about.
        start: physical offset; the first record at or after it is the first that is looked at (default: all).
        end: physical offset; records that start there or later are not looked at.
    """

    split_bytes: int = SPLIT_BYTES
    start: int | None = None
    end: int | None = None


def run(spark: SparkSession, stores: Sequence[StoreRef], options: VerifyOptions) -> JobResult:
    """Every record of the stores' logs looked at: CRC, lengths, position. Reads only; `ok`: nothing is bad.

    Facts: stores, splits, records (sound ones), messages (among them), bytes, damaged_places, suspect_records,
    unusual_records, property_crc_records, property_crc_mismatches, seconds.
    Tables: `stores`, `damage`, `suspect`, `unusual`.

    Raises:
        StorageError. FormatError: a log that can't be split.
    """
    began = time.monotonic()
    splits = _plan(stores, options)
    demands = {store.name: _demand(store) for store in stores}
    work = [
        [_Work(split, _is_first(split, options), demands[split.store.name]) for split in joined(group)]
        for group in grouped(splits, cores_of(spark))
    ]
    verified = _merge_all(
        stores, [one.split for some in work for one in some], run_groups(spark, work, _check), options
    )
    rows = [
        (s.name, s.root, f.records, f.messages, f.size, len(f.bad), f.start, f.end, f.live)
        for s, f in ((s, verified[s.name]) for s in stores)
    ]
    damage, suspect, unusual = (
        tuple(
            (store.name, one.offset, one.length, os.path.basename(one.path), one.reason)
            for store in stores
            for one in kind(verified[store.name])
        )
        for kind in (attrgetter("bad"), attrgetter("suspect"), attrgetter("unusual"))
    )
    return JobResult(
        "verify",
        {
            "stores": len(stores),
            "splits": len(splits),
            "records": sum(f.records for f in verified.values()),
            "messages": sum(f.messages for f in verified.values()),
            "bytes": sum(f.size for f in verified.values()),
            "damaged_places": len(damage),
            "suspect_records": sum(f.suspects for f in verified.values()),
            "unusual_records": sum(f.unusuals for f in verified.values()),
            "property_crc_records": sum(f.property_crcs for f in verified.values()),
            "property_crc_mismatches": sum(f.crc_mismatches for f in verified.values()),
            "seconds": round(time.monotonic() - began, 3),
        },
        (
            Table("stores", "Stores", _STORES, tuple(rows)),
            Table("damage", "Damage", _PLACES, damage),
            Table("suspect", "Suspect records", _PLACES, suspect),
            Table("unusual", "Unusual records (a client may have sent them so)", _PLACES, unusual),
        ),
        ok=not damage and not suspect,
    )


def _plan(stores: Sequence[StoreRef], options: VerifyOptions) -> list[Split]:
    """The splits of all stores. A live log is frozen at its end."""
    splits: list[Split] = []
    for store in stores:
        end = options.end
        if store.live:
            written = log_end(store, Disk())
            end = written if end is None else min(end, written)
        splits += plan_splits([store], split_bytes=options.split_bytes, start=options.start or 0, end=end)
    return splits


def _demand(store: StoreRef) -> CrcDemand:
    """Which property CRCs of a store are judged: as `rstore verify-crc` does."""
    place = property_crc_place(disk_of(store), store.config, [segment.path for segment in store.segments])
    return crc_demand(store.config, kept=place is not None)


class _Work(NamedTuple):
    """A split; `first`: it begins where the caller said, and not where a record was found."""

    split: Split
    first: bool
    demand: CrcDemand


class _Checked(NamedTuple):
    """What a split held, and where it was begun. `tail`: what is bad about what it holds, if the log ends there."""

    part: VerifiedPart
    start: int
    tail: tuple[Bad, ...]


def _is_first(split: Split, options: VerifyOptions) -> bool:
    return split.index == 0 and options.start is not None and split.segment.offset < options.start


def _check(work: _Work) -> _Checked:
    """On an executor."""
    split = work.split
    disk = disk_of(split.store)
    limit = split.store.config.max_message_size
    with open_log(split, disk) as log:
        scanner = Scanner(log, max_message_size=limit, kernels=kernels_if_loaded())
        start, end = bounds(split, log)
        if work.first:
            start = boundary(log, scanner, split.start)
            end = max(start, end)
        events = _events(work, disk, log, scanner, start, min(end, split.log_end))
        part = check_events(split.segment, events)
        settle_crcs(part, split.segment, CrcJudge(scanner, log, work.demand, live=split.store.live))
        at = part.held[-1].end if part.held else start if part.end is None else part.end
        demand_met(split, at, end)
        return _Checked(part, start, tuple(judge_tail(log, part.held, split.store.live)))


def _events(work: _Work, disk: Disk, log: ClosedLog, scanner: Scanner, start: int, end: int) -> Iterator[Counted]:
    split = work.split
    fast = None if split.store.live else scanner.by_kernels(start, end)
    if fast is not None:
        return RecordCounter(fast, log.read_into, demand=work.demand).count(start, end)
    return tallied(settled_events(disk, scanner, start, end, live=split.store.live), work.demand)


def _merge_all(
    stores: Sequence[StoreRef], splits: list[Split], checked: list[_Checked], options: VerifyOptions
) -> dict[str, VerifyResult]:
    """What the splits of all stores tell of each, by its name."""
    verified = {store.name: VerifyResult(start=options.start or 0, live=store.live) for store in stores}
    for name, some in groupby(zip(splits, checked, strict=True), key=lambda one: one[0].store.name):
        _merge(verified[name], list(some), options)
    return verified


def _merge(verified: VerifyResult, checked: list[tuple[Split, _Checked]], options: VerifyOptions) -> None:
    """One store's parts."""
    splits, answers = [split for split, _ in checked], [answer for _, answer in checked]
    if options.start is None or _is_first(splits[0], options):
        verified.start = answers[0].start
    merge_parts(
        verified, [split.segment for split in splits], [answer.part for answer in answers], lambda i: answers[i].tail
    )
