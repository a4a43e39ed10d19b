"""What goes through the broker, counted: by topic and by group, in windows of a minute, an hour and a day.

A put or a get costs one look-up and a few additions. Whatever else there is to know (rates, sums, windows) is made by
`tick`, once a second, from those counters. All counts begin with the daemon.

Sources: BrokerStatsManager, StatsItem, StoreStatsService, BrokerStats (4.9.8); BROKER.md 1.5.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TICK_S = 1
_MINUTE_EVERY, _HOUR_EVERY, _DAY_EVERY = 10, 600, 3600
"""Ticks between two samples of each window."""
_MINUTE_KEPT, _HOUR_KEPT, _DAY_KEPT = 7, 7, 25
_RATES_S: Final = (10, 60, 600)

PUT_TIME_BOUNDS: Final = (
    *range(21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10), *range(250, 501, 50),
    *range(600, 1001, 100), *range(2000, 10_001, 1000),
)  # fmt: skip
"""Whole ms up to which puts are in a class of Apache's (999 µs are 0 ms); what took longer is in the last."""
_NS_OF_MS: Final = 1_000_000
_CLASSES_NS: Final = (
    *(us * 1000 for us in (5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 400, 500, 700)),
    *((ms + 1) * _NS_OF_MS for ms in PUT_TIME_BOUNDS),
)
"""Below which ns a put is in a class: Apache's, and the first ms in finer ones, where nearly all puts are."""
_BITS: Final = 64
_SPREAD: Final = (
    ("[<=0ms]", 0), ("[0~10ms]", 10), ("[10~50ms]", 50), ("[50~100ms]", 100), ("[100~200ms]", 200),
    ("[200~500ms]", 500), ("[500ms~1s]", 1000), ("[1~2s]", 2000), ("[2~3s]", 3000), ("[3~4s]", 4000),
    ("[4~5s]", 5000), ("[5~10s]", 10_000),
)  # fmt: skip


class StatsSample(NamedTuple):
    """A counter at a time, ms."""

    ms: int
    times: int = 0
    messages: int = 0
    size: int = 0
    took_ms: int = 0


class Window(NamedTuple):
    """What a window has of one number: its sum, per second, per call, and how many calls (StatsSnapshot)."""

    total: int
    tps: float
    average: float
    times: int


class StatsView(NamedTuple):
    """One number by the three windows (BrokerStatsData)."""

    minute: Window
    hour: Window
    day: Window


class StatsRate(NamedTuple):
    """Per second, over the last 10, 60 and 600 s; None where the daemon is younger."""

    ten: float | None
    minute: float | None
    ten_minutes: float | None

    def __str__(self) -> str:
        """As GET_BROKER_RUNTIME_INFO has it. Source: StoreStatsService#getPutTps."""
        return " ".join("" if one is None else str(one) for one in self)


class Rates(NamedTuple):
    """Messages put and handed out, and gets that found and missed something, per second."""

    put: StatsRate
    hits: StatsRate
    misses: StatsRate
    transferred: StatsRate

    @property
    def got(self) -> StatsRate:
        """All gets."""
        return StatsRate(
            *((hits or 0.0) + (misses or 0.0) for hits, misses in zip(self.hits, self.misses, strict=True))
        )


class Totals(NamedTuple):
    """Since the start: messages put and their bytes in the log, puts that failed, messages handed out, gets."""

    put: int = 0
    put_size: int = 0
    put_failed: int = 0
    transferred: int = 0
    hits: int = 0
    misses: int = 0


@dataclass(slots=True)
class TopicCounter:
    """Of one topic, or of one group in one topic: calls, messages, bytes, and for gets the ms they took."""

    times: int = 0
    messages: int = 0
    size: int = 0
    took_ms: int = 0
    _minute: deque[StatsSample] = field(default_factory=lambda: deque(maxlen=_MINUTE_KEPT), repr=False)
    _hour: deque[StatsSample] = field(default_factory=lambda: deque(maxlen=_HOUR_KEPT), repr=False)
    _day: deque[StatsSample] = field(default_factory=lambda: deque(maxlen=_DAY_KEPT), repr=False)

    def add(self, other: TopicCounter) -> None:
        """What another has counted, but for its windows."""
        self.times += other.times
        self.messages += other.messages
        self.size += other.size
        self.took_ms += other.took_ms

    def sample(self, now_ms: int, turn: int) -> None:
        """Note how things stand in the windows whose turn it is. Source: StatsItem#samplingInSeconds."""
        windows = ((self._minute, _MINUTE_EVERY), (self._hour, _HOUR_EVERY), (self._day, _DAY_EVERY))
        for window, every in windows:
            if turn % every:
                return  # each is a multiple of the one before it
            if not window:
                window.append(StatsSample(now_ms - every * TICK_S * 1000))
            window.append(StatsSample(now_ms, self.times, self.messages, self.size, self.took_ms))

    def view(self, number: str) -> StatsView:
        """One of the numbers, by its name in `StatsSample`."""
        return StatsView(*(_window(window, number) for window in (self._minute, self._hour, self._day)))


