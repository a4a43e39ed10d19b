"""A log that comes in pieces: only whole sound records that lie where they say are given on, and blanks."""

from __future__ import annotations

import random

import pytest

from engine.format.message import ENCODE_OVERHEAD, Message, encode_blank
from engine.log.incoming import LARGEST, IncomingLog
from tests.support import logs

SIZE = 4096
PUTS = [Message("T", bytes([i]) * (i * 37 % 900), i % 3, properties={"KEYS": f"k{i}"}) for i in range(60)]


@pytest.fixture(scope="module")
def data() -> bytes:
    """Some files of a log, each closed by a blank."""
    built = logs.build(PUTS, SIZE)
    return b"".join(bytes(file) for _, file in sorted(built.log.files.items()))[: built.end]


@pytest.fixture(params=[False, True], ids=["rows", "kernels"])
def incoming(request: pytest.FixtureRequest) -> IncomingLog:
    made = IncomingLog(SIZE, 4 << 20)
    if request.param:
        from engine.log.scan import load_fast_walk

        made._fast = load_fast_walk()
    return made


def fed(incoming: IncomingLog, data: bytes, sizes: random.Random) -> bytes:
    """All that is given on of `data`, which comes in pieces."""
    out, at = [], 0
    while at < len(data):
        size = sizes.choice((1, 3, 8, 90, 700, 5000))
        out.append(bytes(incoming.feed(data[at : at + size])))
        at += size
    return b"".join(out)


@pytest.mark.parametrize("seed", range(8))
def test_a_sound_log_is_given_on_whole_however_it_comes(incoming: IncomingLog, data: bytes, seed: int) -> None:
    incoming.begin(0)
    assert fed(incoming, data, random.Random(seed)) == data
    assert (incoming.fault, incoming.held) == (None, 0)


def test_it_may_be_cut_anywhere_and_begun_again(incoming: IncomingLog, data: bytes) -> None:
    """Within a record, whose beginning is held and then forgotten, and within a blank."""
    at = 0
    for cut in range(100, len(data), 331):
        incoming.begin(at)
        at += len(incoming.feed(data[at:cut])) if cut > at else 0
        assert incoming.fault is None
        assert at <= max(cut, at)
    incoming.begin(at)
    assert at + len(incoming.feed(data[at:])) == len(data)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_from_the_first_wrong_byte_of_a_record_on(incoming: IncomingLog, data: bytes, seed: int) -> None:
    """One byte is changed: what is given on is a beginning of the sound log, and ends before that byte's record, unless
    nothing tells of it: a header without a check sum, or a blank's rest."""
    numbers = random.Random(seed)
    at = numbers.randrange(len(data))
    wrong = bytearray(data)
    wrong[at] ^= 1 << numbers.randrange(8)
    incoming.begin(0)
    given = fed(incoming, bytes(wrong), numbers)
    assert given == bytes(wrong[: len(given)])
    if incoming.fault is not None:
        assert incoming.fault.offset == len(given)
        assert len(given) <= at
        assert not incoming.feed(data)


@pytest.mark.parametrize(
    ("start", "said", "why"),
    [
        (0, bytes(500), "nothing written here"),
        (0, b"\0\0\0\x70\xda\xa3\x20\xa8" + bytes(92), "no message magic: 0xDAA320A8"),
        (0, encode_blank(1000) + bytes(92), "blank record does not end at the segment's end"),
        (SIZE - 4, b"\0\0\0\x08", "the file ends inside a record"),
        (0, (SIZE + 1).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(92), f"invalid total size {SIZE + 1}"),
    ],
)
def test_what_no_master_sends(incoming: IncomingLog, start: int, said: bytes, why: str) -> None:
    incoming.begin(start)
    assert not incoming.feed(said)
    assert incoming.fault is not None
    assert why in str(incoming.fault)
    assert incoming.fault.offset == start


def test_a_record_of_another_place(incoming: IncomingLog, data: bytes) -> None:
    incoming.begin(SIZE)
    assert not incoming.feed(data[:SIZE])
    assert incoming.fault is not None
    assert "its own physical offset is 0" in str(incoming.fault)
    incoming.begin(SIZE)
    assert not incoming.feed(data[:95])  # its head is enough
    assert incoming.fault is not None


def test_a_record_that_is_too_large_is_not_waited_for() -> None:
    incoming = IncomingLog(1 << 30, 4 << 20)
    size = LARGEST + ENCODE_OVERHEAD + 1
    body = size - 91 - 1
    head = bytearray(logs.build([Message("T", b"x")], SIZE).records[0][:88])
    head[:4] = size.to_bytes(4, "big")
    head[84:88] = body.to_bytes(4, "big")
    incoming.begin(0)
    assert not incoming.feed(bytes(head))
    assert incoming.fault is not None
    assert f"a record of {size} bytes" in str(incoming.fault)
    assert incoming.held == 0
