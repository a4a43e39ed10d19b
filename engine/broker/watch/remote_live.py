"""What any broker is like, Apache's, too, as far as admin requests tell: in the shape of engine.broker.watch.live.

Messages are counted by offsets: what was put by the ends of the queues, what was got by what groups committed, which
clients do every five seconds. Bytes per second are the broker's own, of its last minute; those of a 4.9 broker come
with TOPIC_PUT_SIZE and GROUP_GET_SIZE. What no request tells is None: held pulls, connections that are no members.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.client.connection import RemotingClient
from engine.errors import FormatError, StorageError
from engine.format import fastjson
from engine.wire import object_keys
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

AT_ONCE = 64
"""Requests under way at a time."""
_OWN_GROUPS = ("CID_RMQ_SYS_",)


class _Queue(NamedTuple):
    """Offsets of a queue."""

    low: int
    high: int


class RemoteLive:
    """A connected broker. For one loop."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._ends: dict[str, int] = {}
        self._done: dict[tuple[str, str], int] = {}

    async def look(self) -> dict[str, Any]:
        """How it is now. Raises StorageError: it does not answer, or is no broker; FormatError: what it says."""
        runtime, errors = await self._runtime()
        now = time.time_ns() // 1_000_000
        body = await self._json(RequestCode.GET_ALL_TOPIC_CONFIG)
        names = sorted(body.get("topicConfigTable") or {})
        queues = dict(zip(names, await asyncio.gather(*map(self._queues, names)), strict=True))
        offsets = await self._offsets()
        lags = [
            {"group": group, "topic": topic, "lag": _lag(queues.get(topic, {}), done), "members": members}
            for (topic, group), done in offsets.items()
            for members in [await self._members(group)]
        ]
        topics = await self._topics(queues, offsets)
        log_max, log_min = _number(runtime, "commitLogMaxOffset"), _number(runtime, "commitLogMinOffset")
        flush, dispatch = as_bytes(runtime.get("remainHowManyDataToFlush", "")), _number(runtime, "dispatchBehindBytes")
        ratios = (("CL", "commitLogDiskRatio"), ("CQ", "consumeQueueDiskRatio"))
        return {
            "source": "broker",
            "pid": None,
            "address": self._client.address,
            "time": now,
            "uptime": max(now - (_number(runtime, "bootTimestamp") or now), 0),
            "connections": None,
            "heldPulls": None,
            "outputWaiting": None,
            "log": {
                "minOffset": log_min,
                "maxOffset": log_max,
                "flushed": None if log_max is None or flush is None else log_max - flush,
                "dispatched": None if log_max is None or dispatch is None else log_max - dispatch,
            },
            "flushLag": flush,
            "dispatchLag": dispatch,
            "disks": {name: float(runtime[key]) for name, key in ratios if _is_float(runtime.get(key, ""))},
            "writeable": None,
            "errors": errors,
            "version": runtime.get("brokerVersionDesc"),
            "topics": topics,
            "groups": sorted(lags, key=lambda lag: (lag["group"], lag["topic"])),
        }

    # --- parts ------------------------------------------------------------------------------------------------------

    async def _topics(
        self, queues: Mapping[str, Mapping[int, _Queue]], offsets: Mapping[tuple[str, str], Mapping[int, int]]
    ) -> dict[str, dict[str, Any]]:
        """Of all topics; bytes per second of those that have moved since the last look."""
        ends = {topic: sum(queue.high for queue in queues_of.values()) for topic, queues_of in queues.items()}
        done = {key: sum(queues_of.values()) for key, queues_of in offsets.items()}
        put = [topic for topic, end in ends.items() if end != self._ends.get(topic, end)]
        got = [key for key, end in done.items() if end != self._done.get(key, end)]
        self._ends, self._done = ends, done
        put_rates = dict(
            zip(put, await asyncio.gather(*(self._rate("TOPIC_PUT_SIZE", topic) for topic in put)), strict=True)
        )
        got_rates: dict[str, float] = {}
        queues_of = await asyncio.gather(*(self._rate("GROUP_GET_SIZE", f"{topic}@{group}") for topic, group in got))
        for (topic, _), rate in zip(got, queues_of, strict=True):
            got_rates[topic] = got_rates.get(topic, 0.0) + rate
        return {
            topic: {
                "putMessages": ends[topic],
                "getMessages": sum(end for (name, _), end in done.items() if name == topic),
                "putBytesPerSecond": put_rates.get(topic, 0.0),
                "getBytesPerSecond": got_rates.get(topic, 0.0),
            }
            for topic in queues
        }

    async def _queues(self, topic: str) -> dict[int, _Queue]:
        body = await self._body(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return {} if body is None else offset_table(body)

    async def _offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        body = await self._json(RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets = {}
        for key, queues in (body.get("offsetTable") or {}).items():
            topic, at, group = key.partition("@")
            if at and not group.startswith(_OWN_GROUPS):
                offsets[topic, group] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
        return offsets

    async def _members(self, group: str) -> int:
        body = await self._json(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        return len(body.get("connectionSet") or ())

    async def _rate(self, name: str, key: str) -> float:
        body = await self._json(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        return float((body.get("statsMinute") or {}).get("tps") or 0.0)

    async def _runtime(self) -> tuple[dict[str, str], list[str]]:
        """GET_BROKER_RUNTIME_INFO, and what went wrong: Apache's fails in the first second of a broker's life."""
        answer = await self._client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise StorageError(
                f"{self._client.address} is not a broker", hint="use a broker's port, not a name server's"
            )
        if answer.code != ResponseCode.SUCCESS:
            why = (answer.remark or str(answer.code)).splitlines()[0]
            return {}, [f"the broker did not send its runtime figures: {why}"]
        body = fastjson.loads(bytes(answer.body).decode("utf-8", "replace"))
        try:
            return {str(name): str(value) for name, value in body["table"].items()}, []
        except (KeyError, TypeError, AttributeError):
            raise FormatError("not a KVTable") from None

    async def _json(self, code: int, ext: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What is answered, empty when the broker knows nothing of it. Raises FormatError: it is no object."""
        body = await self._body(code, ext)
        fields = (None if body is None else fastjson.loads(body)) or {}
        if not isinstance(fields, dict):
            raise FormatError(f"the answer to request {int(code)} is not a JSON object")
        return fields

    async def _body(self, code: int, ext: Mapping[str, str] | None = None) -> str | None:
        """What is answered; None when the broker knows nothing of it."""
        async with self._gate:
            answer = await self._client.ask(code, ext)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return bytes(answer.body).decode("utf-8", "replace")


def offset_table(text: str) -> dict[int, _Queue]:
    """The offsetTable of a TopicStatsTable, by queue id: its keys are objects, which is no JSON.

    Raises:
        FormatError: it is none.
    """
    rows = object_keys.read(text, "offsetTable")
    try:
        return {int(at["queueId"]): _Queue(int(value["minOffset"]), int(value["maxOffset"])) for at, value in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"malformed offsetTable: {error!r}") from None


def _lag(queues: Mapping[int, _Queue], done: Mapping[int, int]) -> int:
    return sum(max(queue.high - max(done.get(number, 0), queue.low, 0), 0) for number, queue in queues.items())


def _number(table: Mapping[str, str], name: str) -> int | None:
    try:
        return int(table.get(name, ""))
    except ValueError:
        return None


def as_bytes(text: str) -> int | None:
    """Bytes, about: `0 B`, `12.3 KiB`, or a number alone. Source: MixAll#humanReadableByteCount."""
    word, _, unit = text.partition(" ")
    power = " KMGTPE".find(unit[:1] if unit not in ("", "B") else " ")
    if power < 0 or not _is_float(word):
        return None
    return round(float(word) * (1 << 10 * power))


def _is_float(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
