"""`doctor --upgrade-to` against the real releases: what it says is not read or lost is not read, and lost."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.release_keys import DEFAULTS, default_in, is_effective, keys_of_release
from engine.broker_conf.values import as_text
from engine.client.connection import RemotingClient
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import names
from engine.inspect.finding import Finding
from engine.repair.start.upgrade import Upgrade, plan_upgrade
from engine.wire.codes import RequestCode, ResponseCode
from tests.compat import apache, real_broker, starts5, toolchain
from tests.compat.generate5 import SMALL as SMALL5
from tests.conftest import Store
from tests.support import newer

pytestmark = pytest.mark.interop

SIZES = apache.Sizes(65_536, 2_000, 200, 800)
"""Of fixtures/rocketmq5."""
SMALLEST = apache.Sizes(16_384, 1_000, 100, 300)
"""Of fixtures/starts."""
CLASSES = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "org.apache.rocketmq.auth.config.AuthConfig",
)


def looked(store: Path, release: str, sizes: apache.Sizes = SIZES, conf: Path | None = None, **other: str) -> Upgrade:
    """What is said before that release opens the store."""
    config = StoreConfig().with_changes(
        store_path_root_dir=store,
        mapped_file_size_commit_log=sizes.commitlog_file,
        mapped_file_size_consume_queue=sizes.queue_file,
        max_hash_slot_num=sizes.index_slots,
        max_index_num=sizes.index_entries,
        other=other,
    )
    return plan_upgrade(Disk(), config, release, conf=None if conf is None else str(conf))


def finding(upgrade: Upgrade, code: str) -> Finding:
    (one,) = (one for one in upgrade.findings if one.code == code)
    return one


def codes(upgrade: Upgrade) -> list[str]:
    return [one.code for one in upgrade.findings]


@pytest.mark.leaves
def test_v2_records_end_the_log_of_4_9_8(apache_store: None, tmp_path: Path) -> None:
    """Records of 5.5.0's own store, of a topic with 200 characters among others."""
    store = tmp_path / "store"
    try:
        starts5.write_base("5.5.0", store, killed=False, topics=f"Orders,{'L' * 200}", messages=60)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    said = looked(store, "4.9.8", SMALLEST)
    assert codes(said)[:2] == ["start-loses", "record-v2"]
    v2, loses = finding(said, "record-v2"), finding(said, "start-loses")
    assert not {"start-loses", "record-v2"} & set(codes(looked(store, "5.3.3", SMALLEST)))
    opened = apache.read(store, SMALLEST)
    assert opened.exit == apache.Exit.OPENED
    assert opened.final is not None
    assert v2.where.endswith(f" at {opened.final.max}")
    assert f"{60 - len(opened.messages)} messages after {opened.final.max}" in loses.message


@pytest.mark.leaves
def test_batches_and_timers_are_no_messages_of_4_9_8(apache_store: None, tmp_path: Path) -> None:
    batch, timer = newer.unpack("batch", tmp_path), newer.unpack("timer", tmp_path)
    assert "batch-queues" in codes(looked(batch, "4.9.8"))
    assert "5 messages" in finding(looked(timer, "4.9.8"), "timer-waits").message
    opened = apache.read(batch, SIZES)
    given = [one for one in opened.messages if one["topic"] == "B"]
    assert len(given) == 10  # of 40: a record of four each, with the batch as its body
    assert {(q.queue_id, q.max) for q in opened.queues if q.topic == "B"} == {(0, 5), (1, 5)}
    opened = apache.read(timer, SIZES)
    counts = {topic: sum(q.max - q.min for q in opened.queues if q.topic == topic) for topic in ("Soon", "Late")}
    assert counts == {"Soon": 5, "Late": 0}
    assert any(q.topic == names.TIMER_TOPIC and q.max == 10 for q in opened.queues)


@pytest.mark.leaves
def test_queues_in_rocksdb_are_built_anew_by_4_9_8(apache_store: None, tmp_path: Path) -> None:
    store = newer.unpack("rocksdb", tmp_path)
    assert {"rocksdb-queues", "rocksdb-config", "start-not-computed"} <= set(codes(looked(store, "4.9.8")))
    opened = apache.read(store, SIZES)
    assert [len(opened.messages), sorted((q.queue_id, q.max) for q in opened.queues if q.topic == "T")] == [
        20,
        [(0, 10), (1, 10)],
    ]


