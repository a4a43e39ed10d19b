"""Prometheus metrics: what there is, by name, and how each is read when it is scraped. `SERVE.md` has the table.

The hot path adds integers, as it does without us; everything else is looked up at a scrape, in turns of the loop, and
put together beside it. Labels are bounded: of topics and groups the LABELS with the most messages have their own, the
others are `(others)` together.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from engine.broker.net.connection import OTHER
from engine.broker.put.flow import REASONS
from engine.broker.watch.live import code_name
from engine.errors import RStoreError
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.broker.watch.health import Health
    from engine.broker.watch.live import Live

LABELS = 1000
OTHERS = "(others)"
_BUCKETS = range(14, 36)
"""Bits of ns: 16 µs, 33 µs … 34 s."""
Samples = Iterable[tuple[Sequence[str], float]]


class Declared(NamedTuple):
    """A metric: its name, kind (counter, gauge, histogram), labels, meaning, and where its values come from.

    `many`: values of the same labels are added up, and those beyond the LABELS highest are one.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    means: str
    read: Callable[[Live], Samples]
    many: bool = False


def _one(read: Callable[[Live], float]) -> Callable[[Live], Samples]:
    return lambda live: [((), read(live))]


def _most(rows: Samples) -> Samples:
    """Those with the highest values by their own names, and the sum of the rest."""
    values: dict[Sequence[str], float] = {}
    for labels, value in rows:
        values[labels] = values.get(labels, 0) + value
    if len(values) <= LABELS:
        return list(values.items())
    highest = heapq.nlargest(LABELS, values.items(), key=lambda row: row[1])
    rest = sum(values.values()) - sum(value for _, value in highest)
    return [*highest, ((OTHERS,) * len(highest[0][0]), rest)]


def _puts(number: str) -> Callable[[Live], Samples]:
    return lambda live: (((topic,), getattr(c, number)) for topic, c in list(live.watched.stats.topics.items()))


def _gets(number: str) -> Callable[[Live], Samples]:
    return lambda live: (((topic,), getattr(c, number)) for (_, topic), c in list(live.watched.stats.groups.items()))


def _answers(live: Live) -> Samples:
    for request, response, count in live.answers():
        yield ("OTHER" if request == OTHER else RequestCode(request).name, code_name(response)), count


def _cut(live: Live) -> Samples:
    for reason in ("frame", "input", "output", "idle"):
        yield (reason,), sum(board.cut[reason] for board in live.watched.boards)


def _maps(_: Live) -> Samples:
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as file:
        yield (), sum(1 for _ in file)


def _slave_lag(live: Live) -> Samples:
    copied = live.watched.role.copied
    lag = 0 if copied is None else copied.lag
    if lag is not None:
        yield (), lag


def _of_backup(live: Live, number: int) -> Samples:
    lag = live.backup_lag
    if lag is not None:
        yield (), lag[number]


def _states(live: Live) -> Samples:
    copied = live.watched.role.copied
    if copied is not None:
        for status in type(copied.status):
            yield (status.value,), float(status is copied.status)


def _scrub_age(live: Live) -> Samples:
    watched = live.watched
    since = watched.scrubbing.oldest_ms or watched.started_ms
    yield (), max(0.0, (watched.now_ms() - since) / 1000) if watched.scrubbing.is_on else 0.0


