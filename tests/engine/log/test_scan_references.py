"""The scanner and the record format against what a real 4.9.8 wrote and read: every record, field by field."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format import batch, hosts, message, properties
from engine.format.message import Message, StoredMessage
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment
from tests.support import references
from tests.support.references import Line

Store = Callable[[str], Path]
pytestmark = pytest.mark.parametrize("name", references.ALL)


def open_log(store: Path) -> ClosedLog:
    files = sorted((store / "commitlog").iterdir())
    return ClosedLog(Disk(), [Segment(int(file.name), file.stat().st_size, str(file)) for file in files])


def scanned(store: Path, window: int) -> Iterator[StoredMessage | Blank | Damage]:
    with open_log(store) as log:
        for event in Scanner(log, window=window).scan(0):
            if isinstance(event, RecordBatch):
                yield from (message.decode(event.record(i)) for i in range(len(event)))
            else:
                assert isinstance(event, Blank | Damage)
                yield event


def as_line(found: StoredMessage) -> Line:
    """A record in the words of the dump."""
    known = found.properties
    return {
        "type": "log",
        "queueOffset": found.queue_offset,
        "physicalOffset": found.physical_offset,
        "size": found.total_size,
        "bodyCRC": found.body_crc,
        "topic": found.topic,
        "queueId": found.queue_id,
        "tags": known.get("TAGS"),
        "keys": known.get("KEYS"),
        "msgId": found.msg_id,
        "uniqKey": known.get("UNIQ_KEY"),
        "sysFlag": found.sys_flag,
        "flag": found.flag,
        "bornTimestamp": found.born_timestamp,
        "bornHost": found.born_host,
        "storeTimestamp": found.store_timestamp,
        "storeHost": found.store_host,
        "reconsumeTimes": found.reconsume_times,
        "preparedTransactionOffset": found.prepared_transaction_offset,
        "bodyLen": len(found.body),
        "bodyMd5": hashlib.md5(found.body).hexdigest(),
        "propertiesString": found.properties_raw.decode(),
        "properties": known,
    }


def expected(line: Line) -> Line:
    return {**line, "bornHost": hosts.parse(line["bornHost"]), "storeHost": hosts.parse(line["storeHost"])}


@pytest.mark.parametrize("window", [4 << 20, 4096])
def test_every_record_and_blank(
    name: str, window: int, reference_store: Store, unchanged: Callable[[Path], None]
) -> None:
    store = reference_store(name)
    unchanged(store)
    lines = references.dump(name, "log", "blank")
    *events, last = scanned(store, window)
    assert len(events) == len(lines)
    for event, line in zip(events, sorted(lines, key=lambda line: line["physicalOffset"]), strict=True):
        if isinstance(event, Blank):
            assert line == {"type": "blank", "physicalOffset": event.offset, "size": event.length}
        else:
            assert isinstance(event, StoredMessage)
            assert event.crc_ok
            assert as_line(event) == expected(line)
    assert isinstance(last, Damage)
    assert last.offset == references.dump(name, "afterLoad")[0]["maxPhyOffset"]


def test_encoding_what_was_read_gives_the_same_bytes(name: str, reference_store: Store) -> None:
    with open_log(reference_store(name)) as log:
        for event in Scanner(log).scan(0):
            if not isinstance(event, RecordBatch):
                continue
            for i in range(len(event)):
                found = message.decode(event.record(i))
                record = message.encode(found.to_message(), properties_raw=found.properties_raw)
                message.patch(
                    record,
                    0,
                    queue_offset=found.queue_offset,
                    physical_offset=found.physical_offset,
                    store_timestamp=found.store_timestamp,
                )
                assert record == event.record(i)


def test_the_batches_that_were_put_are_the_records_that_were_written(name: str, reference_store: Store) -> None:
    """Items of a batch through the client's encoding and back are what stands in the log, in a row."""
    by_body: dict[bytes, list[StoredMessage]] = {}
    for event in scanned(reference_store(name), 4 << 20):
        if isinstance(event, StoredMessage):
            by_body.setdefault(event.body, []).append(event)
    batches = [put for put in references.puts(name) if put["kind"] == "batch"]
    assert batches or name.endswith("lmq")
    for put in batches:
        items = [
            batch.BatchItem(base64.b64decode(inner["body"]), inner["flag"], inner["propertiesString"].encode())
            for inner in put["inner"]
        ]
        for item in batch.decode(batch.encode(items)):
            assert any(
                record.flag == item.flag
                and record.topic == put["topic"]
                and record.properties_raw.startswith(item.properties_raw)
                for record in by_body[item.body]
            )


def test_properties_are_joined_as_apache_joins_them(name: str) -> None:
    """The put's ordered properties joined = the string that Apache made of them."""
    checked = 0
    for put in references.puts(name):
        if put["kind"] != "batch" and all("\x01" not in key + value for key, value in put["properties"].items()):
            text = put["propertiesString"]
            assert properties.parse(text) == {k: v for k, v in put["properties"].items() if k and v}
            if text.count("\x02") + 1 == len(put["properties"]):
                assert properties.join(put["properties"]) == text
                checked += 1
    assert checked > 20


def test_a_message_put_again_is_the_same_record(name: str, reference_store: Store) -> None:
    first = next(iter(scanned(reference_store(name), 4 << 20)))
    assert isinstance(first, StoredMessage)
    assert isinstance(first.to_message(), Message)
    assert message.decode(message.encode(first.to_message(), first.properties_raw)).body == first.body
