"""The plan of a recovery: everything that will change, computed without changing anything.

The same object is printed by `--dry-run` and applied (`engine.repair.recover.apply`). `to_json` is the shape of CLI.md
"Plans".
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.errors import RStoreError
    from engine.format.checkpoint import ReplicaOffsets
    from engine.inspect.store.layout import Layout
    from engine.inspect.store.odd import OddFile
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment
    from engine.log.state import StoreState
    from engine.repair.recover.batch_plan import BatchQueuePlan
    from engine.repair.recover.bridge import Bridge
    from engine.repair.recover.epoch_plan import EpochPlan
    from engine.repair.recover.ext_cut import ExtCut
    from engine.repair.recover.index_plan import IndexPlan
    from engine.repair.recover.log_end import DamagedRange, LogEnd, Mode
    from engine.repair.recover.planned_rows import PlannedRows
    from engine.repair.recover.queue_plan import QueuePlan, Requeued
    from engine.repair.recover.shifted import Shift
    from engine.repair.recover.timer_plan import TimerPlan


@dataclass(frozen=True, slots=True)
class LogPlan:
    """What happens to the commit log. Physical offsets; lengths in bytes.

    `tail`: file, position and length of what is made zero after the end. `removed`: segments after the end.
    `mends`: records whose own physicalOffset is wrong and gets mended; `requeued`: the same of queueId and queueOffset.
    `blank`: file and position of a blank record at the log end, which only a start takes away, as puts continue there.
    `bridges`: damaged ranges that get inert content, as sound records lie after them. `shifts`: records off their
    place in their segment, which go back. `taken`: records that are written over damage out of a copy of the segment.
    `added`: missing segments that are made, for records that `taken` has.
    `read_from`: from there on every record was read; before it only where the queues' units leave holes.
    """

    start_file: str | None
    min_offset: int
    end: LogEnd
    damage_before: tuple[DamagedRange, ...]
    tail: tuple[str, int, int] | None
    removed: tuple[str, ...]
    bytes_cut: int
    mends: tuple[int, ...]
    bridges: tuple[Bridge, ...] = ()
    shifts: tuple[Shift, ...] = ()
    blank: tuple[str, int] | None = None
    read_from: int = -1
    requeued: tuple[Requeued, ...] = ()
    taken: tuple[Bridge, ...] = ()
    added: tuple[Segment, ...] = ()

    @property
    def mended(self) -> bool:
        """Whether a record within the log changes."""
        return bool(self.mends or self.requeued or self.bridges or self.shifts or self.taken or self.added)


@dataclass(frozen=True, slots=True)
class FromCopies:
    """Records that somebody has proved to be the log's, out of copies of it, and the missing segments for them."""

    taken: tuple[Bridge, ...] = ()
    added: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoverPlan:
    """The whole plan.

    `batches`: of batch queues. `refusal`: the error that applying it raises, when data would be lost that nobody gave
    up. `problems`: what the operator should know, one sentence each. `accepted`: lost ranges (physical offset, length)
    before the log end that `cut` continues after. `trap`: damage that stays in the log and that a normal start would
    cut at. `to`: the end of the log (physical) that was asked for; `ext`: what goes of the extension files then.
    `layout`: which files of the log get another name or length; all else is planned over the log as it will be then.
    `config_broken`: files of config/ that a broker can't read stay (engine.inspect.check.config_start).
    `checkpoint_ahead`: it is later than every record, and all of them were read. `next_start`: where a normal start of
    the recovered store begins to read (physical); `compared_from`: from where on the log was. Of a
    store of RocketMQ 5: `timer` and `epochs`, where they change, and `replica`, where the checkpoint's
    offsets are after the log end. `starts_again`: its broker has to start as after a crash, as that builds its
    queues in RocksDB again.
    """

    files: StoreFiles
    mode: Mode
    log: LogPlan
    queues: tuple[QueuePlan, ...]
    batches: tuple[BatchQueuePlan, ...]
    writes: PlannedRows
    index: IndexPlan
    set_aside: tuple[OddFile, ...]
    problems: tuple[str, ...]
    refusal: RStoreError | None
    accepted: tuple[tuple[int, int], ...]
    trap: DamagedRange | None
    to: int | None
    ext: tuple[ExtCut, ...]
    state: StoreState
    layout: Layout
    unfinished: bool = False
    config_broken: bool = False
    checkpoint_ahead: bool = False
    next_start: int = 0
    compared_from: int = 0
    timer: TimerPlan | None = None
    epochs: EpochPlan | None = None
    replica: ReplicaOffsets | None = None
    starts_again: bool = False

    @property
    def keeps_abort(self) -> bool:
        """Whether the next start has to be one as after a crash."""
        return self.trap is not None or self.starts_again

    @property
    def every_queue(self) -> tuple[QueuePlan | BatchQueuePlan, ...]:
        """The queues of both kinds, by topic and queue id."""
        if not self.batches:
            return self.queues
        return tuple(sorted((*self.queues, *self.batches), key=lambda one: one.queue))

    @property
    def set_aside_first(self) -> tuple[OddFile, ...]:
        """What is set aside before files of the log get their names: it may have one of them."""
        later = (*self.set_aside_then, *self.set_aside_last)
        return tuple(odd for odd in self.set_aside if odd not in later)

    @property
    def set_aside_last(self) -> tuple[OddFile, ...]:
        """Copies of segments whose records are written into those first."""
        copies = {copy.file for copy in self.layout.rivals} if self.log.taken else set()
        return tuple(odd for odd in self.set_aside if odd.path in copies)

    @property
    def set_aside_then(self) -> tuple[OddFile, ...]:
        """Directories that files of the log are taken out of first."""
        within = tuple(os.path.dirname(one.path) for one in self.layout.relocations)
        return tuple(odd for odd in self.set_aside if odd.path in within)

    @property
    def marks(self) -> bool:
        """Whether checkpoint or abort file are not as a finished repair leaves them."""
        left = self.unfinished or self.files.abort != self.keeps_abort
        return left or not self.files.checkpoint_ok or self.checkpoint_ahead or self.replica is not None

    @property
    def unread(self) -> tuple[Segment, ...]:
        """Segments that were not read as a whole, before `log.read_from`."""
        return tuple(segment for segment in self.files.log if segment.end <= self.log.read_from)

    @property
    def changed(self) -> bool:
        """Whether applying it changes a byte of log, queues, index, or sets something aside."""
        log = self.log
        return bool(
            self.layout.changed
            or log.tail
            or log.removed
            or log.mends
            or log.requeued
            or log.bridges
            or log.shifts
            or log.taken
            or log.added
            or any(queue.changed for queue in self.every_queue)
            or self.index.changed
            or self.ext
            or self.set_aside
            or self.accepted
            or self.timer is not None
            or self.epochs is not None
        )

    @property
    def would_change(self) -> bool:
        """Whether applying it changes a byte at all: also when it only takes the abort file away."""
        return self.changed or self.marks

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The JSON of CLI.md "Plans"; `salvage` is the directory once it was applied."""
        end = self.log.end
        damaged = [
            *((s.offset, s.length, s.path, s.reason) for s in (*self.log.damage_before, *end.gaps, *end.damage)),
            *((b.offset, b.length, b.segment.path, b.reason) for b in self.log.bridges),
        ]
        return {
            "mode": self.mode.value,
            "abort": self.files.abort,
            "startsAgain": self.starts_again,
            "startFile": None if self.log.start_file is None else os.path.basename(self.log.start_file),
            "read": {
                "from": self.log.read_from,
                "segments": len(self.files.log) - len(self.unread),
                "of": len(self.files.log),
                "whole": not self.unread,
            },
            "minOffset": self.log.min_offset,
            "maxOffset": end.end,
            "truncateTo": end.end if self.log.bytes_cut else None,
            "records": end.records,
            "messages": end.messages,
            "bytesCut": self.log.bytes_cut,
            "damage": [
                {"physicalOffset": offset, "length": length, "file": os.path.basename(path), "reason": reason}
                for offset, length, path, reason in sorted(damaged)
            ],
            "bridged": [{"offset": b.offset, "length": b.length} for b in self.log.bridges],
            "shifted": [
                {"offset": s.start, "length": s.end - s.start, "distance": s.distance, "records": s.records}
                for s in self.log.shifts
            ],
            "copied": [{"offset": one.offset, "length": one.length} for one in self.log.taken],
            "recordsAfter": end.records_after,
            "stale": None
            if end.stale is None
            else {"physicalOffset": end.stale.offset, "end": end.stale.end, "records": end.stale.records},
            "after": [
                {"topic": queue.topic, "queueId": queue.queue_id, "records": records, "bytes": size}
                for queue, (records, size) in sorted(end.after.items())
            ],
            "filesRemoved": [os.path.relpath(path, self.files.root) for path in self.log.removed],
            "physicalOffsetsCorrected": list(self.log.mends),
            "queueOffsetsCorrected": [
                {"physicalOffset": one.physical_offset, "queueId": one.queue_id, "queueOffset": one.queue_offset}
                for one in self.log.requeued
            ],
            **self._layout_json(),
            "quarantined": [
                {"path": os.path.relpath(o.path, self.files.root), "why": o.description} for o in self.set_aside
            ],
            "queues": [
                {
                    "topic": queue.queue.topic,
                    "queueId": queue.queue.queue_id,
                    "minOffset": queue.min_offset,
                    "maxOffset": queue.max_offset,
                    "unitsCut": queue.units_cut,
                    "unitsRebuilt": queue.units_rebuilt,
                    "unitsFilled": queue.units_filled,
                }
                for queue in self.every_queue
            ],
            "extension": [
                {
                    "topic": cut.queue.topic,
                    "queueId": cut.queue.queue_id,
                    "bytesCut": cut.bytes_cut,
                    "filesRemoved": [os.path.relpath(path, self.files.root) for path, _ in cut.removed],
                }
                for cut in self.ext
            ],
            "index": self.index.to_json(),
            "timer": None if self.timer is None else self.timer.to_json(),
            "epochs": None if self.epochs is None else self.epochs.to_json(),
            "salvage": salvage,
            "changed": self.changed,
            "problems": list(self.problems),
        }

    def _layout_json(self) -> dict[str, Any]:
        def below(path: str) -> str:
            return os.path.relpath(path, self.files.root)

        return {
            "renamed": [{"path": below(one.path), "to": below(one.target)} for one in self.layout.relocations],
            "resized": [
                {"path": below(one.segment.path), "from": one.held, "to": one.segment.size}
                for one in self.layout.resizes
            ],
        }
