"""One frame of `rstore top`: what has happened between two looks at a broker, in rows, sorted."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format.quantities import counted, moment
from rstore_cli.render import printable, size
from rstore_cli.status_text import duration, replication

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Look = dict[str, Any]
"""As engine.broker.watch.live has it."""


class Sort(enum.StrEnum):
    """By what rows are sorted."""

    PUT = "put"
    GET = "get"
    LAG = "lag"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic: messages and bytes per second that were put and got. `lag`: of all its groups."""

    topic: str
    put: float
    put_bytes: float
    got: float
    got_bytes: float
    lag: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a topic: messages that it has not consumed, and by how many a second they grow; members."""

    group: str
    topic: str
    lag: int
    growth: float
    members: int


@dataclass(frozen=True, slots=True)
class Frame:
    """See the module. `seconds` lie between the looks; `now` is the later one."""

    now: Look
    seconds: float
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]

    @classmethod
    def of(cls, before: Look, now: Look, sort: Sort) -> Frame:
        """From two looks."""
        seconds = max((now["time"] - before["time"]) / 1000, 0.001)
        lags: dict[str, int] = {}
        for one in now["groups"]:
            lags[one["topic"]] = lags.get(one["topic"], 0) + one["lag"]
        old = before["topics"]
        topics = [_topic(name, old.get(name, {}), topic, seconds, lags) for name, topic in now["topics"].items()]
        was = {(one["group"], one["topic"]): one["lag"] for one in before["groups"]}
        groups = [
            GroupRow(
                one["group"],
                one["topic"],
                one["lag"],
                (one["lag"] - was.get((one["group"], one["topic"]), one["lag"])) / seconds,
                one["members"],
            )
            for one in now["groups"]
        ]
        topics.sort(key=lambda row: _key(sort, row.topic, row.put, row.got, row.lag))
        by = Sort.NAME if sort is Sort.NAME else Sort.LAG
        groups.sort(key=lambda row: _key(by, f"{row.group} {row.topic}", 0, 0, row.lag))
        return cls(now, seconds, tuple(topics), tuple(groups))

    def to_json(self) -> dict[str, Any]:
        """One object."""
        now = self.now
        kept = ("time", "source", "address", "uptime", "connections", "heldPulls", "outputWaiting", "log")
        more = ("flushLag", "dispatchLag", "disks", "writeable", "errors")
        return {
            **{name: now[name] for name in (*kept, *more)},
            "replication": now.get("replication"),
            "seconds": round(self.seconds, 3),
            "topics": [
                {
                    "topic": row.topic,
                    "putMessagesPerSecond": round(row.put, 1),
                    "putBytesPerSecond": round(row.put_bytes, 1),
                    "getMessagesPerSecond": round(row.got, 1),
                    "getBytesPerSecond": round(row.got_bytes, 1),
                    "lag": row.lag,
                }
                for row in self.topics
            ],
            "groups": [
                {
                    "group": row.group,
                    "topic": row.topic,
                    "lag": row.lag,
                    "lagPerSecond": round(row.growth, 1),
                    "members": row.members,
                }
                for row in self.groups
            ],
        }

    # --- for people -------------------------------------------------------------------------------------------------

    def facts(self) -> list[tuple[str, str]]:
        """What is above the tables."""
        now = self.now
        connections = now["connections"]
        clients = "unknown" if connections is None else ", ".join(f"{n} at {name}" for name, n in connections.items())
        held = "" if now["heldPulls"] is None else f"; {counted(now['heldPulls'], 'held pull')}"
        disks = ", ".join(f"{name} {ratio:.0%}" for name, ratio in now["disks"].items()) or "unknown"
        rows = [
            ("broker", f"{now['address']}, up for {duration(now['uptime'])}, {moment(now['time'])}"),
            ("puts, gets", f"{self._sum('put'):,.1f}/s, {self._sum('got'):,.1f}/s"),
            ("clients", clients + held),
            ("pending", f"{_size(now['flushLag'])} to flush, {_size(now['dispatchLag'])} to dispatch"),
            ("disk", disks + (", PUTS ARE REFUSED" if now["writeable"] is False else "")),
        ]
        rows += replication(now["replication"]) if now.get("replication") else []
        return rows + [("trouble", printable(text)) for text in now["errors"]]

    def topic_table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Heads and rows."""
        rows = [
            [
                printable(row.topic), f"{row.put:,.1f}", size(round(row.put_bytes)), f"{row.got:,.1f}",
                size(round(row.got_bytes)), f"{row.lag:,}",
            ]
            for row in self.topics
        ]  # fmt: skip
        return ("topic", "put/s", "bytes/s", "get/s", "bytes/s", "lag"), rows

    def group_table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Heads and rows."""
        rows = [
            [printable(row.group), printable(row.topic), f"{row.lag:,}", f"{row.growth:+,.1f}", str(row.members)]
            for row in self.groups
        ]
        return ("group", "topic", "lag", "lag/s", "members"), rows

    def _sum(self, name: str) -> float:
        return sum((getattr(row, name) for row in self.topics), 0.0)


def _topic(name: str, old: Mapping[str, Any], now: Mapping[str, Any], seconds: float, lags: dict[str, int]) -> TopicRow:
    def rate(number: str) -> float:
        shown_rate = now.get(number + "PerSecond")
        return float(max(now[number] - old.get(number, 0), 0) / seconds if shown_rate is None else shown_rate)

    return TopicRow(
        name, rate("putMessages"), rate("putBytes"), rate("getMessages"), rate("getBytes"), lags.get(name, 0)
    )


def _key(sort: Sort, name: str, put: float, got: float, lag: int) -> tuple[float, float, str]:
    value = {Sort.PUT: put, Sort.GET: got, Sort.LAG: float(lag), Sort.NAME: 0.0}[sort]
    return -value, -put if sort is Sort.LAG else 0.0, name


def _size(count: int | None) -> str:
    return "?" if count is None else size(count)