METRICS: tuple[Declared, ...] = (
    Declared("rstore_put_messages", "counter", ("topic",), "Messages put by clients.", _puts("messages"), many=True),
    Declared("rstore_put_bytes", "counter", ("topic",), "Bytes of the log that clients' messages take.", _puts("size"),
             many=True),
    Declared("rstore_get_messages", "counter", ("topic",), "Messages sent to consumers.", _gets("messages"), many=True),
    Declared("rstore_get_bytes", "counter", ("topic",), "Bytes of the messages sent to consumers.", _gets("size"),
             many=True),
    Declared("rstore_sent_back", "counter", ("group", "topic"), "Messages that a group sent back for retry.",
             lambda live: ((key, c.messages) for key, c in list(live.watched.stats.backs.items())), many=True),
    Declared("rstore_put_failures", "counter", (), "Failed puts.",
             _one(lambda live: live.watched.stats.totals().put_failed)),
    Declared("rstore_gets_missed", "counter", (), "Gets that returned no message.",
             _one(lambda live: live.watched.stats.totals().misses)),
    Declared("rstore_put_seconds", "histogram", (), "Duration of clients' puts, including flush and slave.",
             lambda live: ()),
    Declared("rstore_answers", "counter", ("request", "response"), "Answered requests by code.", _answers),
    Declared("rstore_connections", "gauge", ("listener",), "Open connections.",
             lambda live: [((board.name,), len(board.connections)) for board in live.watched.boards]),
    Declared("rstore_connections_refused", "counter", ("listener",), "Connections refused at the limit of connections.",
             lambda live: [((board.name,), board.refused) for board in live.watched.boards]),
    Declared("rstore_connections_cut", "counter", ("reason",),
             "Connections closed by the daemon: invalid or incomplete frames, unread output, silence.", _cut),
    Declared("rstore_output_waiting_bytes", "gauge", (), "Bytes of answers that clients have not read yet.",
             _one(lambda live: live.output_waiting)),
    Declared("rstore_held_pulls", "gauge", (), "Held pulls.",
             _one(lambda live: live.watched.pulls.held)),
    Declared("rstore_pulls_not_held", "counter", (), "Pulls not held because the limit of held pulls was reached.",
             _one(lambda live: live.watched.pulls.not_held)),
    Declared("rstore_backup_lag_seconds", "gauge", (),
             "Seconds since all of the log was in a backup, as its follower told.",
             lambda live: _of_backup(live, 0)),
    Declared("rstore_backup_lag_bytes", "gauge", (),
             "Bytes of the log that the backup of a follower does not have yet.",
             lambda live: _of_backup(live, 1)),
    Declared("rstore_log_min_offset", "gauge", (), "Log start (physical offset).",
             _one(lambda live: live.watched.store.log.min_offset)),
    Declared("rstore_log_max_offset", "gauge", (), "Log end (physical offset).",
             _one(lambda live: live.watched.store.log.max_offset)),
    Declared("rstore_log_flushed_offset", "gauge", (), "Physical offset up to which the log is flushed.",
             _one(lambda live: live.watched.store.log.flushed_where)),
    Declared("rstore_log_dispatched_offset", "gauge", (),
             "Physical offset up to which the log is dispatched to queues and index.",
             _one(lambda live: live.watched.store.dispatch.position)),
    Declared("rstore_flush_behind_bytes", "gauge", (), "Bytes of the log that are not flushed yet.",
             _one(lambda live: max(live.watched.store.log.max_offset - live.watched.store.log.flushed_where, 0))),
    Declared("rstore_dispatch_behind_bytes", "gauge", (), "Dispatch lag: bytes of the log that are not dispatched yet.",
             _one(lambda live: live.watched.store.dispatch_lag)),
    Declared("rstore_slave_behind_bytes", "gauge", ("slave",), "Lag in bytes of a slave of this master.",
             lambda live: [((one.address,), one.lag) for one in live.watched.role.slaves]),
    Declared("rstore_slave_connections_rejected", "counter", ("reason",),
             "Connections of slaves that were rejected, or closed for a fault, by reason.",
             lambda live: [((reason,), count) for reason, count in live.watched.role.rejections.items()]),
    Declared("rstore_replication_behind_bytes", "gauge", (), "On a slave: its lag in bytes at the last query.",
             _slave_lag),
    Declared("rstore_replication_state", "gauge", ("state",), "On a slave: 1 for the current state of replication.",
             _states),
    Declared("rstore_replication_appended_bytes", "counter", (), "On a slave: bytes received from its master.",
             _one(lambda live: 0 if live.watched.role.copied is None else live.watched.role.copied.appended)),
    Declared("rstore_disk_used_ratio", "gauge", ("part",), "Disk usage of log (CL), queues (CQ) and index.",
             lambda live: [((part,), ratio) for part, ratio in live.disks().items()]),
    Declared("rstore_log_files_fit", "gauge", (), "Further segments that the disks have space for.",
             lambda live: [((), fit) for fit in (live.log_files_that_fit(),) if fit is not None]),
    Declared("rstore_writeable", "gauge", (),
             "0 while puts are refused (disk full, no space for the next segment, failure), else 1.",
             _one(lambda live: float(live.writeable))),
    Declared("rstore_files_expired", "counter", ("kind",), "Files deleted by retention.",
             lambda live: [((kind,), getattr(live.watched.store.clean.status, f"{kind}_files"))
                           for kind in ("log", "queue", "index")]),
    Declared("rstore_consumer_lag", "gauge", ("group", "topic"), "Lag of a group in messages.",
             lambda live: (((lag.group, lag.topic), lag.messages) for lag in live.lags), many=True),
    Declared("rstore_schedule_waiting", "gauge", ("level",), "Delayed messages that wait for their delivery time.",
             lambda live: [((str(one.level),), one.messages) for one in live.watched.schedule.backlog()]),
    Declared("rstore_schedule_late_seconds", "gauge", ("level",), "Delay of the next overdue delayed message.",
             lambda live: [((str(one.level),), one.late_ms / 1000) for one in live.watched.schedule.backlog()]),
    Declared("rstore_schedule_lost", "counter", (), "Delayed messages that could not be delivered.",
             _one(lambda live: live.watched.schedule.lost)),
    Declared("rstore_timer_waiting", "gauge", (), "Timer messages that wait for their time.",
             _one(lambda live: live.watched.timers.waiting)),
    Declared("rstore_timer_lost", "counter", (), "Timer messages that could not be delivered.",
             _one(lambda live: live.watched.timers.lost)),
    Declared("rstore_transactions_waiting", "gauge", (), "Open half messages (estimate).",
             _one(lambda live: live.watched.transactions.waiting)),
    Declared("rstore_flow_refused", "counter", ("reason",), "Sends refused with SYSTEM_BUSY (flow control).",
             lambda live: [((reason,), live.watched.flow.refused[reason]) for reason in REASONS]),
    Declared("rstore_flow_waiting", "gauge", (), "Puts that wait for the disk.",
             _one(lambda live: live.watched.flow.queued + live.watched.flow.waiting)),
    Declared("rstore_slow_puts", "counter", (), "Puts that took longer than 200 ms in the log.",
             _one(lambda live: live.watched.flow.slow_puts)),
    Declared("rstore_loop_lag_seconds", "gauge", (), "Longest time without serving anybody in the last minute.",
             lambda live: ()),
    Declared("rstore_loop_held_seconds", "counter", ("handler",),
             "Time for which handlers of requests and timers held the loop, each time longer than 20 ms.",
             lambda live: [((name,), held.seconds) for name, held in live.watched.turns.held.items()]),
    Declared("rstore_scrubbed_bytes", "counter", (), "Bytes of the log that the scrub has read (--scrub).",
             _one(lambda live: live.watched.scrubbing.read)),
    Declared("rstore_scrub_wrong_pages", "counter", (),
             "Pages of 4 KiB that the scrub found not as they were sealed, or damaged, in each of its passes.",
             _one(lambda live: live.watched.scrubbing.pages)),
    Declared("rstore_sealed_segments", "counter", (), "Segments that were sealed (--seal).",
             _one(lambda live: live.watched.scrubbing.sealed_segments)),
    Declared("rstore_scrub_oldest_seconds", "gauge", (),
             "Time since the scrub read the segment that it read longest ago; 0 without --scrub.", _scrub_age),
    Declared("rstore_archived_segments", "counter", (), "Segments that were archived and then deleted (--archive).",
             _one(lambda live: live.watched.archiving.archived)),
    Declared("rstore_archive_waiting_segments", "gauge", (),
             "Segments that retention would delete and that are still there: the archive does not hold them yet.",
             _one(lambda live: live.watched.archiving.waiting)),
    Declared("rstore_archive_failing", "gauge", (),
             "1 while the archive can't be written (see the log), else 0; 0 without --archive.",
             _one(lambda live: float(bool(live.watched.archiving.error)))),
    Declared("rstore_process_maps", "gauge", (), "Memory maps of the process.", _maps),
)  # fmt: skip
"""Every metric of ours. A counter is exposed with `_total` after its name; process_… are prometheus_client's own."""


