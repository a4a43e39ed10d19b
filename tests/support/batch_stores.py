"""Stores with batch queues of RocketMQ 5, written byte by byte from what FORMAT.md says, and what each queue must hold.

The ledger is kept while the log is written: no code of the engine has a part in what is expected.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

SEGMENT = 1 << 14
FILE_UNITS = 5
UNIT = struct.Struct(">qiqqqhii")
FILE_SIZE = FILE_UNITS * UNIT.size
BLANK = struct.pack(">ii", 0, -875286124)
MAGIC = -626843481
BEGAN = 1_700_000_000_000


@dataclass(frozen=True)
class Put:
    """A record: where it lies, its queue, and the unit that it must have. `plain`: of a topic without batch queues."""

    physical: int
    size: int
    topic: str
    queue: int
    base: int
    count: int
    stored: int
    tags: str
    plain: bool

    @property
    def unit(self) -> bytes:
        """46 bytes."""
        code = 0
        for letter in self.tags:
            code = (31 * code + ord(letter)) & 0xFFFFFFFF
        code -= (code & 0x80000000) << 1
        return UNIT.pack(self.physical, self.size, code, self.stored, self.base, self.count, -1, 0)


@dataclass
class Written:
    """A store, and all records of its log in order."""

    root: Path
    puts: list[Put] = field(default_factory=list)

    def units(self, topic: str, queue: int, start: int = 0) -> list[bytes]:
        """The units of a batch queue whose records lie at `start` (physical) or after."""
        return [
            put.unit
            for put in self.puts
            if (put.topic, put.queue) == (topic, queue) and not put.plain and put.physical >= start
        ]

    @property
    def queues(self) -> list[tuple[str, int]]:
        """The batch queues."""
        return sorted({(put.topic, put.queue) for put in self.puts if not put.plain})


def write(root: Path, seed: int, records: int = 160) -> Written:
    """A store that was closed cleanly: log, topics.json, batch queues; plain queues and index are yet to be built."""
    chance = random.Random(seed)
    log = root / "commitlog"
    log.mkdir(parents=True)
    written = Written(root)
    ends: dict[tuple[str, int], int] = {}
    data = bytearray()
    stored = BEGAN
    for number in range(records):
        topic = chance.choice(("T", "B", "B", "Solo"))
        queue = 0 if topic == "Solo" else chance.randrange(2)
        count = chance.randint(1, 6) if topic == "B" and chance.random() < 0.8 else 1
        is_batch = count > 1
        base = ends.get((topic, queue), 0)
        ends[topic, queue] = base + count
        stored += chance.randrange(3)
        tags = "" if is_batch else chance.choice(("", "one", "two"))
        record = encode(chance, number, topic, queue, base, count, len(data), stored, tags, is_batch=is_batch)
        room = SEGMENT - len(data) % SEGMENT
        if len(record) + len(BLANK) > room:
            data += struct.pack(">ii", room, -875286124).ljust(room, b"\0")
            record = encode(chance, number, topic, queue, base, count, len(data), stored, tags, is_batch=is_batch)
        written.puts.append(Put(len(data), len(record), topic, queue, base, count, stored, tags, plain=topic == "T"))
        data += record
    data += bytes(-len(data) % SEGMENT)
    for at in range(0, len(data), SEGMENT):
        (log / f"{at:020}").write_bytes(data[at : at + SEGMENT])
    (root / "checkpoint").write_bytes(struct.pack(">qqq", stored, stored, stored).ljust(4096, b"\0"))
    (root / "config").mkdir()
    topics = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 2, "writeQueueNums": 2, "topicFilterType": "SINGLE_TAG",
               "topicSysFlag": 0, "order": False, "attributes": {} if name == "T" else {"queue.type": "BatchCQ"}}
        for name in ("T", "B", "Solo")
    }  # fmt: skip
    (root / "config/topics.json").write_text(json.dumps({"dataVersion": {}, "topicConfigTable": topics}))
    for one in written.queues:
        write_queue(root, one, written.units(*one))
    return written


def write_queue(root: Path, queue: tuple[str, int], units: list[bytes], first: int = 0) -> None:
    """The files of a batch queue whose first unit has a number."""
    directory = root / "batchconsumequeue" / queue[0] / str(queue[1])
    directory.mkdir(parents=True, exist_ok=True)
    for at in range(first - first % FILE_UNITS, first + len(units), FILE_UNITS):
        data = b"".join(units[max(0, at - first) : max(0, at + FILE_UNITS - first)])
        data = bytes(max(0, first - at) * UNIT.size) + data
        (directory / f"{at * UNIT.size:020}").write_bytes(data.ljust(FILE_SIZE, b"\0"))


def encode(
    chance: random.Random, number: int, topic: str, queue: int, base: int, count: int, physical: int, stored: int,
    tags: str, *, is_batch: bool,
) -> bytes:  # fmt: skip
    """A record as a 5.x broker stores it: of several messages, or of one."""
    named = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}"}
    if tags:
        named["TAGS"] = tags
    sys_flag = 0
    body = random.Random(number).randbytes(random.Random(number).randint(1, 300))
    if is_batch:
        named = {"UNIQ_KEY": f"{number:032X}", "INNER_NUM": str(count), "INNER_BASE": str(base)}
        sys_flag = 0x80 | 0x40
        body = b"".join(_inner(number, one) for one in range(count))
    texts = list(named.items())
    del chance
    joined = "\x02".join("\x01".join(pair) for pair in texts).encode()
    host = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
    name = topic.encode()
    size = 4 * 5 + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 8 + 4 + len(body) + 1 + len(name) + 2 + len(joined)
    head = struct.pack(">iiiii", size, MAGIC, zlib.crc32(body) & 0x7FFFFFFF, queue, 0)
    head += struct.pack(">qqiq", base, physical, sys_flag, stored) + host + struct.pack(">q", stored) + host
    head += struct.pack(">iqi", 0, 0, len(body))
    record = head + body + bytes((len(name),)) + name + struct.pack(">h", len(joined)) + joined
    assert len(record) == size
    return record


def _inner(number: int, one: int) -> bytes:
    body, named = f"m{number}-{one}".encode() * 5, f"KEYS\x01k{number}-{one}".encode()
    head = struct.pack(">iiiii", 22 + len(body) + len(named), 0, zlib.crc32(body) & 0x7FFFFFFF, 0, len(body))
    return head + body + struct.pack(">h", len(named)) + named


def held(root: Path, queue: tuple[str, int]) -> tuple[int, list[bytes]]:
    """Number of the first unit on disk, and the units up to the first that is none.

    Asserts that files are whole, follow each other, and that nothing comes after the last unit.
    """
    directory = root / "batchconsumequeue" / queue[0] / str(queue[1])
    paths = sorted(directory.iterdir()) if directory.exists() else []
    if not paths:
        return 0, []
    first = int(paths[0].name)
    assert [int(path.name) for path in paths] == [first + i * FILE_SIZE for i in range(len(paths))], paths
    assert {path.stat().st_size for path in paths} == {FILE_SIZE}, paths
    data = b"".join(path.read_bytes() for path in paths)
    units = [data[at : at + UNIT.size] for at in range(0, len(data), UNIT.size)]
    end = next((i for i, unit in enumerate(units) if not is_unit(unit)), len(units))
    assert not any(data[end * UNIT.size :]), (queue, "bytes after the last unit")
    assert len(paths) <= 1 + max(0, end - 1) // FILE_UNITS + 1
    return first // UNIT.size, units[:end]


def is_unit(unit: bytes) -> bool:
    """Whether a broker reads on after it. Source: BatchConsumeQueue#recover."""
    physical, size, _, _, base, count, _, _ = UNIT.unpack(unit)
    return physical >= 0 and size > 0 and base >= 0 and count > 0
