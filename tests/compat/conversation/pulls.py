"""Pulls: every status, the checks before, filters, pulls that wait."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from engine.wire.codes import RequestCode as Code
from engine.wire.codes import ResponseCode
from tests.compat.conversation import say
from tests.compat.conversation.talk import NOTHING_S, Peer, Talk

PULL = Code.PULL_MESSAGE
_TICK_MORE_S = 8
"""A pull that waits for two seconds is answered so soon: held ones are looked at every five."""
_TRIES = 3


async def pulls(talk: Talk) -> None:
    """Checks and statuses."""
    peer = await talk.peer("puller")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Pulled"))
    for at, tags in enumerate(["a", "b", "", "a", "c"]):
        said = say.properties(TAGS=tags, n=str(at)) if tags else say.properties(n=str(at))
        await peer.quiet(Code.SEND_MESSAGE_V2, say.send("Pulled", i=said), b"%d" % at)
    await say.until_there(peer, "Pulled", 5)
    found = {
        "all": say.pull("Pulled"),
        "from the middle": say.pull("Pulled", 3),
        "two": say.pull("Pulled", maxMsgNums=2),
        "none asked": say.pull("Pulled", maxMsgNums=0),
        "fewer than none asked": say.pull("Pulled", maxMsgNums=-1),
        "at the end": say.pull("Pulled", 5),
        "beyond the end": say.pull("Pulled", 6),
        "before the start": say.pull("Pulled", -1),
        "far before the start": say.pull("Pulled", -(1 << 62)),
        "far beyond": say.pull("Pulled", 1 << 62),
        "an empty queue": say.pull("Pulled", 0, 1),
        "an empty queue, not at 0": say.pull("Pulled", 5, 1),
        "an empty queue, below 0": say.pull("Pulled", -1, 1),
        "tag a": say.pull("Pulled", subscription="a"),
        "tags a or c": say.pull("Pulled", subscription=" a || c "),
        "a tag that none has": say.pull("Pulled", subscription="zzz"),
        "a tag that none has, at the end": say.pull("Pulled", 5, subscription="zzz"),
        "an empty expression": say.pull("Pulled", subscription=""),
        "no expression": say.pull("Pulled", subscription=None),
        "bars alone": say.pull("Pulled", subscription="||"),
        "bars and blanks": say.pull("Pulled", subscription=" || || "),
        "a star and more": say.pull("Pulled", subscription="* || a"),
        "no expression type": say.pull("Pulled", subscription="a", expressionType=None),
        "empty expression type": say.pull("Pulled", subscription="a", expressionType=""),
        "unknown expression type": say.pull("Pulled", subscription="a", expressionType="REGEX"),
        "expression type in small letters": say.pull("Pulled", subscription="a", expressionType="tag"),
        "SQL": say.pull("Pulled", subscription="n > 1 AND TAGS IS NOT NULL", expressionType="SQL92"),
        "SQL, by tag": say.pull("Pulled", subscription="TAGS in ('a', 'c')", expressionType="SQL92"),
        "SQL, nothing fits": say.pull("Pulled", subscription="n > 100", expressionType="SQL92"),
        "SQL, between": say.pull("Pulled", subscription="n between 1 and 2", expressionType="SQL92"),
        "SQL, an unknown property": say.pull("Pulled", subscription="m is null", expressionType="SQL92"),
        "SQL, true": say.pull("Pulled", subscription="TRUE", expressionType="SQL92"),
        "SQL, text for a number": say.pull("Pulled", subscription="n = '1'", expressionType="SQL92"),
        "SQL, of another type": say.pull("Pulled", subscription="TAGS > 3", expressionType="SQL92"),
        "SQL, empty": say.pull("Pulled", subscription="", expressionType="SQL92"),
        "SQL, a star": say.pull("Pulled", subscription="*", expressionType="SQL92"),
        "SQL, not said": say.pull("Pulled", subscription=None, expressionType="SQL92"),
        "SQL, broken": say.pull("Pulled", subscription="n > ", expressionType="SQL92"),
        "SQL, no truth": say.pull("Pulled", subscription="n", expressionType="SQL92"),
        "SQL, a number alone": say.pull("Pulled", subscription="1", expressionType="SQL92"),
        "SQL, like": say.pull("Pulled", subscription="TAGS like 'a%'", expressionType="SQL92"),
        "an unknown topic": say.pull("NeverPulled"),
        "the op topic": say.pull("RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        "the schedule topic": say.pull("SCHEDULE_TOPIC_XXXX", 0, 16),
        "a queue below 0": say.pull("Pulled", 0, -1),
        "a queue too big": say.pull("Pulled", 0, 4),
        "no group": say.pull("Pulled", group=None),
        "an empty group": say.pull("Pulled", group=""),
        "no topic": say.pull(None),
        "an empty topic": say.pull(""),
        "class filter": say.pull("Pulled", sysFlag=12),
        "no flags: group not online": say.pull("Pulled", group="NeverOnline", sysFlag=0),
    }
    for name, ext in found.items():
        await peer.ask(f"pull: {name}", PULL, ext)
    await peer.ask("pull: binary header", PULL, say.pull("Pulled", 3), kind=1)
    await peer.ask("pull: lite", Code.LITE_PULL_MESSAGE, say.pull("Pulled", sysFlag=20))
    await peer.ask("pull: no fields", PULL)
    needed = ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion")
    for name in needed:
        await peer.ask(f"pull: without {name}", PULL, say.pull("Pulled", **{"more": 1, name: None}) | {name: None})
        await peer.ask(f"pull: {name} no number", PULL, {**say.pull("Pulled"), name: "x"})
    await peer.ask("pull: commits", PULL, say.pull("Pulled", group="PullCommits", sysFlag=5, commitOffset=3))
    ext = {"consumerGroup": "PullCommits", "topic": "Pulled", "queueId": 0}
    await peer.ask("pull: what it committed", Code.QUERY_CONSUMER_OFFSET, ext)
    for name, perm in (("PulledClosed", 0), ("PulledWriteOnly", 2)):
        await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic(name, perm=perm))
        await peer.ask(f"pull: {name}", PULL, say.pull(name))
    await peer.quiet(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, say.group("PullNever", consumeEnable=False))
    await peer.ask("pull: a group that may not", PULL, say.pull("Pulled", group="PullNever"))


async def limits(talk: Talk) -> None:
    """How much one pull gives."""
    peer = await talk.peer("limits")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Many"))
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Large"))
    for at in range(4):
        messages = [(b"%d" % (at * 20 + n), "") for n in range(20)]
        await peer.quiet(Code.SEND_BATCH_MESSAGE, say.send("Many", m="true"), say.batch(*messages))
    for _ in range(6):
        await peer.quiet(Code.SEND_MESSAGE_V2, say.send("Large"), bytes(100_000))
    await peer.quiet(Code.SEND_MESSAGE_V2, say.send("Large"), bytes(300_000))
    await peer.quiet(Code.SEND_MESSAGE_V2, say.send("Large"), b"small")
    await say.until_there(peer, "Many", 80)
    await say.until_there(peer, "Large", 8)
    for most in (1, 31, 32, 33, 64, 1000):
        ext = say.pull("Many", maxMsgNums=most)
        found = await peer.quiet(PULL, ext)
        talk.note(f"limits: {most} asked", {"code": found.code, **found.fields, "bytes": len(found.body)})
    for at in range(8):
        found = await peer.quiet(PULL, say.pull("Large", at))
        talk.note(f"limits: large ones from {at}", {"code": found.code, **found.fields, "bytes": len(found.body)})
    found = await peer.quiet(PULL, say.pull("Many", subscription="none"))
    talk.note("limits: none fits", {"code": found.code, "remark": found.remark, **found.fields})


async def waiting(talk: Talk) -> None:
    """Pulls that wait: woken, not woken by another tag, answered when their time is over."""
    peer, sender = await talk.peer("waiter"), await talk.peer("waker")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Awaited"))

    async def put(tags: str, queue: int = 0) -> None:
        await sender.quiet(Code.SEND_MESSAGE_V2, say.send("Awaited", queue, i=f"TAGS\x01{tags}"), b"wake")

    waits = {"sysFlag": 6, "suspendTimeoutMillis": 30_000}
    opaque = peer.send(PULL, say.pull("Awaited", 0, **waits))
    await _still(talk, peer, "waiting: held on an empty queue", opaque)
    await put("a", 1)
    await _still(talk, peer, "waiting: a message in another queue", opaque)
    await put("a")
    await peer.later("waiting: woken", opaque, PULL)
    opaque = peer.send(PULL, say.pull("Awaited", 1, subscription="b", **waits))
    await _still(talk, peer, "waiting: held at the end", opaque)
    await put("a")
    await asyncio.sleep(NOTHING_S)
    await put("b")
    await _until_found(peer, "waiting: its tag", opaque, say.pull("Awaited", 1, subscription="b", **waits))
    ext = say.pull("Awaited", 3, subscription="TAGS = 'b'", expressionType="SQL92", **waits)
    opaque = peer.send(PULL, ext)
    await put("a")
    await asyncio.sleep(NOTHING_S)
    await put("b")
    await _until_found(peer, "waiting: SQL", opaque, ext)
    await peer.ask("waiting: nothing to wait for, offset beyond", PULL, say.pull("Awaited", 99, **waits))
    await peer.ask("waiting: nothing to wait for, empty queue not at 0", PULL, say.pull("Awaited", 9, 2, **waits))
    await peer.ask("waiting: no flag, no waiting", PULL, say.pull("Awaited", 5, suspendTimeoutMillis=30_000))
    ext = say.pull("Awaited", 5, **{**waits, "suspendTimeoutMillis": 2000})
    begun = time.monotonic()
    opaque = peer.send(PULL, ext)
    await peer.later("waiting: time is over", opaque, PULL, wait_s=20)
    took = [time.monotonic() - begun]
    while took[-1] > _TICK_MORE_S and len(took) < _TRIES:  # the tick came late, or the machine stood still
        begun = time.monotonic()
        await peer.answer(peer.send(PULL, ext), 20)
        took.append(time.monotonic() - begun)
    told = {"at least its time": min(took) >= 1.9, "at most a tick more": min(took) <= _TICK_MORE_S}
    talk.note("waiting: how long", told)
    opaque = peer.send(PULL, say.pull("Awaited", 5, **{**waits, "suspendTimeoutMillis": 0}))
    await peer.later("waiting: for no time", opaque, PULL, wait_s=20)
    binary = peer.send(PULL, say.pull("Awaited", 5, **waits), kind=1)
    await asyncio.sleep(0.3)
    await put("c")
    await peer.later("waiting: binary header", binary, PULL)
    one, two = (peer.send(PULL, say.pull("Awaited", 6, group=name, **waits)) for name in ("W1", "W2"))
    await asyncio.sleep(0.3)
    await put("d")
    await peer.later("waiting: two wait, the first", one, PULL)
    await peer.later("waiting: two wait, the second", two, PULL)
    waits["sysFlag"], waits["commitOffset"] = 7, 4
    opaque = peer.send(PULL, say.pull("Awaited", 7, group="WaitCommits", **waits))
    ext = {"consumerGroup": "WaitCommits", "topic": "Awaited", "queueId": 0}
    await say.until(sender, Code.QUERY_CONSUMER_OFFSET, ext, lambda found: found.fields.get("offset") == "4")
    await sender.ask("waiting: commits before", Code.QUERY_CONSUMER_OFFSET, ext)
    peer.close()


async def _still(talk: Talk, peer: Peer, step: str, opaque: int) -> None:
    await asyncio.sleep(NOTHING_S)
    talk.note(step, {"answered": peer.is_answered(opaque)})


async def _until_found(peer: Peer, step: str, opaque: int, ext: dict[str, Any]) -> None:
    """What comes in the end: at a tick, those that wait may be told to pull behind what they don't want."""
    while True:
        found = await peer.answer(opaque, 20)
        if found is None or found.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            break
        opaque = peer.send(PULL, {**ext, "queueOffset": found.fields["nextBeginOffset"]})
    await peer.later(step, opaque, PULL)