class Gathered(NamedTuple):
    """What was read at a scrape: by metric, and the put times."""

    samples: list[tuple[Declared, list[tuple[Sequence[str], float]]]]
    put_bits: list[int]
    put_ns: int


async def gather(live: Live, health: Health) -> Gathered:
    """Read all of it, in turns of the loop."""
    await live.refresh()
    samples = []
    for declared in METRICS:
        rows: list[tuple[Sequence[str], float]] = []
        with contextlib.suppress(RStoreError):  # a queue's file that can't be read, say: the others are told
            rows = [row async for row in live.watched.turns.walk(_read(declared, live, health), "metrics")]
        samples.append((declared, rows))
    times = live.watched.stats.put_times
    return Gathered(samples, list(times.by_bits), times.took_ns)


def _read(declared: Declared, live: Live, health: Health) -> Samples:
    if declared.name == "rstore_loop_lag_seconds":
        yield (), health.lag_s
    yield from declared.read(live)


def expose(gathered: Gathered, accept: str) -> tuple[bytes, str]:
    """The text for a scraper that accepts these kinds, and its kind. In any thread: thousands of lines take a while."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(gathered))
    ProcessCollector(registry=registry)
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class _Families(Collector):
    """What was gathered, as prometheus_client has it."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        for declared, samples in self._gathered.samples:
            if declared.kind == "histogram":
                yield self._put_seconds(declared)
                continue
            family: Any = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
            made = family(declared.name, declared.means, labels=declared.labels)
            for labels, value in _most(samples) if declared.many else samples:
                made.add_metric(list(labels), value)
            yield made

    def _put_seconds(self, declared: Declared) -> Metric:
        bits, passed, at = self._gathered.put_bits, 0, 0
        buckets: list[tuple[str, float]] = []
        for number in _BUCKETS:
            passed += sum(bits[at : number + 1])
            at = number + 1
            buckets.append((str((1 << number) / 1e9), passed))
        buckets.append(("+Inf", sum(bits)))
        family = HistogramMetricFamily(declared.name, declared.means)
        family.add_metric([], buckets, self._gathered.put_ns / 1e9)
        return family
