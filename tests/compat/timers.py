"""Timer messages of real RocketMQ 5 brokers: sent, waited for, and counted in the log that a broker left."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from engine.client.connection import RemotingClient
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import properties
from engine.format.message import StoredMessage, decode
from engine.inspect.dump.timer_due import dump_due
from engine.inspect.store.survey import survey
from engine.inspect.store.timer_log import timer_files
from engine.inspect.store.timer_wheel import read_timer_check
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.wire.codes import RequestCode, ResponseCode

WAIT_S = 120.0


async def make_topic(client: RemotingClient, topic: str) -> None:
    """One queue."""
    given = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "",
    }  # fmt: skip
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, given, timeout_s=20)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send(client: RemotingClient, topic: str, count: int, delay_ms: int, *, first: int = 0) -> None:
    """Messages with the keys TOPIC-0 to TOPIC-(count − 1) that are due after `delay_ms`; 0: at once."""
    for at in range(first, first + count):
        said = {"KEYS": f"{topic}-{at}", "UNIQ_KEY": f"{hash(topic) & 0xFFFFFFFF:08X}{at:024X}"}
        if delay_ms:
            said["TIMER_DELAY_MS"] = str(delay_ms)
        ext = {
            "a": "writers", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": properties.join(said), "j": "0",
            "k": "false", "m": "false", "n": "broker-a",
        }  # fmt: skip
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, ext, f"{topic}-{at:04}".encode() * 8, timeout_s=20)
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"


async def until(client: RemotingClient, topic: str, count: int) -> None:
    """Until the topic has so many messages."""
    end = time.monotonic() + WAIT_S
    while True:
        answer = await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}, timeout_s=WAIT_S)
        if answer.code == ResponseCode.SUCCESS and int(answer.fields["offset"]) >= count:
            return
        assert time.monotonic() < end, (topic, answer.fields, answer.remark, count)
        await asyncio.sleep(0.1)


def records(root: Path) -> list[StoredMessage]:
    """Every sound record of a store's log, in its order."""
    files = survey(Disk(), StoreConfig(store_path_root_dir=root))
    with ClosedLog(Disk(), files.log) as log:
        scanner = Scanner(log)
        return [
            decode(event.record(i))
            for event in scanner.scan(files.log[0].offset, None, resume=True)
            if isinstance(event, RecordBatch)
            for i in range(len(event))
        ]


def delivered(root: Path, topic: str) -> Counter[str]:
    """How often each message is in its topic, by its key."""
    return Counter(one.properties["KEYS"] for one in records(root) if one.topic == topic)


def waiting(root: Path) -> Counter[str]:
    """How often each message that waits will be delivered, by its key."""
    files = survey(Disk(), StoreConfig(store_path_root_dir=root))
    check = read_timer_check(Disk(), files)
    rows = list(dump_due(Disk(), files, timer_files(Disk(), files), check))
    assert all(row.kind == "message" and row.message is not None for row in rows)
    return Counter(row.message.properties["KEYS"] for row in rows if row.message is not None)
