"""What is fuzzed: each decoder with real inputs to start from.

A target takes bytes and may end in two ways: a value, or a typed RStoreError. Anything else is a bug.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from engine import config
from engine.broker_conf.report import read_conf
from engine.errors import FormatError
from engine.format import (
    batch,
    checkpoint,
    epoch_file,
    fastjson,
    hosts,
    index_file,
    message,
    properties,
    queue_ext,
    queue_unit,
    rocksdb_config,
    rocksdb_log,
    rocksdb_queue,
    rocksdb_store,
    timer_check,
    timer_log,
    timer_wheel,
)
from engine.format.batch import BatchItem
from engine.format.hosts import Host
from engine.format.judge import Row
from engine.format.message import Message
from engine.log import sql
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.frames import columns_of
from engine.log.incoming import IncomingLog
from engine.log.scan import Damage, RecordBatch, Scanner
from engine.log.walk import walk
from engine.wire import command, frames, ha, ha_controller
from tests.fuzz import admin, hostile
from tests.support import logs
from tests.support.logs import MemoryLog

V6 = Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)
SEGMENT = 8192


@dataclass(frozen=True)
class Target:
    """A decoder, what it is fed at first, and the most bytes it may hold for each byte of input."""

    name: str
    decode: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    bytes_per_byte: int = 16


def _messages() -> list[Message]:
    delayed = {"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "0", "TAGS": "a"}
    multi = {"INNER_MULTI_DISPATCH": "%LMQ%a,b", "INNER_MULTI_QUEUE_OFFSET": "1,2", "KEYS": "a b"}
    return [
        Message("Topic", b"hello", properties={"TAGS": "标签", "KEYS": "k1  k2 🚀", "UNIQ_KEY": "0" * 32}),
        Message("T", b"", flag=-1, born_host=V6),
        Message("SCHEDULE_TOPIC_XXXX", b"x" * 200, queue_id=2, properties=delayed, store_host=V6),
        Message("T" * 127, b"{}", born_host=V6, store_host=V6, sys_flag=0x30C, properties=multi),
        Message("T", bytes(range(256)), sys_flag=8, properties={"WAIT": "false"}),
    ]


@functools.cache
def _log() -> bytes:
    """Two segments: enough of everything, small enough to be scanned a million times."""
    built = logs.build(_messages() * 2 + [Message("T", b"y" * 6000), *_messages()], SEGMENT)
    return b"".join(bytes(data) for data in built.log.files.values())


def _as_log(data: bytes) -> MemoryLog:
    return MemoryLog({at: bytearray(data[at : at + SEGMENT]) for at in range(0, len(data), SEGMENT)})


def _walk(data: bytes) -> object:
    rows: list[Row] = []
    stop = walk(data, 0, len(data), rows)
    for row in rows:
        found = message.decode(data, row.position)
        assert found.total_size == row.size, "walk and decode don't agree"
        assert found.crc_ok, "walk took a record with a wrong CRC"
    assert sum(row.size for row in rows) == stop.position, "rows that don't lie side by side"
    return stop


def _scan(data: bytes) -> object:
    """With and without resume, everything derived; no event overlaps the one before, and resume misses nothing."""
    deriver = Deriver(DeriveRules(multi_dispatch=True, lmq=True), QueueNumbers())
    log = _as_log(data)
    at = 0
    for event in Scanner(log, max_message_size=4096, window=1024).scan(0, resume=True):
        start, end = (
            (event.start, event.end) if isinstance(event, RecordBatch) else (event.offset, event.offset + event.length)
        )
        assert at <= start < end <= len(data), "events that overlap or are empty"
        at = end
        if isinstance(event, RecordBatch):
            deriver.derive(event)
    assert at == len(data), "the scan ended before the log"
    assert log.longest <= len(data) + (1 << 17), "a read larger than the log and the longest tail of a record"
    return at


def _transfers() -> bytes:
    pieces = (b"", b"abc", bytes(300))
    return b"".join(ha.encode_header(at * 1000, len(body)) + body for at, body in enumerate(pieces))


def _greeting(data: bytes) -> object:
    """A master's greeting, as a slave reads it from a connection."""
    head, rest = data[: ha_controller.GREETED.size], data[ha_controller.GREETED.size :]
    if len(head) < ha_controller.GREETED.size:
        raise FormatError("the connection was closed")
    size = ha_controller.epochs_size(head)
    if len(rest) < size:
        raise FormatError("the connection was closed")
    return ha_controller.decode_greeting(head, rest[:size])


def _greetings() -> bytes:
    epochs = ha_controller.EPOCH.pack(1, 0) + ha_controller.EPOCH.pack(4, 1 << 20)
    return ha_controller.GREETED.pack(ha_controller.HANDSHAKE, len(epochs), 1 << 22, 4) + epochs


