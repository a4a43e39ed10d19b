"""The name service: routes, lists, key-value pairs."""

from __future__ import annotations

import asyncio

from engine.wire.codes import RequestCode as Code
from tests.compat.conversation import say
from tests.compat.conversation.talk import Talk

ROUTE = Code.GET_ROUTEINFO_BY_TOPIC


async def names(talk: Talk) -> None:
    """See the module."""
    peer, broker = await talk.peer("resolver", names=True), await talk.peer("resolver's maker")
    for ext in (say.topic("Routed", 3), say.topic("RoutedReadOnly", 2, 4), say.topic("RoutedUnit", topicSysFlag=1)):
        await broker.quiet(Code.UPDATE_AND_CREATE_TOPIC, ext)
    await broker.quiet(Code.SEND_MESSAGE_V2, say.send("RoutedAuto"), b"x")
    for name in ("Routed", "RoutedUnit", "RoutedAuto"):
        await say.until(peer, ROUTE, {"topic": name}, lambda found: found.code == 0)
    for name in ("Routed", "RoutedReadOnly", "RoutedUnit", "RoutedAuto", "TBW102", "DefaultCluster", "broker-a"):
        await peer.ask(f"route: {name}", ROUTE, {"topic": name})
    for name in ("BenchmarkTest", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"):
        await peer.ask(f"route: {name}", ROUTE, {"topic": name})
    await peer.ask("route: an old client's", ROUTE, {"topic": "Routed"}, version=317)
    await peer.ask(
        "route: an old client's, standard JSON",
        ROUTE,
        {"topic": "Routed", "acceptStandardJsonOnly": "true"},
        version=317,
    )
    await peer.ask("route: binary header", ROUTE, {"topic": "Routed"}, kind=1)
    for name in ("NeverRouted", "", " ", "a b", "ä"):
        await peer.ask(f"route: '{name}'", ROUTE, {"topic": name})
    await peer.ask("route: no topic", ROUTE, {})
    await peer.ask("route: no fields", ROUTE)
    await peer.ask("names: cluster", Code.GET_BROKER_CLUSTER_INFO)
    await peer.ask("names: system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    await peer.ask("names: topics of an unknown cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "Never"})
    await peer.ask("names: topics of no cluster", Code.GET_TOPICS_BY_CLUSTER, {})
    put, get, drop, every = Code.PUT_KV_CONFIG, Code.GET_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE
    space = {"namespace": "Mine", "key": "k"}
    await peer.ask("kv: get before", get, space)
    await peer.ask("kv: list before", every, {"namespace": "Mine"})
    await peer.ask("kv: put", put, {**space, "value": "v"})
    await peer.ask("kv: get", get, space)
    await peer.ask("kv: put another", put, {**space, "key": "l", "value": "ä ;:"})
    await peer.ask("kv: list", every, {"namespace": "Mine"})
    await peer.ask("kv: put over it", put, {**space, "value": "w"})
    await peer.ask("kv: get the new one", get, space)
    await peer.ask("kv: delete", drop, space)
    await peer.ask("kv: delete again", drop, space)
    await peer.ask("kv: delete in an unknown one", drop, {"namespace": "Never", "key": "k"})
    await peer.ask("kv: get after", get, space)
    await peer.ask("kv: delete the other", drop, {**space, "key": "l"})
    await peer.ask("kv: list after", every, {"namespace": "Mine"})
    for name in ("namespace", "key", "value"):
        await peer.ask(f"kv: put without {name}", put, {**space, "value": "v", name: None})
    for name in ("namespace", "key"):
        await peer.ask(f"kv: get without {name}", get, {**space, name: None})
    await peer.ask("kv: list without namespace", every, {})
    ordered = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Routed", "value": "broker-a:2"}
    await peer.ask("kv: an ordered topic", put, ordered)
    await peer.ask("route: of an ordered topic", ROUTE, {"topic": "Routed"})
    await peer.ask("kv: an ordered topic no more", drop, ordered)
    gone = Code.DELETE_TOPIC_IN_NAMESRV
    await peer.ask("names: delete an unknown topic", gone, {"topic": "NeverRouted"})
    await peer.ask("names: delete without topic", gone, {})


async def lists(talk: Talk) -> None:
    """What there is in all, when everything else has been said."""
    peer, broker = await talk.peer("reader", names=True), await talk.peer("reader of the broker")
    await asyncio.sleep(1)
    await peer.ask("route: of a topic that its broker has deleted", ROUTE, {"topic": "MadeBinary"})
    for name in ("MadeBinary", "MadeNegative"):
        await peer.quiet(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": name})
    await peer.ask("list: topics", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    await peer.ask("list: topics of the cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"})
    await broker.ask("list: topics' settings", Code.GET_ALL_TOPIC_CONFIG)
    await broker.ask("list: groups' settings", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    await broker.ask("list: consumers' offsets", Code.GET_ALL_CONSUMER_OFFSET)
    await broker.ask("list: delays' offsets", Code.GET_ALL_DELAY_OFFSET)
    await broker.ask("list: system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    runtime = await broker.quiet(Code.GET_BROKER_RUNTIME_INFO)
    from tests.compat.conversation.normal import runtime_keys

    talk.note("list: what is told of the broker", {"code": runtime.code, "keys": runtime_keys(runtime)})
