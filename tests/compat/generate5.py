"""Makes the stores of RocketMQ 5: `python -m tests.compat.generate5 [NAME…]`, from the root of the repository.

Each is what a real broker left that was started with its kind of store, sent a few messages, and stopped by SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
import tempfile
import time
import zlib
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.client.connection import RemotingClient
from engine.files.disk import Disk
from engine.files.rocksdb import RocksDatabase
from engine.format import properties
from engine.wire.codes import RequestCode, ResponseCode
from tests.compat import fixtures, real_broker, toolchain

INTO = fixtures.FIXTURES / "rocketmq5"
SMALL = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 2_000,
    "mapperFileSizeBatchConsumeQueue": 4_600,
    "mappedFileSizeTimerLog": 5_200,
    "compactionMappedFileSize": 65_536,
    "compactionCqMappedFileSize": 2_000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}
"""Small files: all else is the broker's default."""
NO_WHEEL = {"timerWheelEnable": "false"}
"""A timer wheel has 38,707,200 bytes: two of the stores show one, the others have none."""
LEFT_OUT = ("**/LOG", "**/LOG.old.*", "**/OPTIONS-*", "dledger-*/index/*")
"""Texts of RocksDB with this machine's paths, and DLedger's index, 167,772,160 bytes that its data give again."""
WAIT_S = 120.0
SENT_BACK = 3
"""Messages of each topic that a recipe's group sends back."""
UNITS_OF_A_FILE = 9
"""Of a compacted queue, as `COMPACTED` has them: the last place of a file is never filled."""


@dataclass(frozen=True)
class Topic:
    """What is sent to one. `batch`: messages a put (as one batch); `delay_s`: when they are due; `keys`: how many
    keys there are, each again and again (0: a key each); `unique`: each has a UNIQ_KEY, as clients send it; `half`:
    they are half messages of transactions that nobody ends."""

    name: str
    count: int = 20
    attributes: str = ""
    batch: int = 1
    delay_s: int = 0
    keys: int = 0
    unique: bool = False
    half: bool = False


@dataclass(frozen=True)
class Recipe:
    """How a store is made. `settings`: beside `SMALL`; `controller`: the name server is a controller, too;
    `killed`: the broker is, at the end; `tiered`: its tiered files are packed, too, as NAME-files; `offsets`: (group,
    topic, queue id, offset) that are committed; `java`: its options; `before`: settings of a run before that is sent
    the same; `version`: of the broker; `compactions`: as often what has `keys` is sent, and compacted; `back`: the
    group that sends the first messages of each topic back, three of them."""

    what: str
    settings: dict[str, object] = field(default_factory=dict)
    topics: tuple[Topic, ...] = (Topic("T"),)
    controller: bool = False
    killed: bool = False
    tiered: bool = False
    offsets: tuple[tuple[str, str, int, int], ...] = ()
    java: tuple[str, ...] = ()
    before: dict[str, object] | None = None
    version: str = "5.5.0"
    compactions: int = 0
    back: str = ""


ROCKSDB = {**NO_WHEEL, "storeType": "defaultRocksDB", "rocksdbCompressionType": "lz4"}
UNSAFE = ("--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true")
"""What ConfigStorage asks for on Java 17."""
PROOF = fixtures.FIXTURES / "proof"
"""Where the undamaged stores of tests/proof lie: `into` for those recipes."""
TINY = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 400,
    "mapperFileSizeBatchConsumeQueue": 460,
    "mappedFileSizeTimerLog": 1_060,
    "maxHashSlotNum": 54,
    "maxIndexNum": 216,
    "enabledAppendPropCRC": "true",
    "flushIntervalCommitLog": 100,
    "flushCommitLogThoroughInterval": 100,
    "flushConsumeQueueThoroughInterval": 500,
}
"""Several files of each structure, and a checkpoint that follows soon."""
COMPACTED = {
    **NO_WHEEL,
    "compactionScheduleInternal": 1_000,
    "compactionMappedFileSize": 4_600,
    "compactionCqMappedFileSize": 460,
}
"""Files of nine units, and of logs as many records as they say: `CompactionLog#getCompactionLogSize` gives 5,060."""
TO_COMPACT = (Topic("T"), Topic("C", 40, "+cleanup.policy=COMPACTION", keys=14))
OFFSETS = (("readers", "T", 0, 7), ("readers", "T", 1, 10), ("others", "Orders", 0, 3))