def _controlled() -> bytes:
    pieces = (b"", b"abc", bytes(300))
    return b"".join(
        ha_controller.HEADER.pack(ha_controller.TRANSFER, len(body), at * 1000, 1, 0, 0) + body
        for at, body in enumerate(pieces)
    )


def _incoming(data: bytes) -> object:
    """The same in one piece and in small ones; what is given on is a beginning of it, and sound by the scanner."""
    whole, pieces = IncomingLog(SEGMENT, 4096), IncomingLog(SEGMENT, 4096)
    whole.begin(0)
    pieces.begin(0)
    given = bytes(whole.feed(data))
    assert given == b"".join(bytes(pieces.feed(data[at : at + 97])) for at in range(0, len(data), 97)), "pieces differ"
    assert data.startswith(given), "given on what did not come"
    padded = given + bytes(-len(given) % SEGMENT)
    events = list(Scanner(_as_log(padded), max_message_size=4096, window=1024).scan(0, len(given)))
    assert not [one for one in events if isinstance(one, Damage)], "given on what is not sound"
    if whole.fault is not None:  # in pieces the rest of a record is waited for before it is judged
        assert pieces.fault is not None or pieces.held, "a fault in one piece alone"
    return given


def _frames(data: bytes) -> object:
    """In one piece and byte by byte the same commands; each is written again as what is read the same."""
    found = list(frames.FrameReader().feed(data))
    pieces = frames.FrameReader()
    assert found == [one for at in range(len(data)) for one in pieces.feed(data[at : at + 1])], "pieces differ"
    for one in found:
        again = b"".join(frames.encode(one._replace(language=one.language or 0)))
        assert next(frames.FrameReader().feed(again)).fields == one.fields, "not read as it was written"
    return found


def _commands() -> tuple[bytes, ...]:
    """The same request in both serialisations, and two in a row."""
    ext = {"b": "Topic", "e": "-1", "i": "TAGS\x01标签\x02KEYS\x01🚀", "d": "4"}
    kinds = command.SerializeType
    made = [command.RemotingCommand(310, 7, 0, "why", ext, b"body", serialize=kind) for kind in kinds]
    single = [b"".join(frames.encode(one)) for one in made]
    return (*single, b"".join(single))


def _header(kind: command.SerializeType) -> Callable[[bytes], object]:
    return lambda data: command.decode_header(data, kind, b"")


