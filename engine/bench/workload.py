"""The logs that are measured: equal records by the million, the same bytes each time.

Every record of a workload has the same length, so a range of log is a matrix of bytes, and a field is a slice of its
columns: numpy writes a GiB in seconds. Where the fields lie is not declared here a second time: a template is encoded
by `engine.format.message`, and the places are those where two encoded messages differ as they should.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.config import StoreConfig
from engine.dataclass import dataclass
from engine.format import message, names, properties, property_crc
from engine.format.hashing import body_crc
from engine.format.message import Message
from engine.format.record import (
    BLANK_SIZE,
    POSITION_BODY_CRC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    store_timestamp_position,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BORN_MS = 1_700_000_000_000
PER_MS = 100
"""Messages that were stored in the same millisecond."""
QUEUES_PER_TOPIC = 4
TAG = "TagA"
LARGE_INDEX = 64 * MIB
"""Bytes of log from which on index files have Apache's default size; below they would be larger than the log."""
_SMALL_SLOTS, _SMALL_ENTRIES = 50_000, 400_000
_WINDOW = 8 * MIB
_POOL = 4 * MIB
_TEXT = 64 * MIB
"""Bytes of text: the same part comes again farther off than compression looks back. A log whose bodies come from fewer
of its first bytes has no more of it made."""
_WORDS, _LONGEST_WORD = 4096, 12
_SHORT_WORD = 7
"""Bytes of a word and its blank, below their mean."""
_STEP = 7919
_MIX = 2654435761
_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Workload:
    """A log of equal messages: UNIQ_KEY, one key and one tag each, dealt out over the queues one after another.

    Attributes:
        name: how it is called on the command line.
        body: bytes of a message's body.
        queues: how many, four a topic.
        size: bytes of the log, blank records and empty ends of files not counted in when `fill` < 1.
        segment: bytes of a commit log file.
        fill: the share of each file that holds records; a blank record closes the rest, which takes no room.
        seed: of the bodies.
        is_text: whether bodies are words, which can be compressed, or bytes at random, which can't.
        sealed: whether each record has a property CRC, as RocketMQ 5 writes it; Apache's 4.9.8 does not.
    """

    name: str
    body: int
    queues: int = QUEUES_PER_TOPIC
    size: int = GIB
    segment: int = GIB
    fill: float = 1.0
    seed: int = 1
    is_text: bool = False
    sealed: bool = False

    def sized(self, size: int) -> Workload:
        """The same with a log of `size` bytes, in files that are no larger."""
        values = asdict(self) | {"size": size, "segment": min(self.segment, size // 8 * 8)}
        return Workload(**values)

    @property
    def key(self) -> str:
        """All that its bytes depend on, as a line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def index_sizes(self) -> tuple[int, int]:
        """Hash slots and entries of an index file."""
        default = StoreConfig()
        if self.size >= LARGE_INDEX:
            return default.max_hash_slot_num, default.max_index_num
        return _SMALL_SLOTS, _SMALL_ENTRIES

    def config(self, root: Path) -> StoreConfig:
        """The settings of its store at `root`, whose log may be another store's by hard links (stores.py)."""
        slots, entries = self.index_sizes
        config = StoreConfig().with_changes(
            store_path_root_dir=root,
            mapped_file_size_commit_log=self.segment,
            max_hash_slot_num=slots,
            max_index_num=entries,
        )
        return replace(config, follow_links=True)

    def topic(self, queue: int) -> str:
        """The topic of the `queue`-th queue."""
        return f"BenchTopic{queue // QUEUES_PER_TOPIC:05d}"

    def key_of(self, number: int) -> str:
        """The one key (KEYS) of the `number`-th message."""
        return f"k{number:09d}"

    @property
    def record_size(self) -> int:
        """Bytes of a record."""
        return len(message.encode(self.message(0, bytes(self.body))))

    def per_segment(self) -> int:
        """Records in a full file."""
        return max(1, int((self.segment - BLANK_SIZE) * self.fill)) // self.record_size

    def message(self, number: int, body: bytes) -> Message:
        """The `number`-th message, with a body that is given."""
        queue = number % self.queues
        return Message(
            self.topic(queue),
            body,
            queue_id=queue % QUEUES_PER_TOPIC,
            born_timestamp=BORN_MS,
            properties={"UNIQ_KEY": _unique(number), "KEYS": self.key_of(number), "TAGS": TAG} | self._place_of_crc(),
        )

    def _place_of_crc(self) -> dict[str, str]:
        """A property of the length of a property CRC, but for the separator at its end, which its value has."""
        return {property_crc.NAME: "0" * property_crc.DIGITS + properties.SEPARATOR} if self.sealed else {}

    def body_of(self, number: int) -> bytes:
        """The `number`-th body."""
        pool = _pool(self.seed, _text_of(self))
        at = _body_at(np.array([number]), len(pool), self.body)[0]
        return pool[at : at + self.body].tobytes()


LARGE = "large"
LARGE_FILES = 8
SPARSE = "sparse"
SPARSE_FILES = 100
_SPARSE_RECORDS = MIB
START = "start"
START_SIZE = 24 * MIB
"""Bytes of a log that is just long enough to be read by kernels: a command on it takes as long as its start."""


def sealed_name(name: str) -> str:
    """The workload of the same messages in records with a property CRC."""
    return f"{name}-crc"


GROWTH = (1, 4, 16)
_GROWTH_FILL = 0.25


def growth_name(factor: int) -> str:
    """The workload whose log has `factor` files."""
    return f"growth-{factor}"


def growing(size: int = GIB) -> dict[str, Workload]:
    """The same messages in logs of 1, 4 and 16 files of `size` bytes, by name. A quarter of each file holds records."""
    sizes = (
        Workload(growth_name(factor), KIB, size=factor * size, segment=size, fill=_GROWTH_FILL) for factor in GROWTH
    )
    return {one.name: one for one in sizes}


def workloads(size: int = GIB) -> dict[str, Workload]:
    """Those of the bench, by name, with logs of `size` bytes; the large one has eight files of that size, the sparse
    one a hundred that are nearly empty, the log of `start` is as long as it always is.
    """
    kinds = (
        Workload("b1k", KIB),
        Workload("b128", 128),
        Workload("queues", 256, queues=10_000),
        Workload("b64k", 64 * KIB),
        *(Workload(sealed_name(name), body, sealed=True) for name, body in (("b1k", KIB), ("b128", 128))),
    )
    sized = {one.name: one.sized(size) for one in kinds}
    fill = min(0.25, _SPARSE_RECORDS / size)
    large = Workload(LARGE, KIB, size=LARGE_FILES * size, segment=size)
    sparse = Workload(SPARSE, 128, size=SPARSE_FILES * size, segment=size, fill=fill)
    start = Workload(START, 128, size=START_SIZE, segment=START_SIZE)
    return {**sized, LARGE: large, SPARSE: sparse, START: start}


@dataclass(frozen=True, slots=True)
class LogMade:
    """What `write_log` wrote: messages, bytes of their records, physical offset after the last."""

    messages: int
    record_bytes: int
    end: int


def write_log(workload: Workload, directory: Path, progress: Callable[[int, int], None] | None = None) -> LogMade:
    """Write the commit log's files into `directory`.

    Args:
        workload: what to write.
        directory: the commit log's; made when it is missing.
        progress: called with bytes of the log made so far and in all.

    Raises:
        OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rows = _Rows(workload)
    per_segment = workload.per_segment()
    written = 0
    end = 0
    bases = range(0, workload.size, workload.segment)
    for base in bases:
        last = base == bases[-1]
        room = min(workload.segment, workload.size - base)
        count = min(per_segment, (room - BLANK_SIZE) // rows.size)
        with (directory / names.segment_name(base)).open("wb") as file:
            for first in range(0, count, rows.window):
                some = min(rows.window, count - first)
                file.write(rows.of(written + first, some, base + first * rows.size))
                if progress is not None:
                    progress(base + (first + some) * rows.size, workload.size)
            if not last:
                file.write(message.encode_blank(workload.segment - count * rows.size))
            file.truncate(workload.segment)
        written += count
        end = base + count * rows.size
    return LogMade(written, written * rows.size, end)


def bodies(workload: Workload, count: int) -> Iterator[bytes]:
    """The first `count` bodies."""
    pool = _pool(workload.seed, _text_of(workload)).tobytes()
    for at in _body_at(np.arange(count), len(pool), workload.body):
        yield pool[at : at + workload.body]


class _Rows:
    """Makes records, a matrix at a time."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._pool = _pool(workload.seed, _text_of(workload))
        self._bodies = np.lib.stride_tricks.sliding_window_view(self._pool, workload.body)
        template = message.encode(workload.message(0, bytes(workload.body)))
        self._template = np.frombuffer(bytes(template), dtype=np.uint8)
        self.size = len(template)
        self.window = max(1, _WINDOW // self.size)
        self._places = _places(workload)

    def of(self, first: int, count: int, offset: int) -> memoryview:
        """`count` records from the `first`-th on, the first of them at the physical offset `offset`."""
        workload, places = self._workload, self._places
        number = np.arange(first, first + count, dtype=np.int64)
        out = np.empty((count, self.size), dtype=np.uint8)
        out[:] = self._template
        starts = _body_at(number, len(self._pool), workload.body)
        out[:, places["body"] : places["body"] + workload.body] = self._bodies[starts]
        pool, body = self._pool.data, workload.body
        crc = np.array([body_crc(pool[at : at + body]) for at in starts.tolist()], dtype=">u4")
        _put(out, POSITION_BODY_CRC, crc)
        queue = number % workload.queues
        _put(out, places["queueId"], (queue % QUEUES_PER_TOPIC).astype(">i4"))
        _put(out, POSITION_QUEUE_OFFSET, (number // workload.queues).astype(">i8"))
        _put(out, POSITION_PHYSICAL_OFFSET, (offset + np.arange(count) * self.size).astype(">i8"))
        _put(out, store_timestamp_position(0), (BORN_MS + number // PER_MS).astype(">i8"))
        _put_decimal(out, places["topic"], 5, queue // QUEUES_PER_TOPIC)
        _put_decimal(out, places["key"], 9, number)
        _put_hex(out, places["unique"], 16, _mixed(number))
        _put_hex(out, places["unique"] + 16, 16, number.astype(np.uint64))
        if workload.sealed:
            for record in out:
                property_crc.seal(record.data)
        return out.reshape(-1).data


def _places(workload: Workload) -> dict[str, int]:
    """Byte positions in a record, found in an encoded message."""
    size = workload.body
    record = bytes(message.encode(workload.message(0, bytes(size))))
    other = message.encode(Message(workload.topic(0), bytes(size), queue_id=-1, born_timestamp=BORN_MS))
    topic = workload.topic(0).encode()
    at = record.index(topic)
    return {
        "body": at - 1 - size,
        "topic": at + len(topic) - 5,
        "key": record.index(workload.key_of(0).encode()) + 1,
        "unique": record.index(_unique(0).encode()),
        "queueId": next(i for i in range(POSITION_QUEUE_ID, len(record)) if record[i] != other[i]),
    }


def _body_at(number: NDArray[np.int64], pool: int, body: int) -> NDArray[np.int64]:
    return number * _STEP % (pool - body)


def _text_of(workload: Workload) -> int:
    """Bytes of text for the bodies: all that their places go through, and no more than `_TEXT`; 0: they are no text."""
    if not workload.is_text:
        return 0
    return min(_TEXT, (workload.size // workload.body + 1) * _STEP + workload.body)


@functools.lru_cache(maxsize=2)
def _pool(seed: int, text: int) -> NDArray[np.uint8]:
    """`text` bytes of words, or, where that is 0, bytes by chance."""
    random = np.random.default_rng(seed)
    if not text:
        return random.integers(0, 256, _POOL, dtype=np.uint8)
    letters = random.integers(ord("a"), ord("z") + 1, (_WORDS, _LONGEST_WORD), dtype=np.uint8)
    words = [
        row[:length].tobytes() for row, length in zip(letters, random.integers(3, _LONGEST_WORD, _WORDS), strict=True)
    ]
    made = b" ".join([words[i] for i in random.integers(0, _WORDS, text // _SHORT_WORD + _WORDS)])
    return np.frombuffer(made, dtype=np.uint8)[:text]


def _mixed(number: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Looks like chance, as a client's UNIQ_KEYs do to a hash; all different."""
    return number.astype(np.uint64) * np.uint64(_MIX)


def _unique(number: int) -> str:
    return f"{number * _MIX % (1 << 64):016X}{number:016X}"


def _put(out: NDArray[np.uint8], at: int, values: NDArray[Any]) -> None:
    size = values.dtype.itemsize
    out[:, at : at + size] = values.reshape(-1, 1).view(np.uint8)


def _put_decimal(out: NDArray[np.uint8], at: int, digits: int, values: NDArray[np.int64]) -> None:
    powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
    out[:, at : at + digits] = values[:, None] // powers % 10 + ord("0")


def _put_hex(out: NDArray[np.uint8], at: int, digits: int, values: NDArray[np.uint64]) -> None:
    shifts = np.arange(4 * (digits - 1), -1, -4, dtype=np.uint64)
    out[:, at : at + digits] = _HEX[values[:, None] >> shifts & np.uint64(15)]


def written_ranges(workload: Workload, directory: Path) -> Iterator[tuple[Path, int]]:
    """The log's files in order, each with the bytes at its front that hold records."""
    size = workload.record_size
    per_segment = workload.per_segment()
    for base in range(0, workload.size, workload.segment):
        room = min(workload.segment, workload.size - base)
        path = directory / names.segment_name(base)
        if os.path.exists(path):
            yield path, min(per_segment, (room - BLANK_SIZE) // size) * size
