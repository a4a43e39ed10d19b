"""What the interop tests share: stores that rstore writes, and what Apache must read from them.

What is expected comes from the puts themselves (and the store's answers: where, when), never from reading a store.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.config import StoreConfig, apache_key
from engine.format import hosts, properties, sysflag
from engine.format.hosts import Host
from engine.log.results import PutResult
from engine.store import MessageStore
from tests.compat.apache import Line, Offsets, Opened, Queue, Sizes
from tests.support import replay, stores

KEYS = {apache_key(field.name): field.name for field in dataclasses.fields(StoreConfig)}
LEVELS = 18
MOST = 64
"""What a query gives at most (maxMsgsNumBatch)."""

IN_A_RECORD = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "flag", "sysFlag", "reconsumeTimes")
IN_A_RECORD += ("bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "preparedTransactionOffset")
IN_A_RECORD += ("bodyLen", "bodyMd5", "bodyCRC", "propertiesString")
"""Every field of a record, by the names of the dumps."""


def settings(root: Path, sizes: Sizes, more: Line | None = None) -> StoreConfig:
    """Our settings for a store with these sizes; `more` by Apache's names."""
    given = {**sizes.settings(), **(more or {})}
    return StoreConfig(store_path_root_dir=root).with_changes(**{KEYS[key]: value for key, value in given.items()})


def put_all(store: MessageStore, puts: Iterable[Line]) -> list[Line]:
    """Put lines of a puts file; what Apache must read, a line for each record, in log order."""
    expected: list[Line] = []
    offsets: dict[int, int] = {}
    for line in puts:
        put = line
        if "preparedOf" in put:
            put = {**put, "preparedTransactionOffset": offsets[put["preparedOf"]]}
        result = replay.put(store, put)
        assert result.ok, result.error
        assert result.append is not None
        offsets[put["i"]] = result.append.physical_offset
        expected += records_of(put, result)
    return expected


def records_of(put: Line, result: PutResult) -> list[Line]:
    """The records that a put becomes, as a dump's lines have them."""
    append = result.append
    assert append is not None
    if put["kind"] == "batch":
        common = properties.join(put["properties"])
        inner = [(one["body"], one["flag"], common_to(one["propertiesString"], common), 0) for one in put["inner"]]
    else:
        inner = [(put["body"], put["flag"], text_of(put), put["preparedTransactionOffset"])]
    topic, queue_id = put["topic"], put["queueId"]
    level = min(int(put["properties"].get("DELAY", 0)), LEVELS)
    if level > 0 and sysflag.is_consumable(put["sysFlag"]):
        topic, queue_id = "SCHEDULE_TOPIC_XXXX", level - 1
    lines = []
    for i, (body64, flag, text, prepared) in enumerate(inner):
        body = base64.b64decode(body64)
        lines.append(
            {
                "topic": topic,
                "queueId": queue_id,
                "queueOffset": append.queue_offset + i if sysflag.is_consumable(put["sysFlag"]) else 0,
                "physicalOffset": append.offsets[i],
                "flag": flag,
                "sysFlag": put["sysFlag"] | v6_flags(put),
                "bornTimestamp": put["bornTimestamp"],
                "bornHost": put["bornHost"],
                "storeTimestamp": append.store_timestamp,
                "storeHost": put["storeHost"],
                "reconsumeTimes": put["reconsumeTimes"],
                "preparedTransactionOffset": prepared,
                "bodyLen": len(body),
                "bodyMd5": hashlib.md5(body).hexdigest(),
                "bodyCRC": zlib.crc32(body) & 0x7FFFFFFF,
                "propertiesString": text,
            }
        )
        end = append.offsets[i + 1] if i + 1 < len(append.offsets) else append.next_offset
        lines[-1]["size"] = end - append.offsets[i]
    return lines


def common_to(own: str, common: str) -> str:
    """The properties of a batch's message: its own, then the batch's."""
    return own + ("\x02" if own and common else "") + common


def text_of(put: Line) -> str:
    """The stored properties of a single message."""
    found = dict(put["properties"])
    level = int(found.get("DELAY", 0))
    if level > 0 and sysflag.is_consumable(put["sysFlag"]):
        found |= {"DELAY": str(min(level, LEVELS)), "REAL_TOPIC": put["topic"], "REAL_QID": str(put["queueId"])}
    return properties.join(found)


def v6_flags(put: Line) -> int:
    """The bits of sysFlag that tell IPv6 hosts."""
    born, stored = (":" in put[name].rsplit("|", 1)[0] for name in ("bornHost", "storeHost"))
    return sysflag.BORN_HOST_V6 * born | sysflag.STORE_HOST_V6 * stored


def host(text: str) -> Host:
    """A host as text, in one form for all: Java writes IPv6 addresses another way than Python."""
    return hosts.parse(text)


def check_log(opened: Opened, expected: Sequence[Line]) -> None:
    """Apache's log has just these records, every field as it was put."""
    assert [line["physicalOffset"] for line in opened.log] == [line["physicalOffset"] for line in expected]
    for found, wanted in zip(opened.log, expected, strict=True):
        for name in IN_A_RECORD:
            if name in ("bornHost", "storeHost"):
                assert host(found[name]) == host(wanted[name]), wanted
            else:
                assert found[name] == wanted[name], (name, found[name], wanted[name])


def check_queues(opened: Opened, expected: Sequence[Line]) -> None:
    """Apache reads every message of the records at its queue offset, none else, and its queues end behind them."""
    wanted = {
        (line["topic"], line["queueId"], line["queueOffset"]): (line["physicalOffset"], line["size"], line["bodyMd5"])
        for line in expected
        if sysflag.is_consumable(line["sysFlag"])
    }
    found = {
        (line["cqTopic"], line["cqQueueId"], line["cqOffset"]): (line["physicalOffset"], line["size"], line["bodyMd5"])
        for line in opened.messages
    }
    assert found == wanted
    assert not opened.of_type("getStatus")


def check_keys(opened: Opened, expected: Sequence[Line]) -> None:
    """Apache finds every message by every key it has: the newest 64 of a key."""
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in expected:
        if sysflag.transaction_type(line["sysFlag"]) == sysflag.TRANSACTION_ROLLBACK:
            continue
        found = properties.parse(line["propertiesString"])
        words = {found.get("UNIQ_KEY"), *properties.key_words(found.get("KEYS"))} - {None}
        for word in words:
            wanted[line["topic"], str(word)].append(line["physicalOffset"])
    assert wanted
    for key, offsets in wanted.items():
        # Only hashes are compared by Apache: others may be among them
        assert set(offsets[-MOST:]) <= set(opened.queries[key]), key


def our_queues(store: MessageStore) -> set[Queue]:
    """Every queue with its offsets."""
    return {Queue(*queue, store.min_offset(*queue), store.max_offset(*queue)) for queue in store.queues.queues()}


def our_offsets(store: MessageStore) -> Offsets:
    """The ends of the log."""
    return Offsets(store.log.min_offset, store.log.max_offset)


def bytes_of(store: Path) -> dict[str, str]:
    """A digest of every file of the log and the queues."""
    return {
        str(path.relative_to(store)): stores.digest(path)
        for directory in ("commitlog", "consumequeue", "consumequeue_ext")
        for path in sorted((store / directory).rglob("*"))
        if path.is_file()
    }