def _text(decode: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: decode(data.decode("utf-8", "replace"))


def _config_entry(data: bytes) -> object:
    """The first byte tells where the key ends."""
    end = 1 + (data[0] if data else 0)
    return rocksdb_config.decode_v2(data[1:end], data[end:])


def _store_entry(data: bytes) -> object:
    """The first byte tells the family, the second where the key ends."""
    family = tuple(rocksdb_store.PROGRESS)[data[0] % 3 if data else 0]
    end = 2 + (data[1] if len(data) > 1 else 0)
    return rocksdb_store.decode(family, data[2:end], data[end:])


def _seeds() -> dict[str, tuple[bytes, ...]]:
    records = [bytes(record) for record in logs.build(_messages(), 1 << 16).records]
    return {
        "records": tuple(records),
        "batches": (
            batch.encode([]),
            batch.encode([BatchItem(b"a"), BatchItem(b"body" * 20, -5, b"TAGS\x01a\x02KEYS\x01b c")] * 3),
        ),
        "rocksdb-config": (
            b"\x07\x01\x00\x03\x02\x00\x01T\x01{}",
            b"\x10\x01\x00\x01\x02\x00\x01g\x01\x00\x01T\x01\x00\x00\x00\x03" + bytes(8),
            b"\x10\x01\x00\x04\x01data_version" + bytes(24),
        ),
        "rocksdb-store": (
            b"\x00\x19" + struct.pack(">q9sq", 1, b"@T@K@w@u@", 7) + struct.pack(">q", 5),
            b"\x01\x09" + struct.pack(">q1s", 1, b"u") + struct.pack(">iq", 9, 7),
            b"\x02\x0c" + struct.pack(">q4s", 1, b"@T@u") + struct.pack(">ii", 0, 9),
            b"\x00\x0clastOffsetPy" + bytes(8),
        ),
        "properties": tuple(properties.join(put.properties).encode() for put in _messages()),
    }


@functools.cache
def targets() -> dict[str, Target]:
    """All of them, by name."""
    seeds = _seeds()
    units = b"".join(queue_unit.QueueUnit(i * 200, 200, -i).encode() for i in range(5))
    conf = b"brokerRole = ASYNC_MASTER\nflushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\n"
    conf += b"# \\u00e9\nx\\u0041 : y\nenableLmq=true\n"
    json = b'{"offsetTable":{"t@g":{0:22,1:26},"%RETRY%g@g":{-1:0}},"dataVersion":{"counter":1},"s":"a\\"{1:\\u00e9"}'
    ids = tuple(message.make_msg_id(host, 270549).encode() for host in (V6, Host(b"\x7f\0\0\1", 10911)))
    found = [
        Target("message", message.decode, seeds["records"]),
        Target("batch", batch.decode, seeds["batches"], 64),
        Target("properties", _text(properties.parse), seeds["properties"], 64),
        Target("queue-unit", queue_unit.decode, (units,)),
        Target("queue-units", lambda data: queue_unit.decode_many(data).tolist(), (units,), 64),
        Target(
            "queue-ext", queue_ext.decode, (queue_ext.ExtUnit(-5, 1_700_000_000_000, b"\x55" * 8).encode(), bytes(64))
        ),
        Target("checkpoint", checkpoint.decode, (checkpoint.Checkpoint(5, 6, 7).encode() + bytes(40),)),
        Target("rocksdb-unit-key", rocksdb_queue.decode_unit_key, (rocksdb_queue.UnitKey(b"T", 1, 2).encode(),)),
        Target("rocksdb-end-key", rocksdb_queue.decode_offset_key, (rocksdb_queue.OffsetKey(b"T", 1, True).encode(),)),
        Target("rocksdb-unit", rocksdb_queue.decode_unit, (rocksdb_queue.RocksDBUnit(1, 2, 3, 4).encode(),)),
        Target("rocksdb-end", rocksdb_queue.decode_offset, (rocksdb_queue.encode_offset(1, 2),)),
        Target("rocksdb-store", _store_entry, seeds["rocksdb-store"]),
        Target("rocksdb-config", _config_entry, seeds["rocksdb-config"]),
        Target("rocksdb-log", rocksdb_log.torn_at, (b"\0\0\0\0\5\0\1abcde" * 2, b"\0\0\0\0\5\0\2abcde")),
        Target("timer-unit", timer_log.decode, (timer_log.TimerUnit(52, -1, 1, 5, 6, 7, 8, 9).encode() * 2,)),
        Target("timer-slot", timer_wheel.decode, (timer_wheel.TimerSlot(5, 0, 52, 2).encode(),)),
        Target("timer-check", timer_check.decode, (timer_check.TimerCheck(5, 6, 7).encode() + bytes(8),)),
        Target("epochs", epoch_file.decode, (b"2\n0\n1-0\n7-109951\n", b"1\n0\n7-" + b"1" * 19 + b"\n"), 64),
        Target("index-header", index_file.decode_header, (index_file.IndexHeader(1, 2, 3, 4, 5, 6).encode(),)),
        Target(
            "index-entry",
            lambda data: index_file.decode_entry(data, len(data) % 7),
            (index_file.IndexEntry(9, 8, 7, 6).encode() * 2,),
        ),
        Target("fastjson", _text(fastjson.loads), (json, b"[1,2,{3:4}]"), 128),
        Target("host", _text(hosts.parse), (b"192.0.2.1:10911", b"[2001:db8::1]:10911", b"2001:db8::1|10911")),
        Target("msg-id", _text(message.parse_msg_id), ids),
        Target("config", _text(config.parse), (conf,), 64),
        Target("broker.conf", lambda data: read_conf(data).to_json(), (conf,), 256),
        Target("ha-transfers", lambda data: list(ha.TransferReader().feed(data)), (_transfers(),)),
        Target("ha-greeting", _greeting, (_greetings(),)),
        Target("ha-controlled", lambda data: list(ha_controller.ControllerReader().feed(data)), (_controlled(),)),
        Target("ha-log", _incoming, (_log().rstrip(b"\0"), _log()[:SEGMENT]), 32),
        Target("ha-reports", lambda data: ha.AckReader().feed(data), (ha.encode_ack(4096) * 3,)),
        Target("wire-frames", _frames, _commands(), 64),
        Target("wire-json", _header(command.SerializeType.JSON), (_commands()[0][8:-4],), 128),
        Target("wire-binary", _header(command.SerializeType.ROCKETMQ), (_commands()[1][8:-4],), 64),
        Target("admin-frames", admin.judge, admin.seeds(), 128),
        Target("wire-batch", columns_of, seeds["batches"], 64),
        Target(
            "sql", _text(sql.compile_expression), (b"(a BETWEEN 1 AND 3 AND b = 'x') OR c IS NOT NULL", b"a>1.5"), 512
        ),
        Target("hostile-manifest", hostile.manifest, hostile.manifest_seeds(), 128),
        Target("hostile-store", hostile.store, hostile.store_seeds(), 1024),
        Target("walk", _walk, (b"".join(seeds["records"]),)),
        Target("scan", _scan, (_log(),), 32),
    ]
    return {target.name: target for target in found}


def rng(target: str, seed: int, part: int = 0) -> random.Random:
    """The random numbers of one part of one target's run: the same every time."""
    return random.Random(f"{target}/{seed}/{part}")