def _window(samples: deque[StatsSample], number: str) -> Window:
    if not samples:
        return Window(0, 0.0, 0.0, 0)
    first, last = samples[0], samples[-1]
    total, times = getattr(last, number) - getattr(first, number), last.times - first.times
    return Window(total, total * 1000 / max(last.ms - first.ms, 1), total / times if times else 0.0, times)


class PutTimes:
    """How long puts took, in classes: those of this minute, and of the one before, which is what is reported.

    Attributes:
        longest: ms, since the start.
        took_ns: all together, since the start.
        by_bits: how many took less than 2 to the power of the index in ns (and half of that or more), since the start.
        last: counts by class (`_CLASSES_NS`, then the rest) of the last full minute.
    """

    def __init__(self) -> None:
        self._now = [0] * (len(_CLASSES_NS) + 1)
        self.last = list(self._now)
        self.longest = self.took_ns = 0
        self._longer_ns = _NS_OF_MS
        self.by_bits = [0] * _BITS

    def add_ns(self, took_ns: int) -> None:
        """A put took so long."""
        self.by_bits[took_ns.bit_length()] += 1
        self.took_ns += took_ns
        self._now[bisect_right(_CLASSES_NS, took_ns)] += 1
        if took_ns >= self._longer_ns:
            self.longest = took_ns // _NS_OF_MS
            self._longer_ns = (self.longest + 1) * _NS_OF_MS

    def minute_is_over(self) -> None:
        """Begin anew."""
        self.last, self._now = self._now, [0] * len(self._now)

    def quantile(self, share: float) -> float:
        """In ms, between the bounds of its class. Source: StoreStatsService#findPutMessageEntireTimePX."""
        wanted, passed, low = int(sum(self.last) * share), 0, 0
        for bound, count in zip(_CLASSES_NS, self.last, strict=False):
            if wanted <= passed + count:
                inside = (bound - low) * (wanted - passed) / count if count else 0.0
                return (low + inside) / _NS_OF_MS
            passed, low = passed + count, bound
        return low / _NS_OF_MS

    def spread(self) -> str:
        """Counts by coarse classes, as GET_BROKER_RUNTIME_INFO has them."""
        text, at = "", 0
        for name, bound in _SPREAD:
            end = _CLASSES_NS.index((bound + 1) * _NS_OF_MS) + 1
            text += f"{name}:{sum(self.last[at:end])} "
            at = end
        return f"{text}[10s~]:{sum(self.last[at:])} "


