"""Offsets by queue and time, messages by id and key."""

from __future__ import annotations

import asyncio
import time

from engine.format.message import decode
from engine.wire.codes import RequestCode as Code
from tests.compat.conversation import say
from tests.compat.conversation.talk import Talk


async def queries(talk: Talk) -> None:
    """See the module."""
    peer = await talk.peer("asker")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Asked"))
    times = []
    for at in range(5):
        said = say.properties(KEYS=f"k{at} all", UNIQ_KEY=f"UNIQ{at}")
        await peer.quiet(Code.SEND_MESSAGE_V2, say.send("Asked", i=said), b"ask %d" % at)
        times.append(time.time_ns() // 1_000_000)
        await asyncio.sleep(0.2)
    await say.until_there(peer, "Asked", 5)
    whole = await peer.quiet(Code.PULL_MESSAGE, say.pull("Asked"))
    stored = []
    at = 0
    while at < len(whole.body):
        stored.append(decode(whole.body, at))
        at += stored[-1].total_size
    places = {
        "good": {"topic": "Asked", "queueId": 0},
        "empty queue": {"topic": "Asked", "queueId": 1},
        "unknown topic": {"topic": "NeverAsked", "queueId": 0},
        "queue too big": {"topic": "Asked", "queueId": 77},
        "queue below 0": {"topic": "Asked", "queueId": -1},
        "no topic": {"queueId": 0},
        "no queue": {"topic": "Asked"},
        "no number": {"topic": "Asked", "queueId": "x"},
    }
    for name, ext in places.items():
        await peer.ask(f"offsets: max, {name}", Code.GET_MAX_OFFSET, ext)
        await peer.ask(f"offsets: min, {name}", Code.GET_MIN_OFFSET, ext)
        await peer.ask(f"offsets: earliest, {name}", Code.GET_EARLIEST_MSG_STORETIME, ext)
        await peer.ask(f"offsets: by time, {name}", Code.SEARCH_OFFSET_BY_TIMESTAMP, {**ext, "timestamp": 0})
    good = places["good"]
    by_time = Code.SEARCH_OFFSET_BY_TIMESTAMP
    for n, message in enumerate(stored):
        for step in (-50, -1, 0, 1, 50):
            ext = {**good, "timestamp": message.store_timestamp + step}
            await peer.ask(f"offsets: by time of {n}, {step:+} ms", by_time, ext)
    for value in (-1, 1 << 62, "x", None):
        await peer.ask(f"offsets: by time {value}", by_time, {**good, "timestamp": value})
    # --- by id
    view = Code.VIEW_MESSAGE_BY_ID
    await peer.ask("view: a message", view, {"offset": stored[1].physical_offset})
    for name, offset in {
        "middle of one": stored[1].physical_offset + 8,
        "beyond the end": 1 << 50,
        "below 0": -1,
        "no number": "x",
        "not said": None,
    }.items():
        await peer.ask(f"view: {name}", view, {"offset": offset})
    # --- by key
    query = Code.QUERY_MESSAGE
    ends = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    await asyncio.sleep(0.5)
    keys = {
        "one": {"topic": "Asked", "key": "k1", "maxNum": 64, **ends},
        "all": {"topic": "Asked", "key": "all", "maxNum": 64, **ends},
        "two of all": {"topic": "Asked", "key": "all", "maxNum": 2, **ends},
        "none of all": {"topic": "Asked", "key": "all", "maxNum": 0, **ends},
        "less than none": {"topic": "Asked", "key": "all", "maxNum": -1, **ends},
        "unique": {"topic": "Asked", "key": "UNIQ3", "maxNum": 1, "_UNIQUE_KEY_QUERY": "true", **ends},
        "unique, no number": {"topic": "Asked", "key": "UNIQ3", "maxNum": "x", "_UNIQUE_KEY_QUERY": "true", **ends},
        "not unique": {"topic": "Asked", "key": "UNIQ3", "maxNum": 1, "_UNIQUE_KEY_QUERY": "false", **ends},
        "unknown": {"topic": "Asked", "key": "nobody", "maxNum": 64, **ends},
        "unknown topic": {"topic": "NeverAsked", "key": "k1", "maxNum": 64, **ends},
        "too early": {"topic": "Asked", "key": "k1", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1000},
        "too late": {"topic": "Asked", "key": "k1", "maxNum": 64, **ends, "beginTimestamp": times[-1] + 600_000},
        "the wrong way round": {
            "topic": "Asked", "key": "k1", "maxNum": 64, "beginTimestamp": times[-1] + 9000, "endTimestamp": 5,
        },
        "empty key": {"topic": "Asked", "key": "", "maxNum": 64, **ends},
    }  # fmt: skip
    for name, ext in keys.items():
        await peer.ask(f"key: {name}", query, ext)
    for name in keys["one"]:
        await peer.ask(f"key: without {name}", query, {**keys["one"], name: None})
    await peer.ask("key: binary header", query, keys["one"], kind=1)
