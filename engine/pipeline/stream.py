"""The stream reader: where each store has been read to, and how much of the rest one micro-batch takes.

Theory. An offset is a physical offset for each store, always a place where the scan stops: the end of what was sound
when it was asked for, or a boundary (engine.log.boundary) where a limit is set. So a micro-batch is all events of the
scan from one offset to another: the same ones whenever it is read, as a log is never changed before its end. That, and
a sink that takes each micro-batch once (Spark's file sink does), is exactly once.

Files come and go: each question looks for them anew. What is not there any more (expired before it was read, or a log
that is shorter than what was read of it) is an error, unless the query was told to continue. Stores are found when the
query starts: one that a glob matches later comes in with the next start, and begins with its log.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from engine.errors import InvalidArgument, LogMissing
from engine.files.disk import Disk
from engine.format.judge import Reason
from engine.inspect.store.survey import log_of_now
from engine.log.boundary import Boundaries
from engine.log.scan import Damage, RecordBatch, Scanner, kernels_if_loaded
from engine.log.source import ClosedLog
from engine.pipeline.failures import carried
from engine.pipeline.known import demand_known
from engine.pipeline.options import LATEST, demand_stores
from engine.pipeline.partition import SplitPartition
from engine.pipeline.planning import StoreShare, gaps, shares
from engine.pipeline.read import ReadOptions, read_share
from engine.pipeline.repositories import demand_no_snapshots
from engine.pipeline.splits import log_end, plan_splits
from engine.pipeline.stores import find_stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from engine.pipeline.filters import Wanted
    from engine.pipeline.options import SourceOptions
    from engine.pipeline.stores import StoreRef

Offsets = dict[str, int]
"""Physical offset by store."""


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. One lives on the driver as long as its query; copies read on executors."""

    def __init__(self, options: SourceOptions) -> None:
        """Raises InvalidArgument: `endingOffsets`, which a stream has none of."""
        if options.ending_offsets != LATEST:
            raise InvalidArgument(
                "endingOffsets is invalid for a stream", hint="use it for batch reads only: spark.read"
            )
        self._options = options
        self._stores: tuple[StoreRef, ...] = ()
        self._target: Offsets | None = None

    # --- what Spark asks on the driver ------------------------------------------------------------------------------

    @carried()
    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query begins, by the option `startingOffsets`.

        Raises:
            InvalidArgument: it names a store that isn't there, or the option `topic` a topic that no store knows.
            NotAStore, Refused, CannotRepair, StorageError.
        """
        disk, stores = Disk(), sorted(self._found(), key=lambda store: store.name)
        demand_known(stores, self._options.wanted.topics or ())
        chosen = self._options.starting_offsets
        if chosen == LATEST:
            return {store.name: log_end(store, disk) for store in stores}
        begin = {store.name: _begin(store) for store in stores}
        if isinstance(chosen, str):
            return begin
        demand_stores("startingOffsets", chosen, begin)
        return {s.name: _known(s, chosen[s.name], disk) if s.name in chosen else begin[s.name] for s in stores}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the options set. Where both are set, both hold."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    @carried()
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """How far the next micro-batch goes from `start` on: `start` itself when there is nothing new.

        Raises:
            LogMissing: what comes next is not there any more. StorageError.
        """
        disk, stores = Disk(), self._found()
        start = self._checked(start, stores)
        ends = {store.name: self._end(store, start[store.name], disk) for store in stores}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(stores, start, ends, disk)
        return dict(sorted(ends.items()))

    @carried()
    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Where the logs end now, for the query's progress. Raises StorageError."""
        disk = Disk()
        return {store.name: log_end(store, disk) for store in self._found()}

    @carried()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing is new: what the logs hold at this moment is the query's whole work."""
        self._target = self.reportLatestOffset()

    @carried()
    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The shares of a micro-batch.

        Raises:
            LogMissing: some of it is not there any more. FormatError: missing files, with onDamage = fail.
        """
        stores = self._found()
        start = self._checked(start, stores)
        partitions: list[InputPartition] = []
        for store in stores:
            low, high = start[store.name], end.get(store.name, 0)
            if low >= high:
                continue
            splits = plan_splits([store], split_bytes=self._options.split_bytes, start=low, end=high, known=True)
            for share in shares(list(map(StoreShare, splits)), gaps(store, low, high), self._options.on_damage):
                partitions.append(SplitPartition(share))
        return partitions

    def commit(self, end: Offsets) -> None:
        """Nothing to do: a log forgets by its own rules."""

    def stop(self) -> None:
        """Nothing to close: files are open only while they are read."""

    # --- on executors -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A share's rows, as Arrow batches. Raises FormatError: damage, with onDamage = fail. StorageError."""
        if not isinstance(partition, SplitPartition):
            return iter(())
        options = self._options
        read = ReadOptions(options.columns, options.on_damage, options.wanted, options.decompress)
        return read_share(partition.share, read)

    # --- the stores as they are now ---------------------------------------------------------------------------------

    def _found(self) -> tuple[StoreRef, ...]:
        """The stores with the files that they have now."""
        disk = Disk()
        if not self._stores:
            stores = find_stores(
                self._options.places, config=self._options.config, disk=disk, choice=self._options.repositories
            )
            demand_no_snapshots(stores, "a stream can't read")
            self._stores = stores
            return self._stores
        return tuple(_with_files_of_now(store, disk) for store in self._stores)

    def _checked(self, start: Offsets, stores: Sequence[StoreRef]) -> Offsets:
        """`start` with all stores in it, moved to where logs begin if data may be lost."""
        offsets: Offsets = {}
        for store in stores:
            at = start.get(store.name)
            begin = _begin(store)
            if at is None or (at < begin and not self._options.fail_on_data_loss):
                at = begin
            elif at < begin:
                raise LogMissing(
                    f"{begin - at} bytes of the log of {store.name} were deleted before they were read:"
                    f" offsets {at} to {begin}",
                    path=store.root,
                    hint="failOnDataLoss = false continues with what is left",
                )
            offsets[store.name] = at
        if self._options.fail_on_data_loss:
            for name in start:
                if name not in offsets:
                    raise LogMissing(
                        f"the store {name}, which the query has read, is no longer one of the stores",
                        hint="add it again, or set failOnDataLoss = false",
                    )
        return offsets

    def _end(self, store: StoreRef, start: int, disk: Disk) -> int:
        last = store.segments[-1].end if store.segments else 0
        if start > last or not _reaches(store, start, disk):
            if self._options.fail_on_data_loss:
                raise LogMissing(
                    f"the log of {store.name} ends before offset {start}, which the query has read: the log was cut",
                    path=store.root,
                    hint="is it another store? failOnDataLoss = false waits until the log reaches that offset",
                )
            return start
        end = log_end(store, disk, start=start)
        return end if self._target is None else max(start, min(end, self._target.get(store.name, start)))

    # --- limits -----------------------------------------------------------------------------------------------------

    def _limited(self, stores: Sequence[StoreRef], start: Offsets, ends: Offsets, disk: Disk) -> Offsets:
        """As far as the limits allow; what one store does not use goes to those that have more."""
        offsets: Offsets = {}
        size, records = self._options.max_bytes, self._options.max_records
        by_backlog = sorted(stores, key=lambda store: ends[store.name] - start[store.name])
        for i, store in enumerate(by_backlog):
            left = len(by_backlog) - i
            low, high = start[store.name], ends[store.name]
            if size is not None:
                high = _within(store, low, high, max(1, size // left), disk)
                size = max(0, size - (high - low))
            if records is not None:
                high, count = _counted(store, low, high, max(1, records // left), self._options.wanted, disk)
                records = max(0, records - count)
            offsets[store.name] = high
        return offsets


def _with_files_of_now(store: StoreRef, disk: Disk) -> StoreRef:
    return dataclasses.replace(store, segments=log_of_now(disk, store.config))


def _reaches(store: StoreRef, offset: int, disk: Disk) -> bool:
    """Whether the log still has what lies just before `offset` (physical), and stops there: else it was cut."""
    segment = next((s for s in store.segments if s.offset < offset <= s.end), None)
    if segment is None:
        return True
    limit = store.config.max_message_size
    with ClosedLog(disk, [segment]) as log:
        at = Boundaries(log, max_message_size=limit).before(segment, offset - 1)
        end, empty = at, False
        for event in Scanner(log, max_message_size=limit).scan(at, offset, resume=True):
            empty = isinstance(event, Damage) and event.reason is Reason.EMPTY
            end = event.end
    return end == offset and not empty


def _begin(store: StoreRef) -> int:
    return store.segments[0].offset if store.segments else 0


def _known(store: StoreRef, offset: int, disk: Disk) -> int:
    """The first place at or after `offset` where the scan surely stops; `offset` where no file is."""
    with ClosedLog(disk, store.segments) as log:
        segment = log.segment_at(offset)
        if segment is None:
            return offset
        end = log_end(store, disk)
        return min(_boundaries(store, log).at(segment, offset), max(end, segment.offset))


def _boundaries(store: StoreRef, log: ClosedLog) -> Boundaries:
    return Boundaries(log, max_message_size=store.config.max_message_size, check_crc=False)


def _within(store: StoreRef, start: int, end: int, size: int, disk: Disk) -> int:
    """The first boundary at least `size` bytes after `start`, `end` at most."""
    wish = start + size
    if wish >= end:
        return end
    with ClosedLog(disk, store.segments) as log:
        segment = log.segment_at(wish)
        return end if segment is None else min(end, _boundaries(store, log).at(segment, wish))


def _counted(store: StoreRef, start: int, end: int, records: int, wanted: Wanted, disk: Disk) -> tuple[int, int]:
    """After how many wanted records from `start` on, `records` at most, the scan is where, `end` at most; how many."""
    count = 0
    with ClosedLog(disk, store.segments) as log:
        limit = store.config.max_message_size
        scanner = Scanner(log, check_crc=False, max_message_size=limit, kernels=kernels_if_loaded())
        for event in scanner.scan(start, end, resume=True):
            if isinstance(event, RecordBatch):
                chosen = wanted.chosen(event)
                some = len(event) if chosen is None else int(chosen.sum())
                if count + some >= records:
                    left = records - count
                    last = left - 1 if chosen is None else int(chosen.nonzero()[0][left - 1])
                    if last == len(event) - 1:
                        return event.end, records
                    segment = log.segment_at(event.start)
                    return event.offset(last + 1) - (segment.before_record if segment else 0), records
                count += some
    return end, count
