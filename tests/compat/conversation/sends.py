"""Sends, in all their forms; what was stored is pulled again."""

from __future__ import annotations

from engine.wire.codes import RequestCode as Code
from tests.compat.conversation import say
from tests.compat.conversation.talk import Talk

V1, V2, BATCH = Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE
_FORBIDDEN = (
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
)  # fmt: skip
_SYSTEM = ("TBW102", "BenchmarkTest", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC", "rmq_sys_mine")


async def sends(talk: Talk) -> None:
    """SEND_MESSAGE and SEND_MESSAGE_V2."""
    peer = await talk.peer("sender")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Sent"))
    rich = say.properties(KEYS="k1 k2", TAGS="a", UNIQ_KEY="0A0B", mine="ß", WAIT="true")
    await peer.ask("send: V2", V2, say.send("Sent", i=rich), b"one")
    await peer.ask("send: V1", V1, say.send_v1("Sent", properties=rich), b"two")
    await peer.ask("send: binary header", V2, say.send("Sent", i=rich), b"three", kind=1)
    await peer.ask("send: empty body", V2, say.send("Sent"))
    await peer.ask("send: compressed", V2, say.send("Sent", f=0x301), b"not really")
    await peer.ask("send: trailing separator", V2, say.send("Sent", i="a\x01b\x02"), b"x")
    await peer.ask("send: properties twice", V2, say.send("Sent", i="a\x01b\x02a\x01c"), b"x")
    await peer.ask("send: a property without value", V2, say.send("Sent", i="a\x01\x02b\x01c\x02d"), b"x")
    await peer.ask("send: CLUSTER said by the client", V2, say.send("Sent", i="CLUSTER\x01mine"), b"x")
    await peer.ask("send: WAIT=false", V2, say.send("Sent", i="WAIT\x01false"), b"x")
    await peer.ask("send: negative flag and born", V2, say.send("Sent", h=-1, g=-5), b"x")
    await peer.ask("send: reconsumeTimes", V2, say.send("Sent", j=3, l=5), b"x")
    await peer.ask("send: unit mode", V2, say.send("SentUnit", k="true"), b"x")
    # No IPv6 bits (sysFlag 48) in the header: Apache's dispatch never comes past such a message again.
    await peer.ask("send: odd bits", V2, say.send("Sent", f=0x7FFFF000), b"x")
    await peer.ask("send: prepared without TRAN_MSG", V2, say.send("Sent", f=4), b"x")
    await peer.ask("send: delay 0", V2, say.send("Sent", i="DELAY\x010"), b"x")
    await peer.ask("send: delay negative", V2, say.send("Sent", i="DELAY\x01-3"), b"x")
    await peer.ask("send: delay no number", V2, say.send("Sent", i="DELAY\x01soon"), b"x")
    await peer.tell("send: one-way", V2, say.send("Sent"), b"one way")
    last = await peer.ask("send: the last of these", V2, say.send("Sent"), b"last")
    assert last is not None
    await say.until_there(peer, "Sent", int(last.fields["queueOffset"]) + 1)
    await peer.ask("send: what was stored", Code.PULL_MESSAGE, say.pull("Sent"))
    await peer.ask("send: any queue", V2, say.send("Sent", -1), b"x", loose=("ext.queueId", "ext.queueOffset"))
    await peer.ask(
        "send: any queue, far below", V2, say.send("Sent", -99), b"x", loose=("ext.queueId", "ext.queueOffset")
    )
    await peer.ask("send: last queue", V2, say.send("Sent", 3), b"x", loose=("ext.queueOffset",))
    await peer.ask("send: queue too big", V2, say.send("Sent", 4), b"x")
    await peer.ask("send: queue beyond int", V2, say.send("Sent", 1 << 40), b"x")
    for letter in "abcdefghijkm":
        await peer.ask(
            f"send: V2 without {letter}", V2, say.send("Sent", **{letter: None}), b"x", loose=("ext.queueOffset",)
        )
    for name in say.send_v1("Sent"):
        await peer.ask(
            f"send: V1 without {name}", V1, {**say.send_v1("Sent"), name: None}, b"x", loose=("ext.queueOffset",)
        )
    await peer.ask("send: V2 without fields", V2, None, b"x")
    await peer.ask("send: V2 with V1's names", V2, say.send_v1("Sent"), b"x")
    for letter in "defghjkm":
        await peer.ask(
            f"send: V2, {letter} no number", V2, say.send("Sent", **{letter: "x"}), b"x", loose=("ext.queueOffset",)
        )
    for name in ("", " ", "a b", "a/b", "ä", "L" * 128):
        await peer.ask(f"send: topic '{name}'", V2, say.send(name), b"x")
    for name in (*_FORBIDDEN, *_SYSTEM):
        await peer.ask(f"send: to {name}", V2, say.send(name), b"x")
    await peer.ask("send: made by itself", V2, say.send("SentAuto"), b"x")
    await say.until_there(peer, "SentAuto", 1)
    await peer.ask("send: made by itself, the statistics", Code.GET_TOPIC_STATS_INFO, {"topic": "SentAuto"})
    await peer.ask("send: made with 100 queues", V2, say.send("SentAuto100", d=100), b"x")
    await peer.ask("send: made with 0 queues", V2, say.send("SentAuto0", d=0), b"x")
    await peer.ask("send: made with -1 queues", V2, say.send("SentAutoMinus", d=-1), b"x")
    await peer.ask("send: made after an unknown topic", V2, say.send("SentAutoU", c="NeverMade"), b"x")
    await peer.ask("send: made after one without inherit", V2, say.send("SentAutoI", c="Sent"), b"x")
    await peer.ask("send: made after the cluster's topic", V2, say.send("SentAutoC", c="DefaultCluster", d=2), b"x")
    await peer.ask("send: made, the queue is too big", V2, say.send("SentAutoQ", 9), b"x")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("SentReadOnly", perm=4))
    await peer.ask("send: to a topic that is read only", V2, say.send("SentReadOnly"), b"x")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("SentTags", topicFilterType="MULTI_TAG"))
    await peer.ask("send: to a topic of many tags", V2, say.send("SentTags", i="TAGS\x01a"), b"x")
    await say.until_there(peer, "SentTags", 1)
    await peer.ask("send: many tags, what was stored", Code.PULL_MESSAGE, say.pull("SentTags"))
    await peer.ask("send: body of 4 MiB", V2, say.send("SentBig"), bytes(4 << 20))
    await peer.ask("send: body of 4 MiB and 1", V2, say.send("SentBig"), bytes((4 << 20) + 1))
    await peer.ask("send: body of 5 MiB", V2, say.send("SentBig"), bytes(5 << 20))
    for size in (32000, 32767, 32768, 40000):
        await peer.ask(f"send: properties of {size}", V2, say.send("SentBig", i="p\x01" + "v" * (size - 2)), b"x")
    await peer.ask("send: properties of 32746, with CLUSTER", V2, say.send("SentBig", i="p\x01" + "v" * 32744), b"x")
    await peer.ask(
        "send: properties of 32767 bytes in few letters", V2, say.send("SentBig", i="p\x01" + "ß" * 16500), b"x"
    )


