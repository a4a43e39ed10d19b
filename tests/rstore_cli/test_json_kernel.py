"""Lines that the kernel makes are those made from messages, to the last byte, on records of every kind and odd ones."""

from __future__ import annotations

import itertools
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("numba")

import numpy as np

from engine.format import message, properties, sysflag
from engine.format.hosts import Host
from engine.format.message import Message, row_at
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MIN
from engine.log.batch import RecordBatch
from engine.log.kernels import json_lines
from engine.log.kernels.json_lines import LineForm, LineMaker
from engine.log.kernels.walk import fast_walk
from rstore_cli.app import INTERRUPTED, PIPE_CLOSED
from rstore_cli.log_lines import LogLines
from tests.rstore_cli.conftest import process
from tests.rstore_cli.test_log_lines import slow
from tests.support import logs

TOPICS = ("T", "TopicTest", "%RETRY%group", "ü中", 'a"b\\c', "x" * 127, "y" * 200)
PARTS = (
    b"a",
    b"bc",
    b"\x01",
    b"\x01",
    b"\x02",
    b'"',
    b"\\",
    b"\n",
    b"\x00",
    b"\xff",
    "中".encode(),
    b"KEYS",
    b"\xe4\xb8",
)
RAW = (
    b"",
    b"\x02",
    b"a\x01b",
    b"a\x01b\x02",
    b"a\x01b\x02\x02",
    b"\x01b",
    b"a\x01",
    b"a\x01b\x01",
    b"a\x01\x01b",
    b"a",
)
LONGS = (0, 1, -1, 1_700_000_000_000, LONG_MIN, -LONG_MIN - 1)


def bodies(chance: random.Random) -> Iterator[bytes]:
    texts = ("", "plain", '{"a":"b\\n","c":[1,2]}', "control \x00\x1f\x7f\n\t", "中文 ü \U0001f600", "z" * 1000)
    for text in itertools.cycle(texts):
        whole = (text * chance.randrange(1, 4)).encode()
        yield whole
        yield whole[: max(0, len(whole) - 1)] + bytes([chance.randrange(256)])
        yield chance.randbytes(chance.choice((0, 1, 2, 3, 47, 48, 49, 63, 64, 65, 1024)))


def a_record(chance: random.Random, body: bytes, place: int) -> bytes:
    """A record with at least one thing that is odd, every other time."""
    odd = chance.random() < 0.5
    raw = b"".join(chance.choices(PARTS, k=chance.randrange(12))) if odd else None
    if chance.random() < 0.2:
        raw = chance.choice(RAW)
    hosts = [Host(chance.randbytes(16 if chance.random() < 0.1 else 4), chance.randint(INT_MIN, INT_MAX)) for _ in "12"]
    one = Message(
        chance.choice(TOPICS),
        body,
        chance.choice((0, 3, INT_MIN, INT_MAX)),
        {f"k{i}": "v" * i + '"\\\x1f中' for i in range(chance.choice((0, 1, 2, 5, 64, 65)))} | {"TAGS": "A"},
        chance.randint(INT_MIN, INT_MAX),
        chance.choice((0, sysflag.COMPRESSED, sysflag.TRANSACTION_ROLLBACK, 0x7FF & ~sysflag.HOSTS_V6_MASK)),
        chance.choice(LONGS),
        hosts[0],
        hosts[1],
        chance.randint(INT_MIN, INT_MAX),
        chance.choice(LONGS),
    )
    record = message.encode(one, raw)
    message.patch(
        record,
        0,
        queue_offset=chance.choice(LONGS),
        physical_offset=chance.choice((place, place, place, 5, -1, LONG_MIN)),
        store_timestamp=chance.choice(LONGS),
    )
    if chance.random() < 0.1:
        row = row_at(record)
        record[row.topic_position] = 0xFF
    return bytes(record)


def a_batch(chance: random.Random, count: int, base: int) -> RecordBatch:
    data = bytearray()
    for body in itertools.islice(bodies(chance), count):
        data += a_record(chance, body, base + len(data))
    table, _ = fast_walk(bytes(data), 0, len(data))
    assert len(table) == count
    return RecordBatch(base, memoryview(bytes(data)), table)


