"""A log in DLedger's entries, through the one scanner: the same records as a plain log, whatever is damaged."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.format import message
from engine.format.dledger_entry import HEAD_SIZE, encode_blank
from engine.format.judge import Reason
from engine.format.message import Message
from engine.format.record import body_position
from engine.log.ahead import scan_ahead
from engine.log.place import Lies, place_at
from engine.log.scan import Blank, Damage, RecordBatch, Scanner
from tests.support.dledger import EntryLog, put_in_entries

SIZE = 8192


def records(count: int, seed: int = 5) -> list[bytearray]:
    some = random.Random(seed)
    return [
        bytearray(
            message.encode(Message(f"T{i % 3}", some.randbytes(some.randrange(300)), properties={"KEYS": f"k{i}"}))
        )
        for i in range(count)
    ]


def events(log: Any, *, kernels: bool, start: int = 0, window: int = 2 << 20) -> list[tuple[Any, ...]]:
    """Each record, blank and damage: kind, physical offset, and what else there is to say."""
    seen: list[tuple[Any, ...]] = []
    scanner = Scanner(log, kernels=kernels, window=window)
    for event in scanner.scan(start, resume=True):
        if isinstance(event, RecordBatch):
            seen += [("record", event.offset(i), len(event.record(i))) for i in range(len(event))]
            assert event.start in (event.offset(0), event.offset(0) - HEAD_SIZE)
        elif isinstance(event, Blank):
            seen.append(("blank", event.offset, event.length))
        elif isinstance(event, Damage):
            seen.append(("damage", event.offset, event.reason, event.length))
    return seen


@pytest.mark.parametrize("kernels", [False, True])
def test_records_are_found_behind_their_headers(kernels: bool) -> None:
    given = records(100)
    log, places = put_in_entries(given, SIZE)
    seen = events(log, kernels=kernels)
    assert [one[1:] for one in seen if one[0] == "record"] == [
        (at + HEAD_SIZE, len(record)) for at, record in zip(places, given, strict=True)
    ]
    assert [one[0] for one in seen].count("blank") == len(log.files) - 1
    assert seen[-1][:3] == ("damage", places[-1] + HEAD_SIZE + len(given[-1]), Reason.EMPTY)
    assert events(log, kernels=kernels, window=100) == seen
    assert events(log, kernels=kernels, start=places[7]) == events(log, kernels=kernels, start=places[7] + HEAD_SIZE)
    ahead = [
        e for e, _ in scan_ahead(Scanner(log, kernels=kernels), 0, prepare=len, resume=True, threads=2, split=1024)
    ]
    assert sum(len(e) for e in ahead if isinstance(e, RecordBatch)) == len(given)


DAMAGE = {
    "magic": (0, b"\0\0\0\7", Reason.ENTRY, HEAD_SIZE),
    "size": (4, b"\0\0\0\x50", Reason.ENTRY, HEAD_SIZE),
    "pos": (24, b"\1", Reason.ENTRY, HEAD_SIZE),
    "body length": (47, b"\0", Reason.ENTRY, HEAD_SIZE),
    "zeros": (0, bytes(HEAD_SIZE), Reason.EMPTY, HEAD_SIZE),
    "blank": (0, encode_blank(8), Reason.BLANK_LENGTH, HEAD_SIZE),
    "record magic": (HEAD_SIZE + 4, b"\0", Reason.MAGIC, None),
    "record size": (HEAD_SIZE + 3, b"\1", Reason.SIZE, None),
    "all of it": (0, bytes(HEAD_SIZE + 60), Reason.EMPTY, None),
    "body": (HEAD_SIZE + 90, b"\x55\x55\x55", Reason.CRC, None),
}


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_costs_no_other_record(name: str, kernels: bool) -> None:
    """Of a header that is damaged not even its own."""
    at, data, reason, length = DAMAGE[name]
    given = records(60)
    given[9] = bytearray(message.encode(Message("T", b"a body " * 20)))
    log, places = put_in_entries(given, SIZE)
    whole = [one for one in events(log, kernels=kernels) if one[0] == "record"]
    log.write(places[9] + at, data)
    seen = events(log, kernels=kernels)
    lost = HEAD_SIZE + len(given[9]) if length is None else length
    assert next(one for one in seen if one[0] == "damage") == ("damage", places[9], reason, lost)
    kept = [one for i, one in enumerate(whole) if length or i != 9]
    assert [one for one in seen if one[0] == "record"] == kept


def test_kernels_and_plain_code_say_the_same_of_any_damage() -> None:
    """Also with windows that end anywhere; and no record is lost that is whole and names its place."""
    some = random.Random(11)
    for _ in range(150):
        given = records(40, some.randrange(1000))
        log, places = put_in_entries(given, 4096, start=some.choice((0, 4096)))
        touched: set[int] = set()
        for _ in range(some.randrange(1, 4)):
            at = some.randrange(len(places))
            begin = places[at] + some.randrange(HEAD_SIZE + len(given[at]))
            data = some.choice((bytes(some.randrange(1, 80)), some.randbytes(some.randrange(1, 40))))
            segment = next(s for s in log.segments if s.offset <= begin < s.end)
            data = data[: segment.end - begin]
            touched |= set(range(begin, begin + len(data)))
            log.write(begin, data)
        first = log.segments[0].offset
        seen = events(log, kernels=False, start=first)
        assert events(log, kernels=True, start=first) == seen
        assert events(log, kernels=True, start=first, window=some.randrange(90, 3000)) == seen
        kept = {one[1] for one in seen if one[0] == "record"}
        for at, record in zip(places, given, strict=True):
            if not touched & set(range(at + HEAD_SIZE, at + HEAD_SIZE + len(record))):
                assert at + HEAD_SIZE in kept


@pytest.mark.parametrize("kernels", [False, True])
def test_a_body_that_holds_entries_is_one_message(kernels: bool) -> None:
    """Whole entries within a body, made for the place where they lie: no message while theirs is sound, or damaged."""
    around = (records(3), records(3, 6))

    def placed(text: bytes) -> tuple[EntryLog, list[int]]:
        outer = bytearray(message.encode(Message("Outer", text)))
        return put_in_entries([*around[0], outer, *around[1]], 1 << 16)

    _, places = placed(bytes(1000))
    body_at = places[3] + HEAD_SIZE + body_position(0)
    inner, inside = put_in_entries(records(2), 4096, start=body_at)
    log, _ = placed(bytes(inner.files[body_at][:1000]))
    assert inside[1] + HEAD_SIZE + len(records(2)[1]) <= body_at + 1000
    whole = [at + HEAD_SIZE for at in places]
    assert [one[1] for one in events(log, kernels=kernels) if one[0] == "record"] == whole
    log.write(body_at + 995, b"\xff\xff")
    seen = [one[1] for one in events(log, kernels=kernels) if one[0] == "record"]
    assert seen == [at for at in whole if at != whole[3]]


def test_a_place_in_a_header_is_named() -> None:
    log, places = put_in_entries(records(10), SIZE)

    class Log(EntryLog):
        def segment_at(self, offset: int) -> Any:
            return next((s for s in self.segments if s.offset <= offset < s.end), None)

    source = Log(log.files)
    for at in (places[0], places[5] + 47):
        place = place_at(source, at, places[-1], max_message_size=4 << 20, check_crc=True)
        start = max(one for one in places if one <= at)
        assert (place.lies, place.start, place.end) == (Lies.HEADER, start, start + HEAD_SIZE)
    place = place_at(source, places[5] + 50, places[-1], max_message_size=4 << 20, check_crc=True)
    assert (place.lies, place.start) == (Lies.RECORD, places[5] + HEAD_SIZE)
