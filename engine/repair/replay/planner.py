"""Plans a replay: which repair, which run, and what becomes of each record that was saved.

What was saved is read twice: once for what was settled in the log itself (delayed messages, halves), once to count.
Carrying it out reads it a third time and decides by the same rules, so nothing is held in memory but those places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import CannotRepair, FormatError, Refused
from engine.format import names, properties
from engine.format.delay import DelayLevels
from engine.format.message import Message, decode
from engine.format.quantities import counted
from engine.format.topic_rules import HALF_TOPIC
from engine.inspect.dump.replayed import HERE, Run, marked_places, read_runs
from engine.inspect.dump.salvage_scan import Counting
from engine.inspect.dump.saved_log import SavedLog, SavedRepair, demand_copies, find_repair, log_spans, saved_repairs
from engine.inspect.dump.whole_records import batches
from engine.inspect.store.consumers import read_consumers
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.survey import StoreFiles, surveyed
from engine.log.derive import TopicQueue
from engine.log.prepare import Preparer
from engine.log.results import MessageRefused
from engine.log.source import ClosedLog
from engine.repair.replay.choice import Chooser, KeptHalf, ReplayRules, Skip, find_special, needs_multi_dispatch
from engine.repair.replay.plan import QueueShare, ReplayPlan, ReplayRequest, ReplayShare, read_saved
from engine.repair.replay.target import ReplayTarget, look_at, target_name

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.dump.saved_log import Span
    from engine.inspect.dump.whole_records import Found

Progress = Callable[[int, int], None]


def plan_replay(
    disk: Disk, store: StoreConfig | StoreFiles, request: ReplayRequest, *, progress: Progress | None = None
) -> ReplayPlan:
    """What the request would put. `store`: its survey, or the settings that name it. `progress` is called with bytes
    read so far and in all.

    Raises:
        InvalidArgument: no such repair; no such topic. CannotRepair: nothing to replay. Refused: it was taken back,
        pruned, or is not finished; another replay of it was interrupted; the target has to be recovered. NotAStore,
        StorageError.
    """
    files = surveyed(disk, store)
    name = target_name(files.root, request.into)
    saved = _pick(disk, files, request.name, name)
    _check_state(saved)
    demand_copies(disk, saved)
    runs = read_runs(disk, saved)
    begun = next((run for run in runs if run.target == name and not run.done), None)
    target = look_at(disk, files, name, resumes=begun is not None, made=begun is not None and begun.made)
    resumed = None if begun is None or _starts_over(begun, request, target) else begun
    if resumed is not None:
        _check_same(resumed, request)
    spans = log_spans(saved)
    rules = ReplayRules(
        saved=saved,
        own=target.own,
        cut=spans[0].offset if spans else 0,
        levels=DelayLevels.or_defaults(target.config.message_delay_level),
        now_ms=disk.now_ms(),
        topics=request.topics,
        displaced=request.displaced,
        runs=_counting(runs, name, resumed, again=request.again),
    )
    run = resumed or Run(
        name, request.topics, request.displaced, request.again, target.make, target.log_end, -1, 0, done=False
    )
    before = tuple(one for one in runs if one is not begun)
    if resumed is not None and not target.make:
        placed = _placed(disk, target, saved, resumed)
        rules = replace(rules, placed=placed)
        run = replace(run, messages=run.messages + len(placed))
    return _Planner(disk, files, target, rules, spans, progress).plan(run, before, resumed=resumed is not None)


# --- which repair, which run ------------------------------------------------------------------------------------------


def _pick(disk: Disk, files: StoreFiles, name: str | None, target: str) -> SavedRepair:
    """The repair of that name; without one, that whose replay was interrupted, else the last that saved a record."""
    if name is not None:
        return find_repair(disk, files.root, name)
    every = [saved for saved in reversed(saved_repairs(disk, files.root)) if saved.state == "done"]
    for saved in every:
        if any(not run.done and run.target == target for run in read_runs(disk, saved)):
            return saved
    for saved in every:
        with SavedLog(disk, log_spans(saved)) as log:
            if any(batches(read_saved(disk, log, files.config.max_message_size))):
                return saved
    raise CannotRepair("no repair saved a record of the log", path=files.root, hint="rstore salvage list")


def _check_state(saved: SavedRepair) -> None:
    if saved.state == "undone":
        raise Refused("the repair was undone: its records are in the log again", path=saved.directory)
    if saved.state == "pruned":
        raise Refused("the salvage of the repair was pruned (rstore salvage prune)", path=saved.directory)
    if saved.state == "undo interrupted":
        raise Refused("the undo of this repair was interrupted", path=saved.directory, hint="run rstore undo again")
    if saved.state == "unfinished":
        raise Refused("the repair was interrupted", path=saved.directory, hint="run rstore recover, which finishes it")


def _starts_over(run: Run, request: ReplayRequest, target: ReplayTarget) -> bool:
    """Whether all is to be put once more, whatever an interrupted run has put; an interrupted `again` resumes."""
    return request.again and (not run.again or target.log_start > run.end)


def _check_same(run: Run, request: ReplayRequest) -> None:
    if (run.topics, run.displaced) != (request.topics, request.displaced):
        options = [*(f"--topic {topic}" for topic in run.topics or ()), *(["--displaced"] if run.displaced else [])]
        raise Refused(
            "another replay of this repair was interrupted",
            hint=f"finish it first: rstore salvage replay {' '.join(options)}".rstrip(),
        )


def _counting(runs: Sequence[Run], target: str, resumed: Run | None, *, again: bool) -> tuple[Run, ...]:
    """The runs whose messages are not put again."""
    if resumed is not None and resumed.again:
        return (resumed,)
    return () if again else tuple(run for run in runs if run.target == target)


def _placed(disk: Disk, target: ReplayTarget, saved: SavedRepair, run: Run) -> frozenset[int]:
    """Places of records that a killed run has put after what it noted."""
    if target.log_start > run.end:
        raise Refused(
            "the start of the log was deleted after the replay was interrupted: it is unknown what it had put",
            path=target.root,
            offset=target.log_start,
            hint="salvage replay --again puts all of it again",
        )
    assert target.recovery is not None
    with ClosedLog(disk, target.recovery.files.log) as log:
        return marked_places(log, saved, run.end, target.log_end)


# --- counting ---------------------------------------------------------------------------------------------------------


class _Planner:
    def __init__(
        self,
        disk: Disk,
        files: StoreFiles,
        target: ReplayTarget,
        rules: ReplayRules,
        spans: Sequence[Span],
        progress: Progress | None,
    ) -> None:
        self._disk = disk
        self._files = files
        self._target = target
        self._rules = rules
        self._spans = spans
        self._tell = progress
        self._read_bytes = 0
        self._share = ReplayShare()
        self._next = Counter(target.next_offsets)
        self._prepare = Preparer(target.config)

    def plan(self, run: Run, before: tuple[Run, ...], *, resumed: bool) -> ReplayPlan:
        counting = Counting()
        with SavedLog(self._disk, self._spans) as saved, ClosedLog(self._disk, self._files.log) as log:
            special = find_special(self._events(saved), self._kept_half())
            rules = replace(self._rules, special=special)
            chooser = Chooser(rules, log, self._target.log_end if self._target.own else 1 << 63, saved)
            for event in self._events(saved):
                counting.feed(event)
                for batch, displaced in batches([event]):
                    for i, row in enumerate(batch.rows):
                        chosen = chooser.choose(batch, i, displaced=displaced)
                        if isinstance(chosen, Skip):
                            self._skip(chosen, row.size)
                        elif not self._count(chosen, batch.record(i), batch.offset(i), row.store_timestamp):
                            self._skip(Skip.REFUSED, row.size)
        if rules.topics is not None and not self._share.messages:
            known = KnownNames.of(self._disk, self._files).and_also(TopicQueue(t, 0) for t in chooser.other_topics)
            for topic in rules.topics:
                known.demand_topic(topic)
        share, report = self._share, counting.report
        report.lost = [lost_range for lost_range in report.lost if lost_range.file is not None]
        rules = replace(rules, refused=frozenset(place for place, _, _ in share.refused))
        consumers = read_consumers(self._disk, self._target.root, share.queues)
        above = tuple(
            (group, queue, offset, one.start)
            for queue, one in sorted(share.queues.items())
            for group, offset in consumers.above(queue, one.start)
        )
        refusal = self._refusal(resumed=resumed)
        return ReplayPlan(
            self._files, self._target, rules, run, before, share, report, resumed, above, consumers.problems, refusal
        )

    def _events(self, saved: SavedLog) -> Iterator[Found]:
        total = 2 * sum(span.size for span in self._spans)
        last = 0
        for event in read_saved(self._disk, saved, self._files.config.max_message_size):
            yield event
            if self._tell is not None:
                for batch, _ in batches([event]):
                    last += batch.end - batch.start
                    self._tell(min(self._read_bytes + last, total), total)
        self._read_bytes = total // 2

    def _kept_half(self) -> KeptHalf:
        """Looks halves up in the target's queues: kept are those whose record lies before all that was saved."""
        if not self._target.own:
            return lambda queue_id, offset: False
        queues = {files.queue.queue_id: files for files in self._files.queues if files.queue.topic == HALF_TOPIC}

        def kept(queue_id: int, offset: int) -> bool:
            files = queues.get(queue_id)
            if files is None:
                return False
            unit = QueueRows(self._disk, files).read(offset, offset + 1)
            return bool(is_real(unit)[0]) and int(unit["physical_offset"][0]) < self._rules.cut

        return kept

    def _count(self, message: Message, record: memoryview, place: int, store_timestamp: int) -> bool:
        """Count a message that is put; False when it can't be."""
        share = self._share
        try:
            stored = decode(record)
            prepared = self._prepare.one(message)
        except (MessageRefused, FormatError) as error:
            share.refused.append((place, message.topic, error.message))
            return False
        share.further_lost += needs_multi_dispatch(stored, self._target.config)
        share.messages += 1
        share.size += len(record)
        if stored.topic == names.SCHEDULE_TOPIC:
            waits = properties.DELAY in message.properties
            share.waiting += waits
            share.at_once += not waits
        for queue in prepared.queues:
            one = share.queues.setdefault(queue, QueueShare(self._next[queue]))
            one.messages += 1
            one.size += len(record)
            one.first = min(one.first or store_timestamp, store_timestamp)
            one.last = max(one.last, store_timestamp)
        return True

    def _skip(self, why: Skip, size: int) -> None:
        records, total = self._share.skipped.get(why, (0, 0))
        self._share.skipped[why] = records + 1, total + size

    def _refusal(self, *, resumed: bool) -> RStoreError | None:
        share = self._share
        if share.further_lost:
            return Refused(
                f"{share.further_lost} of the messages are in light queues, too, which these settings don't fill",
                path=self._target.root,
                hint="give the broker's settings with -c broker.conf: enableLmq, enableMultiDispatch",
            )
        if not resumed and not share.messages and Skip.REPLAYED in share.skipped:
            into = "" if self._target.name == HERE else f" into {self._target.root}"
            return Refused(
                counted(share.skipped[Skip.REPLAYED][0], "message of the repair was", "messages of the repair were")
                + f" already replayed{into}",
                path=self._rules.saved.directory,
                hint="--again puts them again",
            )
        return None
