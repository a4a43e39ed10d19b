"""Topics and groups: made, changed, deleted, listed."""

from __future__ import annotations

from engine.wire.codes import RequestCode as Code
from tests.compat.conversation import say
from tests.compat.conversation.talk import Talk


async def topics(talk: Talk) -> None:
    """UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER, GET_TOPIC_STATS_INFO."""
    peer = await talk.peer("topics")
    make, drop = Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER
    good = {
        "plain": say.topic("Made"),
        "again": say.topic("Made"),
        "more queues": say.topic("Made", 6),
        "write only": say.topic("MadeWriteOnly", perm=2),
        "read only": say.topic("MadeReadOnly", perm=4),
        "nothing allowed": say.topic("MadeClosed", perm=0),
        "odd perm": say.topic("MadeOdd", perm=255),
        "many tags": say.topic("MadeTags", topicFilterType="MULTI_TAG"),
        "ordered": say.topic("MadeOrdered", order="true"),
        "unit": say.topic("MadeUnit", topicSysFlag=1),
        "no queues": say.topic("MadeNone", 0),
        "negative queues": say.topic("MadeNegative", -1),
        "longest name": say.topic("L" * 127),
        "name too long": say.topic("L" * 128),
        "blank name": say.topic(" "),
        "empty name": say.topic(""),
        "space in name": say.topic("a b"),
        "slash in name": say.topic("a/b"),
        "foreign letters in name": say.topic("ä"),
        "percent and bar": say.topic("%a|b-_"),
        "system topic": say.topic("TBW102"),
        "system topic of transactions": say.topic("RMQ_SYS_TRANS_HALF_TOPIC"),
        "system prefix": say.topic("rmq_sys_mine"),
        "cluster's name": say.topic("DefaultCluster"),
        "broker's name": say.topic("broker-a"),
        "reply topic": say.topic("DefaultCluster_REPLY_TOPIC"),
        "trace topic": say.topic("RMQ_SYS_TRACE_TOPIC"),
        "retry topic": say.topic("%RETRY%Made", 1),
        "no name": say.topic(None),
        "no queues said": say.topic("MadeHalf", None),
        "queues no number": say.topic("MadeWords", "four"),
        "no perm": say.topic("MadePermless", perm=None),
        "no filter type": say.topic("MadeFilterless", topicFilterType=None),
        "unknown filter type": say.topic("MadeFilter", topicFilterType="NO_TAG"),
        "no default topic": say.topic("MadeDefaultless", defaultTopic=None),
        "no order": say.topic("MadeOrderless", order=None),
        "no sysFlag": say.topic("MadeFlagless", topicSysFlag=None),
    }
    for name, ext in good.items():
        await peer.ask(f"topic: make, {name}", make, ext)
    await peer.quiet(drop, {"topic": "MadeNegative"})
    await peer.ask("topic: make, no fields", make)
    await peer.ask("topic: make, binary", make, say.topic("MadeBinary"), kind=1)
    for name in ("Made", "MadeNone", "MadeClosed", "MadePermless", "MadeHalf", "MadeWords", "a b"):
        await peer.ask(f"topic: statistics of {name}", Code.GET_TOPIC_STATS_INFO, {"topic": name})
    await peer.ask("topic: statistics, no name", Code.GET_TOPIC_STATS_INFO, {})
    await peer.ask("topic: delete", drop, {"topic": "MadeBinary"})
    await peer.ask("topic: delete again", drop, {"topic": "MadeBinary"})
    await peer.ask("topic: statistics of a deleted one", Code.GET_TOPIC_STATS_INFO, {"topic": "MadeBinary"})
    for name in ("", " ", "TBW102", "SELF_TEST_TOPIC", "rmq_sys_mine", "NeverMade", "a b"):
        await peer.ask(f"topic: delete '{name}'", drop, {"topic": name})
    await peer.ask("topic: delete, no name", drop, {})
    await peer.ask("topic: who consumes an unknown one", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "NeverMade"})
    await peer.ask("topic: who consumes, no name", Code.QUERY_TOPIC_CONSUME_BY_WHO, {})


async def groups(talk: Talk) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, DELETE_SUBSCRIPTIONGROUP."""
    peer = await talk.peer("groups")
    make, drop = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP
    bodies = {
        "plain": say.group("MadeGroup"),
        "again": say.group("MadeGroup"),
        "changed": say.group("MadeGroup", retryMaxTimes=3, retryQueueNums=2),
        "little said": {"groupName": "MadeLittle"},
        "unknown keys": {"groupName": "MadeNewer", "attributes": {}, "groupSysFlag": 0},
        "no name": {"retryQueueNums": 1},
        "blank name": say.group(" "),
        "odd name": say.group("a b/c"),
        "long name": say.group("g" * 200),
        "negative numbers": say.group("MadeMinus", retryMaxTimes=-1, retryQueueNums=-1),
        "no JSON": b"{",
        "an array": b"[]",
        "nothing": b"",
        "words for numbers": {"groupName": "MadeWords", "retryMaxTimes": "many"},
        "numbers as text": {"groupName": "MadeText", "retryMaxTimes": "5"},
    }
    for name, body in bodies.items():
        await peer.ask(f"group: make, {name}", make, None, body)
    await peer.ask("group: delete", drop, {"groupName": "MadeLittle"})
    await peer.ask("group: delete again", drop, {"groupName": "MadeLittle"})
    await peer.ask("group: delete, unknown", drop, {"groupName": "NeverMade", "removeOffset": "true"})
    await peer.ask("group: delete, no name", drop, {})
    await peer.ask("group: delete, predefined", drop, {"groupName": "SELF_TEST_C_GROUP"})
