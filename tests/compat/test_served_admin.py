"""mqadmin's commands against `rstore serve`, with a consumer and a producer of Java's running: what each prints.

The commands of BROKER.md 1.4 and the others of mqadmin 4.9.8, but those for access rights (tests of their own), the
endless ones (clusterRT, startMonitoring) and the traces' (queryMsgTraceById).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.format.topic_rules import HALF_TOPIC
from tests.compat import toolchain
from tests.compat.served import Admins, Served, serve
from tests.engine.broker.test_admin import RUNTIME_KEYS
from tests.engine.opening import assert_sound

pytestmark = pytest.mark.interop

CLUSTER = "DefaultCluster"
MANY = 6
WAIT_S = 120


@dataclass(frozen=True, slots=True)
class Looked:
    """A broker, mqadmin, and what it can look at: the group G that consumes T, the producers PG that sent there.

    Attributes:
        client: the consumer's client id.
        ids: of each message, the offset message id and the client's.
    """

    served: Served
    admin: Admins
    home: Path
    client: str
    ids: list[tuple[str, str]]


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    try:
        toolchain.clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root = tmp_path_factory.mktemp("administered") / "store"
    with serve(root) as served:
        home = root.parent / "home"
        admin = Admins(home, served.names)
        try:
            admin("updateTopic", "-b", served.broker, "-t", "T", "-r", "2", "-w", "2")
            client = admin("!consume", "G", "T")
            sent = admin("!produce", "PG", "T", str(MANY)).splitlines()
            ids = [(line.split()[0], line.split()[1]) for line in sent]
            until(lambda: admin("!seen", "G") == str(MANY))
            yield Looked(served, admin, home, client, ids)
        finally:
            admin.close()
    assert_sound(StoreConfig(store_path_root_dir=root))


def until(condition: Callable[[], bool]) -> None:
    """Wait for what takes its time."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def row(text: str, *words: str) -> list[str]:
    """The fields of the first line that begins with these words."""
    for line in text.splitlines():
        fields = line.split()
        if fields[: len(words)] == list(words):
            return fields
    raise AssertionError(f"no line {words}: {text}")


# --- the cluster and its topics -------------------------------------------------------------------------------------