class Stats:
    """See the module. For the loop's thread alone.

    Args:
        now_ms: the clock.
        cluster: under whose name the broker's own numbers are asked for.

    Attributes:
        put_times: of puts by clients.
        longest_get_ms: of the gets that found something.
        morning, yesterday: the totals at the last midnight, and at the one before; zeros before the first.
    """

    def __init__(self, now_ms: Callable[[], int], cluster: str) -> None:
        self._now_ms = now_ms
        self._cluster = cluster
        self._puts: dict[str, TopicCounter] = {}
        self._gets: dict[tuple[str, str], TopicCounter] = {}
        self._backs: dict[tuple[str, str], TopicCounter] = {}
        self._broker_puts, self._broker_gets = TopicCounter(), TopicCounter()
        self._own, self._forgotten_puts, self._forgotten_gets = TopicCounter(), TopicCounter(), TopicCounter()
        self._failed = self._missed = self._turn = 0
        self._samples: deque[tuple[int, Totals]] = deque(maxlen=_RATES_S[-1] + 1)
        self._date = _date(now_ms())
        self.put_times = PutTimes()
        self.longest_get_ms = 0
        self.morning, self.yesterday = Totals(), Totals()

    # --- counting ---------------------------------------------------------------------------------------------------

    def put(self, topic: str, messages: int, size: int) -> None:
        """A client's messages are in the log, with `size` bytes there."""
        counter = self._puts.get(topic)
        if counter is None:
            counter = self._puts[topic] = TopicCounter()
        counter.times += 1
        counter.messages += messages
        counter.size += size

    def stored(self, size: int) -> None:
        """A message of the broker's own is in the log."""
        self._own.messages += 1
        self._own.size += size

    def failed(self) -> None:
        """A put failed."""
        self._failed += 1

    def got(self, group: str, topic: str, messages: int, size: int, took_ms: int = 0) -> None:
        """A get found messages for a group."""
        counter = self._gets.get((group, topic))
        if counter is None:
            counter = self._gets[group, topic] = TopicCounter()
        counter.times += 1
        counter.messages += messages
        counter.size += size
        counter.took_ms += took_ms
        self.longest_get_ms = max(self.longest_get_ms, took_ms)

    def missed(self) -> None:
        """A get found nothing."""
        self._missed += 1

    def sent_back(self, group: str, topic: str) -> None:
        """A group could not consume a message of a topic."""
        counter = self._backs.setdefault((group, topic), TopicCounter())
        counter.times += 1
        counter.messages += 1

    def forget_topic(self, topic: str) -> None:
        """It was deleted; the totals stay. Source: BrokerStatsManager#onTopicDeleted."""
        self._forgotten_puts.add(self._puts.pop(topic, TopicCounter()))
        self._forget(lambda _, name: name == topic)

    def forget_group(self, group: str) -> None:
        """It was deleted; the totals stay. Source: BrokerStatsManager#onGroupDeleted."""
        self._forget(lambda name, _: name == group)

    def tick(self) -> None:
        """To be called each TICK_S."""
        now = self._now_ms()
        totals = self.totals()
        self._samples.append((now, totals))
        if _date(now) != self._date:
            self._date = _date(now)
            self.morning, self.yesterday = totals, self.morning
        if self._turn % 60 == 0:
            self.put_times.minute_is_over()
        if self._turn % _MINUTE_EVERY == 0:
            self._broker_puts.messages = self._broker_puts.times = totals.put - self._own.messages
            self._broker_gets.messages = self._broker_gets.times = totals.transferred
            for counter in self._counters():
                counter.sample(now, self._turn)
        self._turn += 1

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, TopicCounter]:
        """What clients have put, by topic."""
        return self._puts

    @property
    def groups(self) -> Mapping[tuple[str, str], TopicCounter]:
        """What was handed out, by group and topic."""
        return self._gets

    @property
    def backs(self) -> Mapping[tuple[str, str], TopicCounter]:
        """What came back, by group and topic."""
        return self._backs

    def totals(self) -> Totals:
        """Now."""
        puts, gets = [*self._puts.values(), self._forgotten_puts], [*self._gets.values(), self._forgotten_gets]
        return Totals(
            sum(one.messages for one in puts) + self._own.messages,
            sum(one.size for one in puts) + self._own.size,
            self._failed,
            sum(one.messages for one in gets),
            sum(one.times for one in gets),
            self._missed,
        )

    def rates(self) -> Rates:
        """As of the last tick."""
        return Rates(*(self._rate(number) for number in ("put", "hits", "misses", "transferred")))

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages per second that the group got in the last minute. Source: #tpsGroupGetNums."""
        counter = self._gets.get((group, topic))
        return 0.0 if counter is None else counter.view("messages").minute.tps

    def view(self, name: str, key: str) -> StatsView | None:
        """What VIEW_BROKER_STATS_DATA asks for, None when nothing was ever counted there.

        `key`: a topic, `topic@group`, or the cluster. Numbers by queue (QUEUE_…) are not counted, as with Apache's
        enableQueueStat=false.
        """
        topic, _, group = key.rpartition("@")
        counter: TopicCounter | None = None
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            counter = self._puts.get(key)
        elif name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_LATENCY"):
            counter = self._gets.get((group, topic))
        elif name == "SNDBCK_PUT_NUMS":
            counter = self._backs.get((group, topic))
        elif name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS") and key == self._cluster:
            counter = self._broker_puts if name == "BROKER_PUT_NUMS" else self._broker_gets
            counter = counter if counter.messages else None
        if counter is None:
            return None
        return counter.view({"SIZE": "size", "LATENCY": "took_ms"}.get(name.rpartition("_")[2], "messages"))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _counters(self) -> Iterator[TopicCounter]:
        yield from self._puts.values()
        yield from self._gets.values()
        yield from self._backs.values()
        yield self._broker_puts
        yield self._broker_gets

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """What was handed out and came back, by group and topic."""
        for key in [key for key in self._gets if is_gone(*key)]:
            self._forgotten_gets.add(self._gets.pop(key))
        for key in [key for key in self._backs if is_gone(*key)]:
            del self._backs[key]

    def _rate(self, number: str) -> StatsRate:
        rates: list[float | None] = []
        for seconds in _RATES_S:
            if len(self._samples) <= seconds:
                rates.append(None)
                continue
            (since, old), (now, new) = self._samples[-seconds - 1], self._samples[-1]
            rates.append((getattr(new, number) - getattr(old, number)) * 1000 / max(now - since, 1))
        return StatsRate(*rates)


def _date(now_ms: int) -> tuple[int, int]:
    moment = time.localtime(now_ms / 1000)
    return moment.tm_year, moment.tm_yday