@pytest.mark.leaves
def test_a_broker_of_4_9_drops_attributes_and_reads_no_configuration_in_rocksdb(tmp_path: Path) -> None:
    """The real broker, on a store of 5.5.0: it drops what topics.json has beside its own, when it writes the file."""
    store = newer.unpack("batch", tmp_path)
    table = store / names.CONFIG / "topics.json"
    assert "1 entry: B" in finding(looked(store, "4.9.8"), "topic-attributes").message
    assert json.loads(table.read_bytes())["topicConfigTable"]["B"]["attributes"]
    lines = "".join(f"{key}={value}\n" for key, value in {**SMALL5, "brokerName": "broker-a"}.items())
    try:
        with real_broker.serve(store, lines) as broker:
            asyncio.run(_make_topic(broker.broker))
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    topics = json.loads(table.read_bytes())["topicConfigTable"]
    assert "New" in topics
    assert not any("attributes" in one for one in topics.values())


async def _make_topic(address: str) -> None:
    async with await RemotingClient.connect(address) as client:
        given = {
            "topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, given, timeout_s=20)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.leaves
def test_forced_property_crcs_cut_a_log_of_4_9_8(fixture_store: Store, tmp_path: Path) -> None:
    """#7480: 5.5.0's own store, with forceVerifyPropCRC, on records that have no property CRC; and on some that do."""
    sizes = {"mappedFileSizeCommitLog": 131_072, "mappedFileSizeConsumeQueue": 2_000, "maxHashSlotNum": 200}
    sizes["maxIndexNum"] = 800
    forced = {"forceVerifyPropCRC": "true"}
    old, plain = tmp_path / "old", tmp_path / "plain"
    shutil.copytree(fixture_store("clean-small"), old)
    shutil.copytree(old, plain)
    sealed = newer.unpack("property-crc", tmp_path)
    said = looked(old, "5.5.0", apache.SMALL, **forced)
    whole = looked(plain, "5.5.0", apache.SMALL)
    kept = looked(sealed, "5.5.0", **forced)
    jobs = [
        starts5.Job(old, {**sizes, **forced}, {}),
        starts5.Job(plain, sizes, {}),
        starts5.Job(sealed, {**SMALL5, **forced}, {}),
    ]
    try:
        outcomes = starts5.outcomes("5.5.0", jobs)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    log_end = outcomes[str(plain)]["max"]
    assert codes(whole) == []
    assert [outcomes[str(old)]["exit"], outcomes[str(plain)]["exit"], outcomes[str(sealed)]["exit"]] == [0, 0, 0]
    assert codes(said)[:2] == ["start-loses", "record-crc-missing"]
    cut = outcomes[str(old)]["max"]
    assert cut < log_end
    assert f" after {cut}" in finding(said, "start-loses").message
    assert "600 records of 600" in finding(said, "record-crc-missing").message
    assert codes(kept) == []
    assert outcomes[str(sealed)]["max"] == 5_740


def told(release: str) -> dict[str, list[str]]:
    """By key, whether anything asks for it and its default: of that release's own classes."""
    try:
        class_path = toolchain.store5(release)
        if release in ("5.3.3", "5.5.0"):
            class_path += os.pathsep + toolchain.apache_broker5(release).class_path
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    words = [str(toolchain.java()), *toolchain.BRIEF, "-cp", class_path, "io.rstore.compat5.Keys5", *CLASSES]
    ran = subprocess.run(words, capture_output=True, timeout=60, check=True)
    lines = (line.split("\t") for line in ran.stdout.decode().splitlines() if line.startswith("key\t"))
    return {line[1]: line[2:] for line in lines}


@pytest.mark.parametrize(
    "release", ["5.5.0", *(pytest.param(one, marks=pytest.mark.wide) for one in ("5.3.1", "5.3.3", "5.4.0"))]
)
def test_the_keys_of_a_release_are_those_of_its_classes(release: str) -> None:
    theirs = told(release)
    ours = set(keys_of_release(release))
    if "authenticationEnabled" not in theirs:  # the class path of 5.3.1 and 5.4.0 here is that of the store alone
        ours = {key for key in ours if not key.startswith(_AUTH)}
    assert ours == theirs.keys()
    assert {key for key, (asked, _) in theirs.items() if asked == "deaf"} == {
        key for key in ours if not is_effective(key, release)
    }
    for key, defaults in DEFAULTS.items():
        assert {theirs[key][1]} == {default_in(key, release)}, (key, defaults)
    for key, (_, value) in theirs.items():
        known = [one for one in all_keys().get(key, ()) if not one.machine]
        if known and key not in DEFAULTS and key != "listenPort":  # that of the server, which BrokerStartup sets
            assert value in {as_text(one.default) for one in known} or known[0].default is None, key


_AUTH = (
    *("aclCache", "auth", "clusterName", "configName", "initAuth", "innerClient", "migrateAuth", "stateful"),
    "userCache",
)
"""How keys of AuthConfig begin."""