RECIPES = {
    "default": Recipe("A default broker: consume queues of files, and beside them what RocketMQ 5 keeps for itself."),
    "rocksdb": Recipe("Consume queues in RocksDB.", {**NO_WHEEL, "storeType": "defaultRocksDB"}),
    "rocksdb-5.3.3": Recipe(
        "Consume queues and configuration in RocksDB, with offsets, by 5.3.3.",
        ROCKSDB,
        topics=(Topic("T"), Topic("Orders", 30)),
        offsets=OFFSETS,
        version="5.3.3",
    ),
    "rocksdb-killed": Recipe(
        "The same by 5.5.0, and the broker was killed: what was written last is in write-ahead logs alone.",
        ROCKSDB,
        topics=(Topic("T"), Topic("Orders", 30)),
        offsets=OFFSETS,
        killed=True,
    ),
    "rocksdb-both": Recipe(
        "Consume queues in files, and since its second start in RocksDB, too, in a directory of their own.",
        {**NO_WHEEL, "rocksdbCQDoubleWriteEnable": "true"},
        version="5.3.3",
        topics=(Topic("T"), Topic("Orders", 30)),
        before=NO_WHEEL,
        offsets=OFFSETS,
    ),
    "rocksdb-v2": Recipe(
        "Consume queues in files, and configuration in one RocksDB database.",
        {**NO_WHEEL, "configManagerVersion": "v2"},
        topics=(Topic("T"), Topic("Orders", 30)),
        offsets=OFFSETS,
        java=UNSAFE,
    ),
    "batch": Recipe(
        "A topic whose consume queues have a unit a batch, beside a plain topic.",
        NO_WHEEL,
        topics=(Topic("T"), Topic("B", 40, "+queue.type=BatchCQ", batch=4)),
    ),
    "killed": Recipe(
        "The same, and the broker was killed: abort there, a pre-allocated file of zeros behind the log's end.",
        NO_WHEEL,
        topics=(Topic("T"), Topic("B", 40, "+queue.type=BatchCQ", batch=4)),
        killed=True,
    ),
    "timer": Recipe(
        "Messages for a time: delivered ones, and some that are due in a day.",
        topics=(Topic("T"), Topic("Soon", 5, delay_s=2), Topic("Late", 5, delay_s=86_400)),
    ),
    "rocksdb-store": Recipe(
        "Timer messages, half messages and index entries in RocksDB, in rocksdbstore/.",
        {
            "timerRocksDBEnable": "true",
            "transRocksDBEnable": "true",
            "transWriteOriginTransHalfEnable": "false",
            "indexRocksDBEnable": "true",
        },
        topics=(
            Topic("T", 6, unique=True),
            Topic("Late", 4, delay_s=86_400, unique=True),
            Topic("Orders", 3, unique=True, half=True),
        ),
    ),
    "long-topic": Recipe(
        "A retry topic of more than 127 bytes: its records are of the second version. (5.5.0 takes no such group.)",
        NO_WHEEL,
        version="5.3.3",
        back="readers-of-a-long-name-" * 7,
    ),
    "property-crc": Recipe("A CRC of the properties in each record.", {**NO_WHEEL, "enabledAppendPropCRC": "true"}),
    "compaction": Recipe(
        "A topic that was compacted twice and was sent more since, beside a plain one.",
        COMPACTED,
        TO_COMPACT,
        compactions=2,
    ),
    "compaction-5.3.3": Recipe("The same by 5.3.3.", COMPACTED, TO_COMPACT, compactions=2, version="5.3.3"),
    "dledger": Recipe(
        "A log in DLedger's entries.",
        {**NO_WHEEL, "enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerSelfId": "n0"},
    ),
    "controller": Recipe("A broker under a controller.", {**NO_WHEEL, "enableControllerMode": "true"}, controller=True),
    "tiered": Recipe(
        "A broker whose older messages go to tiered files.",
        {
            **NO_WHEEL,
            "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
            "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
            "tieredStorageLevel": "FORCE",
            "tieredStoreGroupCommitTimeout": 1_000,
            "tieredStoreCommitLogMaxSize": 1_000,
            "tieredStoreConsumeQueueMaxSize": 160,
            "tieredStoreIndexFileMaxHashSlotNum": 20,
            "tieredStoreIndexFileMaxIndexNum": 80,
        },
        tiered=True,
    ),
}