async def batches(talk: Talk) -> None:
    """SEND_BATCH_MESSAGE, and the batch flag of the others."""
    peer = await talk.peer("batcher")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Batched"))
    two = say.batch((b"one", say.properties(TAGS="a", UNIQ_KEY="A1")), (b"two", say.properties(TAGS="b")))
    await peer.ask("batch: two", BATCH, say.send("Batched", m="true"), two)
    await peer.ask("batch: V2 with the flag", V2, say.send("Batched", m="true", i="mine\x01all"), two)
    await peer.ask("batch: V1 with the flag", V1, say.send_v1("Batched", batch="true"), two)
    await peer.ask(
        "batch: trailing separators",
        BATCH,
        say.send("Batched", m="true", i="x\x01y\x02"),
        say.batch((b"z", "a\x01b\x02")),
    )
    await peer.ask("batch: WAIT", BATCH, say.send("Batched", m="true", i="WAIT\x01true"), two)
    await peer.ask("batch: code of a batch without the flag", BATCH, say.send("Batched"), b"plain")
    await say.until_there(peer, "Batched", 10)
    await peer.ask("batch: what was stored", Code.PULL_MESSAGE, say.pull("Batched"))
    await peer.ask("batch: nothing in it", BATCH, say.send("Batched", m="true"), b"")
    await peer.ask("batch: no batch in it", BATCH, say.send("Batched", m="true"), b"garbage")
    await peer.ask("batch: cut off", BATCH, say.send("Batched", m="true"), two[:-3])
    await peer.ask("batch: size 0", BATCH, say.send("Batched", m="true"), bytes(24))
    await peer.ask("batch: delayed", BATCH, say.send("Batched", m="true", i="DELAY\x011"), two)
    await peer.ask("batch: delayed inside", BATCH, say.send("BatchedLate", m="true"), say.batch((b"x", "DELAY\x011")))
    await peer.ask("batch: half", BATCH, say.send("Batched", m="true", f=4), two)
    await peer.ask("batch: to a retry topic", BATCH, say.send("%RETRY%BatchGroup", m="true"), two)
    await peer.ask("batch: dead already", BATCH, say.send("%RETRY%BatchGroup", m="true", j=16), two)
    await peer.ask("batch: topic that must be made", BATCH, say.send("BatchedNew", m="true"), two)
    await peer.ask(
        "batch: any queue", BATCH, say.send("BatchedNew", -1, m="true"), two, loose=("ext.queueId", "ext.queueOffset")
    )
    await peer.ask("batch: queue too big", BATCH, say.send("Batched", 7, m="true"), two)
    await peer.ask("batch: forbidden topic", BATCH, say.send("SELF_TEST_TOPIC", m="true"), two)
    await peer.ask("batch: one too big", BATCH, say.send("Batched", m="true"), say.batch((bytes((4 << 20) + 1), "")))
    big = say.batch((bytes(2 << 20), ""), (bytes(2 << 20), ""))
    await peer.ask("batch: all together too big", BATCH, say.send("Batched", m="true"), big)
    # No properties that are too long only together: Apache's dispatch never comes past such a batch again.
