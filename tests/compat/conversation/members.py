"""Heartbeats, members and their notices, subscriptions as the broker knows them, offsets, locks."""

from __future__ import annotations

import asyncio
import time

from engine.wire.codes import RequestCode as Code
from engine.wire.codes import ResponseCode
from tests.compat.conversation import say
from tests.compat.conversation.talk import NOTHING_S, WAIT_S, Talk

BEAT, LIST, NOTICE = Code.HEART_BEAT, Code.GET_CONSUMER_LIST_BY_GROUP, Code.NOTIFY_CONSUMER_IDS_CHANGED
CONNECTIONS = Code.GET_CONSUMER_CONNECTION_LIST
_EXPIRES_S, _NEARLY_S = 60, 52
"""How long a lock lasts, and how long a step waits that asks before its end. Source: RebalanceLockManager."""


async def members(talk: Talk) -> None:
    """Two members come, change and go."""
    one, two, admin = await talk.peer("first"), await talk.peer("second"), await talk.peer("onlooker")
    await admin.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Joined"))
    for at in range(3):
        await admin.quiet(
            Code.SEND_MESSAGE_V2, say.send("Joined", i=f"TAGS\x01{'ab'[at % 2]}\x02n\x01{at}"), b"%d" % at
        )
    await say.until_there(admin, "Joined", 3)
    name = {"consumerGroup": "Joiners"}
    await admin.ask("members: none", LIST, name)
    await admin.ask("members: none, connections", CONNECTIONS, name)
    tag_a = say.consumer("Joiners", say.subscription("Joined", "a", 5))
    await one.ask("members: the first comes", BEAT, None, say.heartbeat("c1", tag_a, producers=("JoinP",)))
    await one.pushed("members: the first is told of itself")
    await one.ask("members: the first again", BEAT, None, say.heartbeat("c1", tag_a))
    await one.pushed("members: nothing new, no notice", NOTHING_S)
    await admin.ask("members: one", LIST, name)
    await admin.ask("members: one, connections", CONNECTIONS, name)
    await admin.ask("members: the retry topic is there", Code.GET_TOPIC_STATS_INFO, {"topic": "%RETRY%Joiners"})
    await two.ask("members: the second comes", BEAT, None, say.heartbeat("c2", tag_a), version=317, language=9)
    await one.pushed("members: the first is told")
    await two.pushed("members: the second is told")
    await admin.ask("members: two", LIST, name)
    await admin.ask("members: two, connections", CONNECTIONS, name)
    await admin.ask("members: producers", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "JoinP"})
    for group in ("NeverProduced", ""):
        await admin.ask(f"members: producers of '{group}'", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})
    await admin.ask("members: producers of none", Code.GET_PRODUCER_CONNECTION_LIST, {})
    await admin.ask("members: who consumes", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Joined"})
    # --- what the broker has them down for
    pull = say.pull("Joined", group="Joiners", sysFlag=0, subscription=None, expressionType=None)
    await one.ask("members: pull as subscribed", Code.PULL_MESSAGE, {**pull, "subVersion": 5})
    await one.ask("members: pull, an older version", Code.PULL_MESSAGE, {**pull, "subVersion": 1})
    await one.ask("members: pull, a newer version", Code.PULL_MESSAGE, {**pull, "subVersion": 6})
    await one.ask("members: pull, another topic", Code.PULL_MESSAGE, {**pull, "topic": "TBW102"})
    await admin.ask("members: pull by somebody else", Code.PULL_MESSAGE, {**pull, "subVersion": 5})
    older = say.consumer("Joiners", say.subscription("Joined", "b", 4))
    await one.ask("members: an older subscription", BEAT, None, say.heartbeat("c1", older))
    await one.ask("members: pull after it", Code.PULL_MESSAGE, {**pull, "subVersion": 4})
    newer = say.consumer("Joiners", say.subscription("Joined", "b", 9))
    await one.ask("members: a newer subscription", BEAT, None, say.heartbeat("c1", newer))
    await one.pushed("members: a newer subscription is no notice", NOTHING_S)
    await one.ask("members: pull with it", Code.PULL_MESSAGE, {**pull, "subVersion": 9})
    more = say.consumer("Joiners", say.subscription("Joined", "b", 9), say.subscription("TBW102", "*", 1))
    await one.ask("members: one topic more", BEAT, None, say.heartbeat("c1", more))
    await two.pushed("members: the second is told of a topic")
    await two.ask("members: one topic less", BEAT, None, say.heartbeat("c2", newer))
    await one.forget_pushed()
    await two.forget_pushed()
    renamed = say.heartbeat("c1-renamed", newer)
    await one.ask("members: the same connection, another name", BEAT, None, renamed)
    await admin.ask("members: after renaming", LIST, name)
    other = say.consumer("Joiners", say.subscription("Joined", "b", 9), messageModel="BROADCASTING",
                         consumeType="CONSUME_ACTIVELY", consumeFromWhere="CONSUME_FROM_TIMESTAMP")  # fmt: skip
    await one.ask("members: another model", BEAT, None, say.heartbeat("c1", other))
    await admin.ask("members: another model, connections", CONNECTIONS, name)
    await two.forget_pushed()
    leave = {"clientID": "c1", "producerGroup": "JoinP", "consumerGroup": "Joiners"}
    await one.ask("members: the first leaves", Code.UNREGISTER_CLIENT, leave)
    await two.pushed("members: the second is told of it")
    await admin.ask("members: one is left", LIST, name)
    await admin.ask("members: its producers have gone", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "JoinP"})
    await one.ask("members: leaves again", Code.UNREGISTER_CLIENT, leave)
    await two.pushed("members: nobody left, and yet", NOTHING_S)
    await one.ask("members: comes back", BEAT, None, say.heartbeat("c1", newer))
    await two.next_push(3)
    one.close()
    await two.pushed("members: the first hangs up")
    await admin.ask("members: one after it", LIST, name)
    two.close()
    await say.until(admin, LIST, name, lambda found: found.code == ResponseCode.SYSTEM_ERROR)
    await admin.ask("members: nobody", LIST, name)
    await admin.ask("members: who consumes now", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Joined"})
    await admin.ask("members: unregister nobody", Code.UNREGISTER_CLIENT, {"clientID": "x"})
    await admin.ask("members: unregister without id", Code.UNREGISTER_CLIENT, {})
    await admin.ask(
        "members: unregister of a group never heard of",
        Code.UNREGISTER_CLIENT,
        {"clientID": "x", "consumerGroup": "NeverJoined"},
    )
    await admin.ask("members: list without group", LIST, {})
    await admin.ask("members: list of ''", LIST, {"consumerGroup": ""})


async def heartbeats(talk: Talk) -> None:
    """Bodies of heartbeats, good and bad; filters told by them."""
    peer = await talk.peer("beater")
    bodies = {
        "nothing": b"",
        "no JSON": b"{",
        "an array": b"[]",
        "an empty object": b"{}",
        "only an id": {"clientID": "x"},
        "sets of null": {"clientID": "x", "consumerDataSet": None, "producerDataSet": None},
        "no id": say.heartbeat("", say.consumer("BeatA", say.subscription("Beaten"))),
        "id of null": {**say.heartbeat("x", say.consumer("BeatB")), "clientID": None},
        "as ali-ons says it": say.heartbeat("x", say.consumer("BeatC", say.subscription("Beaten", kind=None))),
        "codes as text": say.heartbeat("x", say.consumer("BeatD", {**say.subscription("Beaten"), "codeSet": ["97"]})),
        "unknown keys": {**say.heartbeat("x", say.consumer("BeatE")), "heartbeatFingerprint": 7, "withoutSub": False},
        "no model": say.heartbeat("x", {"groupName": "BeatF", "subscriptionDataSet": []}),
        "unknown model": say.heartbeat("x", say.consumer("BeatG", messageModel="NEITHER")),
        "subscriptions of null": say.heartbeat("x", {**say.consumer("BeatH"), "subscriptionDataSet": None}),
        "no group": say.heartbeat("x", {**say.consumer("BeatI"), "groupName": None}),
        "a version that is none": say.heartbeat(
            "x", say.consumer("BeatJ", {**say.subscription("Beaten"), "subVersion": "v"})
        ),
        "unit mode": say.heartbeat("x", say.consumer("BeatK", unitMode=True)),
        "SQL": say.heartbeat("x", say.consumer("BeatSql", say.subscription("Beaten", "n > 1", 7, "SQL92"))),
        "SQL, broken": say.heartbeat("x", say.consumer("BeatBad", say.subscription("Beaten", "n > ", 7, "SQL92"))),
    }  # fmt: skip
    for name, body in bodies.items():
        await peer.ask(f"heartbeat: {name}", BEAT, None, body)
    await peer.tell("heartbeat: one-way", BEAT, None, say.heartbeat("x", say.consumer("BeatO")))
    for name in ("BeatA", "BeatC", "BeatD", "BeatF", "BeatG", "BeatH", "BeatO", "BeatSql", "BeatBad"):
        await peer.ask(f"heartbeat: {name} afterwards", CONNECTIONS, {"consumerGroup": name})
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Beaten"))
    for at in range(4):
        await peer.quiet(Code.SEND_MESSAGE_V2, say.send("Beaten", i=f"n\x01{at}"), b"%d" % at)
    await say.until_there(peer, "Beaten", 4)
    bare = {"sysFlag": 0, "subscription": None, "expressionType": None}
    for version in (7, 8, 3):
        ext = say.pull("Beaten", group="BeatSql", **{**bare, "subVersion": version})
        await peer.ask(f"heartbeat: pull by SQL, version {version}", Code.PULL_MESSAGE, ext)
    await peer.ask("heartbeat: pull by broken SQL", Code.PULL_MESSAGE, say.pull("Beaten", group="BeatBad", **bare))
    group = say.group("BeatWide", consumeBroadcastEnable=False)
    await peer.quiet(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    wide = say.consumer("BeatWide", say.subscription("Beaten"), messageModel="BROADCASTING")
    await peer.ask("heartbeat: a broadcast that is not allowed", BEAT, None, say.heartbeat("x", wide))
    await peer.ask("heartbeat: pull by it", Code.PULL_MESSAGE, say.pull("Beaten", group="BeatWide", **bare))
    group = say.group("BeatQuiet", notifyConsumerIdsChangedEnable=False)
    await peer.quiet(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    await asyncio.sleep(0.3)
    await peer.forget_pushed()
    await peer.ask("heartbeat: of a quiet group", BEAT, None, say.heartbeat("x", say.consumer("BeatQuiet")))
    await peer.pushed("heartbeat: which is told nothing", NOTHING_S)
    check = Code.CHECK_CLIENT_CONFIG

    def config(kind: str | None, expression: str | None) -> dict[str, object]:
        said = {"expressionType": kind, "subString": expression, "topic": "Beaten"}
        return {"clientId": "x", "group": "BeatSql", "subscriptionData": said}

    checks = {
        "tags": config("TAG", "a"),
        "no type": config(None, "a"),
        "SQL": config("SQL92", "n > 1"),
        "SQL, broken": config("SQL92", "n > "),
        "SQL, empty": config("SQL92", ""),
        "SQL, null": config("SQL92", None),
        "another": config("REGEX", "a"),
        "no subscription": {"clientId": "x", "group": "BeatSql"},
        "nothing": b"",
        "no JSON": b"{",
    }
    for name, body in checks.items():
        await peer.ask(f"client config: {name}", check, None, body)


async def offsets(talk: Talk) -> None:
    """Offsets of consumers."""
    peer = await talk.peer("offsets")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Counted"))
    query, update = Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET
    place = {"consumerGroup": "Counters", "topic": "Counted", "queueId": 0}
    await peer.ask("offset: never committed", query, place)
    await peer.ask("offset: of an unknown topic", query, {**place, "topic": "NeverCounted"})
    await peer.ask("offset: of an unknown queue", query, {**place, "queueId": 99})
    await peer.ask("offset: of a queue below 0", query, {**place, "queueId": -1})
    for value in (5, 3, 0, -1, 1 << 40, "x", None):
        await peer.ask(f"offset: commit {value}", update, {**place, "commitOffset": value})
        await peer.ask(f"offset: after {value}", query, place)
    await peer.tell("offset: commit one-way", update, {**place, "commitOffset": 7})
    await peer.ask("offset: after one-way", query, place)
    await peer.ask("offset: commit to an unknown topic", update, {**place, "topic": "NeverCounted", "commitOffset": 2})
    await peer.ask("offset: of an unknown topic then", query, {**place, "topic": "NeverCounted"})
    for name in place:
        await peer.ask(f"offset: query without {name}", query, {**place, name: None})
        await peer.ask(f"offset: commit without {name}", update, {**place, "commitOffset": 1, name: None})
    await peer.ask("offset: consume statistics", Code.GET_CONSUME_STATS, {"consumerGroup": "Counters"})
    ext = {"consumerGroup": "Counters", "topic": "Counted"}
    await peer.ask("offset: consume statistics of a topic", Code.GET_CONSUME_STATS, ext)
    await peer.ask("offset: consume statistics of an unknown topic", Code.GET_CONSUME_STATS, {**ext, "topic": "Never"})
    await peer.ask("offset: consume statistics of an unknown group", Code.GET_CONSUME_STATS, {"consumerGroup": "Never"})
    await peer.ask("offset: consume statistics, no group", Code.GET_CONSUME_STATS, {})
    await peer.ask("offset: who consumes", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Counted"})
    drop = Code.DELETE_SUBSCRIPTIONGROUP
    await peer.quiet(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, say.group("Counters"))
    await peer.ask("offset: delete the group", drop, {"groupName": "Counters"})
    await peer.ask("offset: still there", query, place)
    await peer.quiet(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, say.group("Counters"))
    await peer.ask("offset: delete the group and them", drop, {"groupName": "Counters", "removeOffset": "true"})
    await peer.ask("offset: gone", query, place)


async def locks(talk: Talk) -> None:
    """LOCK_BATCH_MQ, UNLOCK_BATCH_MQ: conflicts, hanging up, expiry."""
    peer, other = await talk.peer("locker"), await talk.peer("other locker")

    def said(client: str | None, *queues: int, group: str | None = "Lockers") -> dict[str, object]:
        table = [{"brokerName": "broker-a", "queueId": queue, "topic": "Locked"} for queue in queues]
        return {"clientId": client, "consumerGroup": group, "mqSet": table}

    lock, unlock = Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ
    await peer.ask("lock: two", lock, None, said("c1", 0, 1))
    await peer.ask("lock: again", lock, None, said("c1", 0))
    await other.ask("lock: another's and a free one", lock, None, said("c2", 1, 2))
    await other.ask("lock: by the same name on another connection", lock, None, said("c1", 0))
    await other.ask("lock: another group", lock, None, said("c2", 0, group="LockersToo"))
    await other.ask("unlock: another's", unlock, None, said("c2", 0))
    await other.ask("lock: still another's", lock, None, said("c2", 0))
    await peer.ask("unlock: mine", unlock, None, said("c1", 0))
    await other.ask("lock: free now", lock, None, said("c2", 0))
    await peer.ask("unlock: of a group never heard of", unlock, None, said("c1", 0, group="NeverLocked"))
    await peer.tell("unlock: one-way", unlock, None, said("c1", 1))
    await other.ask("lock: after one-way", lock, None, said("c2", 1))
    await peer.ask("lock: nothing", lock, None, said("c1"))
    await peer.ask("lock: no client", lock, None, said(None, 5))
    await peer.ask("lock: no group", lock, None, said("c1", 5, group=None))
    await peer.ask("lock: empty body", lock, None, b"")
    await peer.ask("lock: empty object", lock, None, b"{}")
    await peer.ask("lock: no JSON", lock, None, b"{")
    await peer.ask("lock: an unknown topic", lock, None, {**said("c1"), "mqSet": [{"topic": "Never", "queueId": 9}]})
    await peer.ask("unlock: empty body", unlock, None, b"")
    gone = await talk.peer("gone locker")
    mine = say.heartbeat("c3", say.consumer("Lockers", say.subscription("Locked")))
    await gone.ask("lock: a member", BEAT, None, mine)
    locked = time.monotonic()
    await gone.ask("lock: a member's", lock, None, said("c3", 7))
    gone.close()
    await asyncio.sleep(0.5)
    await other.ask("lock: of one who has hung up", lock, None, said("c2", 7))
    await asyncio.sleep(_NEARLY_S)
    opaque = other.send(lock, None, said("c2", 7))
    await other.answer(opaque, WAIT_S)
    if time.monotonic() - locked > _EXPIRES_S - 1:  # the machine stood still: whether it was asked in time is open
        for client in ("c2", "c3"):
            await other.quiet(unlock, None, said(client, 7))
        await other.quiet(lock, None, said("c3", 7))
        await asyncio.sleep(_NEARLY_S)
        opaque = other.send(lock, None, said("c2", 7))
    await other.later("lock: before it expires", opaque, lock)
    await asyncio.sleep(9)
    await other.ask("lock: expired", lock, None, said("c2", 7))
