"""The property CRC: the same verdict by kernels and without, whatever was changed, and that of bytes alone."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format import message, property_crc
from engine.format.message import Message
from engine.format.property_crc import CrcDemand, CrcState
from engine.log.ahead import count_ahead
from engine.log.property_crcs import CrcFault, crc_faults_of
from engine.log.scan import RecordBatch, Scanner
from engine.log.tally import Counted, RecordCounter, Tally, tallied
from tests.engine.log.test_tally import joined
from tests.support import sealed_logs
from tests.support.logs import MemoryLog

pytestmark = pytest.mark.wide
SIZE = property_crc.SIZE


def put(i: int, body: int) -> Message:
    return Message(f"T{i % 3}", bytes([i & 0xFF]) * body, i % 2, {"KEYS": f"k{i}", "TAGS": "t"})


def made(bodies: list[int], seed: int) -> tuple[bytearray, list[tuple[int, int]], list[str]]:
    """A log of records, most of them with their property CRC; where each lies, and what was done to it."""
    chance = random.Random(seed)
    log, places, kinds = bytearray(), [], []
    for i, size in enumerate(bodies):
        kind = chance.choice(("right", "right", "right", "none", "text", "digit", "header", "letter", "end", "two"))
        record = sealed_logs.room(put(i, size), b"" if kind == "none" else None)
        message.patch(record, 0, queue_offset=i, physical_offset=len(log), store_timestamp=1_700_000_000_000 + i)
        if kind != "none":
            sealed_logs.seal(record)
        if kind == "text":
            record[-SIZE:] = b"\x02" + b"x" * 8 + b"\x01" + b"1" * 9 + b"\x02"
        elif kind == "digit":
            record[-2 - chance.randrange(10)] ^= chance.choice((1, 2, 64, 255))
        elif kind == "header":
            record[16] ^= 1 << chance.randrange(8)
        elif kind == "letter":
            record[-SIZE + chance.randrange(9)] ^= 0x20
        elif kind == "end":
            record[-1] ^= 0x41
        elif kind == "two":
            record[-SIZE], record[-1] = 0x41, 0x41
        places.append((len(log), len(record)))
        kinds.append(kind)
        log += record
    return log, places, kinds


def expected(
    log: bytearray, places: list[tuple[int, int]], kinds: list[str], demand: CrcDemand
) -> tuple[int, list[CrcFault]]:
    """By the definition: zlib over all but the last bytes."""
    have = 0
    faults: list[CrcFault] = []
    for (at, size), kind in zip(places, kinds, strict=True):
        record = log[at : at + size]
        digits = b"%010d" % (zlib.crc32(record[:-SIZE]) & 0x7FFFFFFF)
        right = record[-SIZE:] == b"__CRC32#\x01" + digits[::-1] + b"\x02"
        missing = kind in ("none", "text")
        have += not missing
        assert right == (kind == "right"), kind
        if missing and demand is CrcDemand.OF_ALL:
            if faults and faults[-1].missing and sum(faults[-1][:2]) == at:
                last = faults.pop()
                faults.append(CrcFault(last.offset, last.size + size, last.records + 1, True))
            else:
                faults.append(CrcFault(at, size, 1, True))
        elif not missing and not right:
            faults.append(CrcFault(at, size))
    return have, faults


def counts(log: bytearray, demand: CrcDemand, window: int) -> Iterator[list[Counted]]:
    """Without kernels, by those of batches, and by those that count."""
    held = MemoryLog({0: log})
    yield joined(tallied(Scanner(held, kernels=False, window=window).scan(0, resume=True), demand))
    fast = Scanner(held, kernels=True, window=window)
    yield joined(tallied(fast.scan(0, resume=True), demand))

    def read_into(offset: int, buffer: memoryview) -> int:
        data = held.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    counter = RecordCounter(fast, read_into, window=window, demand=demand)
    yield joined(counter.count(0, len(log)))
    yield joined(count_ahead(counter, fast, 0, len(log), threads=2, split=3 * window))


@pytest.mark.parametrize("demand", CrcDemand)
@pytest.mark.parametrize(("most", "count", "window"), [(60, 300, 1 << 12), (3000, 90, 1 << 13), (511, 40, 1 << 20)])
def test_every_reader_says_the_same(demand: CrcDemand, most: int, count: int, window: int) -> None:
    chance = random.Random(most)
    log, places, kinds = made([chance.choice((0, most, chance.randrange(most))) for _ in range(count)], most)
    log += bytes(window)
    have, faults = expected(log, places, kinds, demand) if demand else (0, [])
    for events in counts(log, demand, window):
        tally = events[0]
        assert isinstance(tally, Tally)
        assert (tally.records, tally.property_crcs, list(tally.crc_faults)) == (count, have, faults)


@given(
    body=st.integers(0, 1200),
    seed=st.integers(0, 1 << 30),
    at=st.floats(0, 1, exclude_max=True),
    by=st.integers(1, 255),
)
def test_a_changed_byte_is_told_by_both(body: int, seed: int, at: float, by: int) -> None:
    """Whatever byte: it is no sound record any more, or its property CRC is wrong, by kernels as without."""
    record = sealed_logs.room(Message("Topic", random.Random(seed).randbytes(body), 1, {"KEYS": "a b", "TAGS": "t"}))
    message.patch(record, 0, queue_offset=3, physical_offset=0, store_timestamp=1_700_000_000_000)
    sealed_logs.seal(record)
    for changed in (False, True):
        if changed:
            record[int(at * len(record))] ^= by
        batches = [list(Scanner(MemoryLog({0: record}), kernels=kernels).scan(0)) for kernels in (False, True)]
        verdicts = {
            crc_faults_of(event, CrcDemand.WHERE_THERE)
            for events in batches
            for event in events
            if isinstance(event, RecordBatch)
        }
        assert verdicts <= {(1, (CrcFault(0, len(record)),) if changed else ())}
        assert verdicts or changed


def test_a_crc_is_put_together_of_parts() -> None:
    from engine.log.kernels.crc import moving, times_both
    from engine.log.kernels.jit import compiled

    @compiled
    def both(one: np.uint32, factor: np.uint32, other: np.uint32, other_factor: np.uint32) -> np.uint32:
        out: np.uint32 = times_both(one, factor, other, other_factor)
        return out

    chance = random.Random(1)
    for _ in range(200):
        one, other, last = (chance.randbytes(chance.choice((0, 1, 15, 16, 300, 70_000))) for _ in range(3))
        crcs = [np.uint32(zlib.crc32(part)) for part in (one, other)]
        factors = [np.uint32(moving(len(part))) for part in (other + last, last)]
        whole = both(crcs[0], factors[0], crcs[1], factors[1]) ^ zlib.crc32(last)
        assert whole == zlib.crc32(one + other + last)


@given(st.integers(0, 0x7FFFFFFF))
def test_the_digits_come_lowest_first(crc: int) -> None:
    text = property_crc.encode(crc)
    assert len(text) == SIZE
    assert int(text[9:19][::-1]) == crc


def test_what_is_short_has_none() -> None:
    assert property_crc.state_of(b"__CRC32#\x010000000000\x02", 20) is CrcState.RIGHT  # the CRC of no bytes
    assert property_crc.state_of(b"x" * 100 + property_crc.encode(5), 19) is CrcState.NONE  # of topic or body
    assert not property_crc.is_sealed(property_crc.encode(0))
    assert not property_crc.is_sealed(b"")