def test_the_cluster(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    found = row(admin("clusterList"), CLUSTER, "broker-a")
    assert found[2:5] == ["0", broker, "V4_9_8"]
    until(lambda: "(0,0ms)" in admin("clusterList"))

    def put_today() -> int:
        admin("!produce", "PG", "Today", str(MANY))  # now, as what was put before may be yesterday's
        return int(row(admin("clusterList", "-m"), CLUSTER, "broker-a")[4])

    until(lambda: put_today() >= MANY)
    assert admin("topicClusterList", "-t", "T").strip() == CLUSTER


def test_topics(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    made = admin("updateTopic", "-c", CLUSTER, "-t", "Ordered", "-r", "3", "-w", "3", "-o", "true")
    assert f"create topic to {broker} success." in made
    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:3]" in made
    assert {"T", "Ordered", "%RETRY%G", "TBW102"} <= set(admin("topicList").split())
    assert row(admin("topicList", "-c"), CLUSTER, "T")[2] == "G"
    route = admin("topicRoute", "-t", "Ordered")
    assert (route.count('"readQueueNums":3'), route.count(broker)) == (1, 1)
    assert "orderTopicConf" not in route
    status = admin("topicStatus", "-t", "T")
    ends = [int(row(status, "broker-a", str(queue))[3]) for queue in range(2)]
    assert sum(ends) >= MANY
    assert "perm from 6 to 4" in admin("updateTopicPerm", "-b", broker, "-t", "Ordered", "-p", "4")
    assert '"perm":4' in admin("topicRoute", "-t", "Ordered")
    shared = json.loads(admin("allocateMQ", "-t", "T", "-i", "10.0.0.1,10.0.0.2"))["result"]
    assert sorted(queue["queueId"] for queues in shared.values() for queue in queues) == [0, 1]
    assert "delete topic [Ordered] from cluster" in admin("deleteTopic", "-c", CLUSTER, "-t", "Ordered")
    assert "Ordered" not in admin("topicList").split()


def test_the_name_services_settings(looked: Looked) -> None:
    admin, names = looked.admin, looked.served.names
    assert re.search(r"orderMessageEnable\s+=\s+false", admin("getNamesrvConfig", "-n", names))
    put = admin("updateOrderConf", "-t", "T", "-m", "put", "-v", "broker-a:2")
    assert "update orderConf success. topic=[T], orderConf=[broker-a:2]" in put
    assert "orderConf=[broker-a:2]" in admin("updateOrderConf", "-t", "T", "-m", "get")
    assert "success" in admin("updateNamesrvConfig", "-n", names, "-k", "orderMessageEnable", "-v", "true")
    assert '"orderTopicConf":"broker-a:2"' in admin("topicRoute", "-t", "T")
    assert "success" in admin("updateNamesrvConfig", "-n", names, "-k", "orderMessageEnable", "-v", "false")
    assert "delete orderConf success" in admin("updateOrderConf", "-t", "T", "-m", "delete")
    assert "success" in admin("updateKvConfig", "-s", "Space", "-k", "a", "-v", "b")
    assert "success" in admin("deleteKvConfig", "-s", "Space", "-k", "a")
    until(lambda: HALF_TOPIC in admin("topicList").split())  # the first check of transactions makes the last of them
    topics = len(admin("topicList").split())
    wiped = admin("wipeWritePerm", "-b", "broker-a")
    assert wiped.strip() == f"wipe write perm of broker[broker-a] in name server[{names}] OK, {topics}"
    assert '"perm":4' in admin("topicRoute", "-t", "T")
    assert f"OK, {topics}" in admin("addWritePerm", "-b", "broker-a")
    assert '"perm":6' in admin("topicRoute", "-t", "T")


# --- the broker -----------------------------------------------------------------------------------------------------


def test_the_brokers_state(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    said = {line.split(":")[0].strip() for line in admin("brokerStatus", "-b", broker).splitlines() if line.strip()}
    assert said >= RUNTIME_KEYS
    assert "V4_9_8" in admin("brokerStatus", "-c", CLUSTER)
    # their sums are those of the last minute as long as the hour has none (StatsAllSubCommand#compute24HourSum), and
    # the fixture's messages may be older: so others, in a topic of their own
    admin("updateTopic", "-b", broker, "-t", "Counted", "-r", "2", "-w", "2")
    admin("!consume", "CountedG", "Counted")
    admin("!produce", "PG", "Counted", str(MANY))
    sums: tuple[set[str], set[str]] = (set(), set())  # of what came, of what went: maybe not in the same minute

    def all_counted() -> bool:
        said = admin("statsAll", "-t", "Counted")
        if "CountedG" not in said:  # nobody consumes it until the broker has heard of its consumer
            return False
        for seen, count in zip(sums, row(said, "Counted", "CountedG")[5:], strict=True):
            seen.add(count)
        return all(str(MANY) in seen for seen in sums)

    until(all_counted)
    assert "NO_CONSUMER" in " ".join(row(admin("statsAll"), "BenchmarkTest"))


def test_the_brokers_settings(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker

    def told(key: str) -> str:
        return row(admin("getBrokerConfig", "-b", broker), key, "=")[2]

    assert (told("brokerName"), told("fileReservedTime")) == ("broker-a", "72")
    assert "update broker config success" in admin(
        "updateBrokerConfig", "-b", broker, "-k", "fileReservedTime", "-v", "48"
    )
    assert told("fileReservedTime") == "48"
    conf = looked.served.root.parent / f"{looked.served.root.name}.conf"
    assert conf.read_text().splitlines()[-1] == "fileReservedTime=48"
    refused = admin("updateBrokerConfig", "-c", CLUSTER, "-k", "brokerConfigPath", "-v", "x")
    assert "CODE: 16  DESC: Can not update config in black list." in refused


def test_cleaning(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert admin(command, "-b", broker).strip() == "success", command
        assert admin(command, "-c", CLUSTER).strip() == "success", command


def test_exports(looked: Looked) -> None:
    where = looked.home / "exported"
    for command, name in (("exportMetadata", "metadata"), ("exportConfigs", "configs"), ("exportMetrics", "metrics")):
        assert "success" in looked.admin(command, "-c", CLUSTER, "-f", str(where)), command
        assert (where / f"{name}.json").stat().st_size > 2
    metrics = json.loads((where / "metrics.json").read_text())
    assert "broker-a" in json.dumps(metrics)


# --- messages -------------------------------------------------------------------------------------------------------


def test_a_message_by_its_ids_and_keys(looked: Looked) -> None:
    admin, (offset_id, unique_id) = looked.admin, looked.ids[0]
    # G tells how far it is twice a second
    until(lambda: "trackType=CONSUMED" in admin("queryMsgById", "-i", offset_id))
    by_id = admin("queryMsgById", "-i", offset_id)
    assert row(by_id, "OffsetID:")[1] == offset_id
    assert "MessageTrack [consumerGroup=G, trackType=CONSUMED, exceptionDesc=null]" in by_id
    before = int(admin("!seen", "G"))
    for again in (
        admin("queryMsgById", "-i", offset_id, "-g", "G", "-d", looked.client),
        admin("queryMsgByUniqueKey", "-t", "T", "-i", unique_id, "-g", "G", "-d", looked.client),
    ):
        assert "consumeResult=CR_SUCCESS" in again
    assert int(admin("!seen", "G")) == before + 2
    assert row(admin("queryMsgByKey", "-t", "T", "-k", "key3"), looked.ids[3][1])[1] in "01"
    queue = int(row(by_id, "Queue", "ID:")[2])
    by_offset = admin("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", str(queue), "-o", "0")
    assert row(by_offset, "OffsetID:")[1] == offset_id


def test_messages_of_queues(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    printed = admin("printMsg", "-t", "T")
    assert all(unique_id in printed for _, unique_id in looked.ids)
    one = admin("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true")
    assert 0 < one.count("BODY: body") <= MANY
    consumed = admin("consumeMessage", "-t", "T", "-b", "broker-a", "-i", "0", "-o", "0", "-c", "2")
    assert ("Consume ok" in consumed, consumed.count("MSGID:")) == (True, 2)
    units = admin("queryCq", "-t", "T", "-q", "0", "-i", "0", "-c", "2")
    assert units.count("ConsumeQueueData{physicOffset=") == 2
    online = admin("queryCq", "-t", "T", "-q", "0", "-i", "0", "-c", "2", "-b", broker, "-g", "G")
    assert '"subString":"*"' in online


def test_sending(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    admin("updateTopic", "-b", broker, "-t", "Sent", "-r", "2", "-w", "2")
    sent = admin("sendMessage", "-t", "Sent", "-p", "hello", "-k", "k")
    assert row(sent, "broker-a")[2] == "SEND_OK"
    assert admin("sendMsgStatus", "-b", "broker-a", "-c", "3").count("sendStatus=SEND_OK") == 3
    assert admin("checkMsgSendRT", "-t", "Sent", "-a", "3", "-s", "10").count("true") == 3


# --- groups ---------------------------------------------------------------------------------------------------------


def test_clients_that_are_connected(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    consumers = admin("consumerConnection", "-g", "G")
    assert row(consumers, looked.client)[2:] == ["JAVA", "V4_9_8"]
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in consumers
    # a producer whose route came later than its first heartbeat, a second after its start, is known 30 s later
    until(lambda: "JAVA" in admin("producerConnection", "-g", "PG", "-t", "T"))
    assert "producer group (PG) instance : clientId=" in admin("producer", "-b", broker)
    running = admin("consumerStatus", "-g", "G", "-i", looked.client, "-s")
    assert "PROP_CONSUME_TYPE                       : CONSUME_PASSIVELY" in running
    assert "#Consumer jstack#" in running
    assert "Rebalance OK" in admin("consumerStatus", "-g", "G")


def test_how_far_groups_have_come(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    until(lambda: "Diff Total: 0" in admin("consumerProgress", "-g", "G"))
    assert row(admin("consumerProgress", "-g", "G", "-s", "true"), "T", "broker-a")[2] == "0"
    assert row(admin("consumerProgress"), "G")[1:5] == ["1", "V4_9_8", "PUSH", "CLUSTERING"]
    assert row(admin("brokerConsumeStats", "-b", broker), "T", "G", "broker-a")[3] == "0"


def test_offsets_that_are_set(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    until(lambda: "Diff Total: 0" in admin("consumerProgress", "-g", "G"))
    assert "clone group offset success" in admin("cloneGroupOffset", "-s", "G", "-d", "H", "-t", "T", "-o", "true")
    admin("updateTopic", "-b", broker, "-t", "%RETRY%H", "-r", "1", "-w", "1")
    assert "Diff Total: 0" in admin("consumerProgress", "-g", "H")
    before = int(admin("!seen", "G"))
    reset = admin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "0")
    assert [row(reset, "broker-a", str(queue))[2] for queue in range(2)] == ["0", "0"]
    until(lambda: int(admin("!seen", "G")) >= before + MANY)  # all of them come again
    offline = admin("resetOffsetByTime", "-g", "H", "-t", "T", "-s", "0")
    assert [row(offline, "broker-a", str(queue))[5] for queue in range(2)] == ["0", "0"]
    until(lambda: f"Diff Total: {MANY}" in admin("consumerProgress", "-g", "H"))
    skipped = admin("skipAccumulatedMessage", "-g", "G", "-t", "T")
    assert sum(int(row(skipped, "broker-a", str(queue))[2]) for queue in range(2)) >= MANY


def test_groups_settings(looked: Looked) -> None:
    admin, broker = looked.admin, looked.served.broker
    made = admin("updateSubGroup", "-b", broker, "-g", "Configured", "-r", "3")
    assert f"create subscription group to {broker} success." in made
    assert row(admin("getConsumerConfig", "-g", "Configured"), "retryMaxTimes", "=")[2] == "3"
    deleted = admin("deleteSubGroup", "-b", broker, "-g", "Configured", "-r", "true")
    assert "delete subscription group [Configured] from broker" in deleted
    assert "retryMaxTimes" not in admin("getConsumerConfig", "-g", "Configured")