def joined(maker: LogLines, batch: RecordBatch, topic: bytes | None = None, most: int | None = None) -> bytes:
    made = maker.made(batch, topic, most)
    text = b"".join(bytes(block) for block in made.blocks)
    assert text.count(b"\n") == made.count
    assert all(bytes(block).endswith(b"\n") for block in made.blocks)
    return text


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block", [json_lines.BLOCK, 1 << 14])
def test_whatever_is_stored(seed: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK", block)
    chance = random.Random(seed)
    batch = a_batch(chance, 200, chance.choice((0, 1 << 40)))
    for redact in (False, True):
        maker = LogLines("message", redact=redact, ascii=False)
        lines = slow(batch, redact=redact, ascii=False)
        assert joined(maker, batch) == "".join(lines).encode()
        for most in (0, 1, 57, 200, 300):
            assert joined(maker, batch, None, most) == "".join(lines[:most]).encode()
        ascii_maker = LogLines("message", redact=redact, ascii=True)
        assert joined(ascii_maker, batch) == "".join(slow(batch, redact=redact, ascii=True)).encode()
        for topic in (b"TopicTest", "ü中".encode(), b"\xff", b"", b"none"):
            asked = [line for i, line in enumerate(lines) if batch.topic(i) == topic]
            assert joined(maker, batch, topic) == "".join(asked).encode()
            assert joined(maker, batch, topic, 3) == "".join(asked[:3]).encode()


def test_plain_records_stay_with_the_kernel() -> None:
    put = [
        Message("T", body, 1, {"KEYS": "a b", "TAGS": "t", "UNIQ_KEY": "7F"}, born_timestamp=1)
        for body in (b"", b"text \x00 \xe4\xb8\xad", b"\xff\x00", b"m" * (json_lines.BLOCK // 13))
    ]
    built = logs.build(put, segment_size=1 << 24)
    data = bytes(built.log.files[0])
    table, _ = fast_walk(data, 0, len(data))
    at, sizes = (np.ascontiguousarray(table[:, i]) for i in range(2))
    asked: list[int] = []
    made = list(LineMaker(LineForm("message")).blocks(data, at, sizes, at, asked.append))  # type: ignore[func-returns-value]
    assert asked == []
    assert sum(count for _, count in made) == len(put)


def test_what_is_no_record_is_left() -> None:
    """Places that a damaged queue names: outside of the bytes, too short, of another size, with another body."""
    record = bytearray(message.encode(Message("T", b"body", 0, {"a": "b"})))
    message.patch(record, 0, queue_offset=1, physical_offset=0, store_timestamp=1)
    torn = bytearray(record)
    torn[row_at(record).body_position] ^= 1
    data = bytes(record + torn)
    size = len(record)
    places = [
        (0, size),
        (size, size),
        (-1, size),
        (1, size),
        (0, size + 1),
        (0, 20),
        (2 * size - 90, 90),
        (1 << 62, 100),
    ]
    at, sizes = (np.array(column, dtype=np.int64) for column in zip(*places, strict=True))
    asked: list[int] = []
    maker = LineMaker(LineForm(sound_only=True))
    made = list(maker.blocks(data, at, sizes, np.zeros_like(at), asked.append))  # type: ignore[func-returns-value]
    assert asked == list(range(1, len(places)))
    assert sum(count for _, count in made) == 1
    assert properties.SEPARATOR not in bytes(made[0][0]).decode()


@pytest.fixture
def long_store(tmp_path: Path) -> Path:
    """Long enough to be read ahead by kernels, and to fill a pipe many times."""
    built = logs.build([Message("T", b'"%d"' % i * 10_000) for i in range(900)], segment_size=1 << 26)
    path = tmp_path / "store" / "commitlog" / ("0" * 20)
    path.parent.mkdir(parents=True)
    path.write_bytes(built.log.files[0])
    return tmp_path / "store"


@pytest.mark.leaves
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_ctrl_c_cuts_no_line(unbuffered: str, long_store: Path) -> None:
    running = process("--store", long_store, "dump", "commitlog", "--json", env={"PYTHONUNBUFFERED": unbuffered})
    assert running.stdout is not None
    assert running.stderr is not None
    first = running.stdout.readline()
    running.send_signal(signal.SIGINT)
    *lines, last = [json.loads(line) for line in [first, *running.stdout]]
    assert "interrupted" in running.stderr.read()
    assert running.wait(timeout=60) == INTERRUPTED
    assert last["error"]["code"] == "interrupted"
    assert [line["queueOffset"] for line in lines] == list(range(len(lines)))
    assert 0 < len(lines) < 900


@pytest.mark.leaves
def test_a_closed_pipe_ends_it(long_store: Path) -> None:
    running = process("--store", long_store, "dump", "commitlog", "--json")
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == PIPE_CLOSED