def _mixed(version: str, *, killed: bool) -> Recipe:
    """Of the proof: batch queues, timer messages, property CRCs; the killed one under a controller, with two epochs."""
    settings = {**TINY, "enableControllerMode": "true"} if killed else TINY
    return Recipe(
        "Plain topics, a batch topic, timer messages, property CRCs"
        + ("; under a controller, started twice, and killed." if killed else "; closed cleanly."),
        settings,
        topics=(
            Topic("T", 45 if killed else 70),
            Topic("Orders", 30),
            Topic("B", 32, "+queue.type=BatchCQ", batch=4),
            Topic("Soon", 6, delay_s=2),
            Topic("Late", 12, delay_s=86_400),
        ),
        controller=killed,
        killed=killed,
        before=settings if killed else None,
        version=version,
    )


FOR_THE_PROOF = {
    f"{how}-{version}": _mixed(version, killed=how == "crashed")
    for version in ("5.3.3", "5.5.0")
    for how in ("mixed", "crashed")
}


def main(argv: list[str]) -> int:
    """Makes the stores named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat.generate5", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of: " + ", ".join([*RECIPES, *FOR_THE_PROOF]))
    parser.add_argument("--into", type=Path, help="a directory (fixtures/rocketmq5, or fixtures/proof)")
    given = parser.parse_args(argv)
    for name in given.names or [*RECIPES, *FOR_THE_PROOF]:
        into = given.into or (PROOF if name in FOR_THE_PROOF else INTO)
        into.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="rstore-fixture-") as work:
            generate(name, Path(work), into)
    return 0


def generate(name: str, work: Path, into: Path) -> None:
    """Makes one store."""
    recipe, store = (RECIPES | FOR_THE_PROOF)[name], work / name
    apache = toolchain.apache_broker5(recipe.version)
    settings = {**SMALL, **recipe.settings}
    own: dict[str, object] = {"brokerName": "broker-a", "tieredStoreFilePath": work / "older"}
    with ExitStack() as stack:
        port = real_broker.free_port(8)
        said = ""
        if recipe.controller:
            said = (
                "enableControllerInNamesrv=true\ncontrollerDLegerGroup=group1\ncontrollerDLegerSelfId=n0\n"
                f"controllerDLegerPeers=n0-127.0.0.1:{port + 3}\ncontrollerStorePath={work / 'controllers'}\n"
            )
            own["controllerAddr"] = f"127.0.0.1:{port + 3}"
        names = stack.enter_context(real_broker.name_server(work / "names", settings=said, apache=apache))
        own["dLegerPeers"] = f"n0-127.0.0.1:{port + 2}"
        lines = "".join(f"{key}={value}\n" for key, value in {**settings, **own}.items())
        options = {"port": port, "java_options": recipe.java, "apache": apache}
        if recipe.before is not None:
            first = "".join(f"{key}={value}\n" for key, value in {**SMALL, **recipe.before, **own}.items())
            with real_broker.broker(store, names, first, **options) as broker:
                asyncio.run(_send(broker.broker, recipe, made=False))
        broker = stack.enter_context(real_broker.broker(store, names, lines, **options))
        made = recipe.before is not None
        for number in range(recipe.compactions):
            asyncio.run(_send(broker.broker, recipe, number, made=made or number > 0))
            _until_compacted(store, recipe, number)
        asyncio.run(_send(broker.broker, recipe, recipe.compactions, made=made or recipe.compactions > 0))
        if recipe.tiered:
            _until_tiered(work / "older", recipe)
        in_rocksdb = any(topic.half for topic in recipe.topics)
        if in_rocksdb:  # nothing on disk says when it has taken all: it keeps its write-ahead log in memory
            time.sleep(5)
        if recipe.killed:
            broker.kill()
    if in_rocksdb:
        _demand_in_rocksdb(store, recipe)
    for pattern in LEFT_OUT:
        for file in store.glob(pattern):
            file.unlink()
    packed = fixtures.pack(store, name, int(time.time()), into)
    beside = {}
    if recipe.tiered:
        files = f"{name}-files"
        (work / "older").rename(work / files)
        beside = {"files": fixtures.sha256(fixtures.pack(work / files, files, int(time.time()), into))}
    manifest = {
        "what": recipe.what,
        "generator": "tests/compat/generate5.py",
        "command": f"python -m tests.compat.generate5 {name}",
        "rocketmq": apache.version,
        "java": toolchain.java_version(),
        "settings": settings,
        "closed": "killed" if recipe.killed else "cleanly",
        "leftOut": list(LEFT_OUT),
        "messages": {
            topic.name: topic.count * (1 + recipe.compactions if topic.keys else 1) for topic in recipe.topics
        },
        "sha256": fixtures.sha256(packed),
        **beside,
    }
    (into / f"{name}.manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {packed.stat().st_size} bytes packed", flush=True)


async def _send(address: str, recipe: Recipe, number: int = 0, *, made: bool) -> None:
    """`number`: of the sends, of which all but the first are of what is compacted alone. `made`: the topics are there;
    the type of a topic's queues can't be given again.
    """
    async with await RemotingClient.connect(address) as client:
        for group in dict.fromkeys([*(one[0] for one in recipe.offsets), *([recipe.back] if recipe.back else [])]):
            given = {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
            body = json.dumps(given).encode()
            answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body, timeout_s=20)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        topics = [topic for topic in recipe.topics if topic.keys or not number]
        for topic in topics:
            begin = number * topic.count
            await make_topic(client, replace(topic, attributes="") if made else topic)
            places = [await put(client, topic, at) for at in range(begin, begin + topic.count, topic.batch)]
            for place in places[:SENT_BACK] if recipe.back else []:
                await _send_back(client, recipe.back, topic.name, place)
        for topic in topics:
            for queue_id in range(2):
                await until_there(client, replace(topic, count=(number + 1) * topic.count), queue_id)
        if recipe.back:
            retried = Topic(f"%RETRY%{recipe.back}", SENT_BACK * len(topics))
            await until_there(client, retried, 0, queues=1)
        for group, name, queue_id, offset in recipe.offsets:
            told = {"consumerGroup": group, "topic": name, "queueId": str(queue_id), "commitOffset": str(offset)}
            answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, told, timeout_s=20)
            assert answer.code == ResponseCode.SUCCESS, answer.remark


async def make_topic(client: RemotingClient, topic: Topic) -> None:
    """Makes a topic of two queues."""
    given = {
        "topic": topic.name, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": topic.attributes,
    }  # fmt: skip
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, given, timeout_s=20)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _send_back(client: RemotingClient, group: str, topic: str, place: int) -> None:
    """As a consumer of the group does with the message at a physical offset; it is given again a second later."""
    fields = {"offset": str(place), "group": group, "delayLevel": "1", "originTopic": topic, "maxReconsumeTimes": "16"}
    answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_s=20)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def put(client: RemotingClient, topic: Topic, at: int, **more: str) -> int:
    """Puts message (or batch) `at` of a topic; its physical offset, of a batch the first's. `more`: properties."""
    key = f"{topic.name}-{at % topic.keys if topic.keys else at}"
    said = more | {"KEYS": key, "TAGS": "even" if at % 4 < 2 else "odd"}
    if topic.delay_s:
        said["TIMER_DELAY_SEC"] = str(topic.delay_s)
    ext = {
        "a": "writers", "b": topic.name, "c": "TBW102", "d": "2", "e": str(at // topic.batch % 2), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties.join(said), "j": "0",
        "k": "false", "m": str(topic.batch > 1).lower(), "n": "broker-a",
    }  # fmt: skip
    if topic.unique:
        said["UNIQ_KEY"] = f"{topic.name}-{at:04}-unique"
    if topic.half:
        said |= {"TRAN_MSG": "true", "PGROUP": "writers"}
    ext["i"] = properties.join(said)
    if topic.batch > 1:  # with a UNIQ_KEY, as clients send it, the batch becomes one record
        ext["i"] = properties.join({"UNIQ_KEY": f"{at:032X}"})
    code, body = RequestCode.SEND_MESSAGE_V2, _body(topic, at)
    if topic.batch > 1:
        code, body = RequestCode.SEND_BATCH_MESSAGE, b"".join(_inner(topic, at + i) for i in range(topic.batch))
    until = time.monotonic() + WAIT_S
    while True:
        answer = await client.ask(code, ext, body, timeout_s=20)
        if answer.code == ResponseCode.SUCCESS:
            return int(answer.fields["msgId"][16:32], 16)
        assert time.monotonic() < until, f"{answer.code} {answer.remark}"  # a new leader takes its time
        await asyncio.sleep(0.2)


def _until_tiered(older: Path, recipe: Recipe) -> None:
    """Waits until the tiered queues have a unit of 20 bytes for each message."""
    wanted = sum(topic.count for topic in recipe.topics) * 20
    until = time.monotonic() + 2 * WAIT_S
    while sum(file.stat().st_size for file in older.glob("*/*/*/*/CONSUME_QUEUE/*")) < wanted:
        assert time.monotonic() < until, sorted(older.glob("*/*/*/*/*/*"))
        time.sleep(0.2)


def _until_compacted(store: Path, recipe: Recipe, number: int) -> None:
    """Waits until all files but the last of each compacted queue have been compacted."""
    place = store / "compaction" / "position-checkpoint"
    until = time.monotonic() + WAIT_S
    for topic in (topic for topic in recipe.topics if topic.keys):
        sent = (number + 1) * topic.count // 2
        for queue_id in range(2):
            done = -1
            while done < sent - UNITS_OF_A_FILE - 1:
                assert time.monotonic() < until, (place.read_text() if place.exists() else "no file", done)
                time.sleep(0.2)
                if place.exists() and place.stat().st_size:
                    done = json.loads(place.read_text())["queueOffsetMap"].get(f"{topic.name}_{queue_id}", -1)


def _demand_in_rocksdb(store: Path, recipe: Recipe) -> None:
    """That the broker's own database has an entry of each message: of its time, its transaction, its keys."""
    wanted = {
        "default": sum(topic.count for topic in recipe.topics),
        "timer": sum(topic.count for topic in recipe.topics if topic.delay_s),
        "trans": sum(topic.count for topic in recipe.topics if topic.half),
    }
    with RocksDatabase(Disk(), str(store / "rocksdbstore")) as database:
        there = {name: sum(1 for item in database.items(name) if item.key[:1] == b"\0") for name in wanted}
    assert all(there[name] >= number for name, number in wanted.items()), (there, wanted)


def _body(topic: Topic, at: int) -> bytes:
    return f"{topic.name}-{at:04}-".encode() * 4


def _inner(topic: Topic, at: int) -> bytes:
    """A message of a batch. Source: MessageDecoder#encodeMessage."""
    body, said = _body(topic, at), properties.join({"KEYS": f"{topic.name}-{at}"}).encode()
    size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(said)
    head = struct.pack(">iiiii", size, 0, zlib.crc32(body) & 0x7FFFFFFF, 0, len(body))
    return head + body + struct.pack(">h", len(said)) + said


async def until_there(client: RemotingClient, topic: Topic, queue_id: int, *, queues: int = 2) -> None:
    """Waits until the queue has all that is due soon."""
    if topic.delay_s > 60 or topic.half:
        return
    wanted = sum(1 for at in range(0, topic.count, topic.batch) if at // topic.batch % queues == queue_id) * topic.batch
    until = time.monotonic() + WAIT_S
    while True:
        answer = await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic.name, "queueId": str(queue_id)})
        if answer.code == ResponseCode.SUCCESS and int(answer.fields["offset"]) >= wanted:
            return
        assert time.monotonic() < until, (topic.name, queue_id, answer.fields, answer.remark, wanted)
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
