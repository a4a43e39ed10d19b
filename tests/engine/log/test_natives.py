"""Natives: the same as the plain ways on whatever bytes there are, nothing leaked, nothing read or written outside."""

from __future__ import annotations

import errno
import gc
import random
import struct
import sys
import threading
from collections.abc import Callable, Container
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("numba")

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.broker.net import headers
from engine.broker.net.headers import REQUEST, STORED
from engine.config import StoreConfig
from engine.errors import FormatError
from engine.format import batch, hashing, properties, sysflag
from engine.format.batch import BatchItem
from engine.format.hosts import LOOPBACK, Host
from engine.format.index_file import HEADER_SIZE, NO_ENTRY, SLOT_SIZE, IndexEntry, IndexHeader, IndexLayout
from engine.format.judge import Row
from engine.format.message import Message, decode, decode_many, encode
from engine.format.numbers import LONG_MAX
from engine.format.properties import DELAY
from engine.format.record import POSITION_PHYSICAL_OFFSET, V4_HEAD_SIZE
from engine.log import decoded, natives, prepare, reading
from engine.log.commitlog import CommitLog
from engine.log.index_reader import IndexReader, _Walk
from engine.log.kernels import kept, objects
from engine.log.kernels.get import by_kernel, get
from engine.log.kernels.native import Native
from engine.log.natives import (
    ASKED_FOR,
    CHAIN_END,
    COLUMNS,
    ITEMS,
    JAVA_HASH,
    LAY,
    MESSAGES,
    NATIVES,
    OFFSETS,
    PROPERTIES,
    RUN,
    TEXT_PROPERTIES,
    VIEWS,
    FastLane,
)
from engine.log.prepare import Destination, Prepared, Preparer
from engine.log.reading import ReadLimits
from engine.log.results import AppendResult, MessageRefused
from engine.log.walk import walk
from engine.log.whole_run import plain_run
from engine.store import MessageStore
from engine.wire.command import LANGUAGES, RemotingCommand, SerializeType
from engine.wire.frames import STORED_PIECES
from tests.support.edges import Edge

pytestmark = pytest.mark.skipif(kept._identity() is None, reason="no code is kept here")

V6 = Host(bytes(range(16)), 9)
TEXT = st.text(alphabet=st.sampled_from("ab \x01\x02é漢\x00K"), max_size=6)


def builtin(lane: FastLane) -> Callable[..., Any]:
    made = lane.compiled()
    assert made is not None
    return made


def damaged(records: bytes, chance: random.Random) -> bytes:
    """The bytes of records, some of them changed."""
    out = bytearray(records)
    for _ in range(chance.choice([0, 1, 1, 4, 30])):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def some_records(chance: random.Random) -> list[bytes]:
    """Records of many kinds: hosts of both families, topics and properties that are not ASCII."""
    born = [Host(bytes([10, 0, 0, n]), 1000 + n) for n in range(3)]
    return [
        bytes(
            encode(
                Message(
                    chance.choice(["T", "Orders", "%RETRY%gruppe-é", "x" * 127]),
                    chance.randbytes(chance.choice([0, 1, 17, 300])),
                    queue_id=chance.randrange(-1, 9),
                    flag=chance.choice([0, -5]),
                    born_timestamp=chance.randrange(1 << 41),
                    born_host=chance.choice([*born, V6] if chance.random() < 0.2 else born),
                    store_host=chance.choice(born),
                    reconsume_times=chance.randrange(3),
                    prepared_transaction_offset=chance.choice([0, 77]),
                ),
                chance.choice(
                    [b"", b"KEYS\x01a b\x02UNIQ_KEY\x01U", b"\x02\x02a\x01b\x01c\x02d\x01\x02", "k\x01é".encode()]
                ),
            )
        )
        for _ in range(chance.randrange(1, 40))
    ]


# --- records as objects ----------------------------------------------------------------------------------------------


def test_records_are_those_of_the_plain_way() -> None:
    native, edge = builtin(MESSAGES), Edge()
    builtin(PROPERTIES)
    for seed in range(400):
        chance = random.Random(seed)
        records = some_records(chance)
        data = edge.put(damaged(b"".join(records), chance))
        base = chance.randrange(1 << 40)
        at, places = base, []
        for record in records:
            places.append((at, len(record)))
            at += len(record)
        if chance.random() < 0.2:  # a unit that points elsewhere
            places.append((base + len(data) - chance.randrange(200), 200))
        offsets, sizes = tuple(place for place, _ in places), tuple(size for _, size in places)
        views = [data[place - base : place - base + size] for place, size in places]

        def plain(views: list[memoryview] = views) -> object:
            return decode_many(views)

        def fast(offsets: Any = offsets, sizes: Any = sizes, base: int = base, data: memoryview = data) -> object:
            return decoded.decoded(data, base, offsets, sizes, native)

        one, other = outcome(fast), outcome(plain)
        assert one == other, seed
        if isinstance(one, list):
            assert [message.properties for message in one] == [message.properties for message in other]
            assert all(type(a) is type(b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def outcome(work: Callable[[], object]) -> Any:
    """What it gives, or how it refuses."""
    try:
        return work()
    except (FormatError, MessageRefused) as error:
        return type(error), str(error)


def test_hosts_and_topics_that_are_known_are_bounded() -> None:
    native = builtin(MESSAGES)
    records = [
        bytes(encode(Message(f"T{n}", born_host=Host(n.to_bytes(4, "big"), n)), b"")) for n in range(3 * decoded._KNOWN)
    ]
    offsets = tuple(positions(records))
    messages = decoded.decoded(memoryview(b"".join(records)), 0, offsets, tuple(map(len, records)), native)
    assert [message.topic for message in messages] == [f"T{n}" for n in range(len(records))]
    assert [message.born_host.port for message in messages] == list(range(len(records)))
    assert len(decoded._HOSTS) <= decoded._KNOWN
    assert len(decoded._TOPICS) <= decoded._KNOWN


def positions(records: list[bytes]) -> list[int]:
    at, out = 0, []
    for record in records:
        out.append(at)
        at += len(record)
    return out


@settings(max_examples=600)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.lists(st.tuples(TEXT, TEXT)).map(
            lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
        ),
    )
)
def test_properties_are_those_of_the_plain_way(raw: bytes) -> None:
    plain = properties.parse(raw.decode("utf-8", "replace"))
    native, edge = builtin(PROPERTIES), Edge()
    pairs = native(edge.put(raw), None)
    assert pairs == native(raw, None)
    if pairs is None:
        assert raw.decode("utf-8", "ignore").encode() != raw, "UTF-8 is what it takes"
    else:
        assert list(pairs.items()) == list(plain.items())


@settings(max_examples=400)
@given(
    st.one_of(
        st.text(max_size=30),
        st.lists(st.tuples(TEXT, TEXT)).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)),
    )
)
def test_properties_of_a_text_are_those_of_the_plain_way(text: str) -> None:
    pairs = builtin(TEXT_PROPERTIES)(text, None)
    assert pairs is not None
    assert list(pairs.items()) == list(properties.parse(text).items())
    assert builtin(TEXT_PROPERTIES)(text + "\ud800", None) is None
    assert decoded.parsed(text + "\ud800") == properties.parse(text + "\ud800")


def test_items_are_those_of_the_plain_way() -> None:
    native, edge = builtin(ITEMS), Edge()
    for seed in range(600):
        chance = random.Random(seed)
        items = [
            BatchItem(
                chance.randbytes(chance.randrange(40)),
                chance.choice([0, -7, 1 << 30]),
                chance.randbytes(chance.randrange(9)),
            )
            for _ in range(chance.randrange(12))
        ]
        frame = batch.encode(items)
        if frame:
            frame = damaged(frame, chance)[: len(frame) - chance.choice([0, 0, 1, 7])]
        plain = outcome(lambda frame=frame: list(batch.decode(frame)))  # type: ignore[misc]
        fast = native(edge.put(frame), BatchItem, None)
        if isinstance(plain, list):
            assert fast == plain
            assert all(type(item) is BatchItem for item in fast)
        else:
            assert fast is None
        assert outcome(lambda frame=frame: list(decoded.decoded_items(frame))) == plain  # type: ignore[misc]


# --- a get -----------------------------------------------------------------------------------------------------------


def some_limits(chance: random.Random) -> ReadLimits:
    return ReadLimits(
        chance.choice([0, 3000, 1 << 40]),
        chance.choice([500, 1 << 20]),
        chance.choice([3, 32, 300]),
        chance.choice([500, 1 << 20]),
        chance.choice([3, 32, 300]),
        True,
    )


def test_runs_are_those_of_the_plain_way() -> None:
    native, edge = builtin(RUN), Edge()
    answered = 0
    for seed in range(3000):
        chance = random.Random(seed)
        units = b""
        at = chance.choice([0, 1000, (1 << 63) - 3000, -500])
        for _ in range(chance.randrange(40)):
            size = chance.choice([100, 200, 300, 0, -1] if chance.random() < 0.1 else [100, 200])
            units += at.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True) + bytes(8)
            at = min(at + size + chance.choice([0, 0, 5000]), (1 << 63) - 1)
        log_end = max(0, min(at, 1 << 62))
        limits = some_limits(chance)
        many = chance.choice([-3, 0, 1, 5, 32, 255, 256, 1 << 70])
        view = edge.put(units)
        plain = plain_run(view, log_end, many, limits)
        fast = native(
            view,
            log_end - limits.memory,
            min(many, 256),
            limits.count_in_memory,
            limits.bytes_in_memory,
            limits.count_in_disk,
            limits.bytes_in_disk,
            None,
        )
        if plain is not None and abs(plain[3]) < 1 << 62 and abs(plain[2]) < 1 << 62:
            assert fast == plain, seed
            answered += 1
        else:
            assert fast is None, seed
    assert answered > 500


def test_columns_are_those_of_the_kernel() -> None:
    builtin(COLUMNS)
    edge, other_edge = Edge(), Edge()
    answered = left = 0
    for seed in range(2000):
        chance = random.Random(seed)
        records = some_records(chance)
        base = chance.choice([0, 1 << 40, (1 << 62) - 5000, 1 << 62, -100])
        data, at, units = edge.put(damaged(b"".join(records), chance)), base, b""
        for record in records:
            place = at + (chance.choice([-1, 7, 1 << 20, -(1 << 61)]) if chance.random() < 0.01 else 0)
            size = len(record) + (chance.choice([-1, 1, -(1 << 20)]) if chance.random() < 0.01 else 0)
            units += place.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True) + bytes(8)
            at += len(record)
        view = other_edge.put(units)
        limits = some_limits(chance)
        many = chance.choice([-3, 0, 1, 5, 32, 256])
        plain, fast = (way(view, base, data, at, many, limits) for way in (by_kernel, get))
        if fast is None and at >= 1 << 62:
            continue  # no log goes as far
        if plain is None:
            assert fast is None, seed
            left += 1
        else:
            assert fast is not None, seed
            assert fast[1:] == plain[1:], seed
            assert (fast[0].table == plain[0].table).all(), seed
            answered += 1
    assert answered > 500
    assert left > 200


def test_columns_are_written_into_a_table_only() -> None:
    native, record = builtin(COLUMNS), bytes(encode(Message("T", b"body")))
    unit = bytes(8) + len(record).to_bytes(4, "big") + bytes(8)
    for table in (bytes(168), memoryview(bytearray(336))[::2]):
        with pytest.raises(BufferError):
            native(unit, record, table, 0, 0, 1, 1, 1, 1, 1, None)
    short = bytearray(167)
    assert native(unit, record, short, 0, 0, 1, 1, 1, 1, 1, None) is None
    assert short == bytes(167)


def test_views_are_slices() -> None:
    native = builtin(VIEWS)
    piece = memoryview(bytes(range(200)))
    views = native(piece, 1000, (1000, 1010, 1190, 1100), (5, 0, 30, 3))
    assert [bytes(view) for view in views] == [bytes(piece[:5]), b"", bytes(piece[190:]), bytes(piece[100:103])]
    assert all(view.obj is piece.obj for view in views)
    with pytest.raises(TypeError):
        native(b"bytes"[0], 0, (0,), (1,))


# --- puts ------------------------------------------------------------------------------------------------------------


def messages_to_put(chance: random.Random, count: int) -> list[Message]:
    hosts = [Host(bytes([10, 0, 0, n]), n) for n in range(2)]
    return [
        Message(
            chance.choice(["T", "Orders"]),
            chance.randbytes(chance.choice([0, 5, 15, 16, 1000, 70_000 if chance.random() < 0.02 else 3])),
            chance.randrange(3),
            chance.choice(
                [
                    {},
                    {"KEYS": "k", "TAGS": "é漢", "UNIQ_KEY": "U" * 32},
                    {"A": "", "": "b"},
                    {"A": "\ud800"},
                    {DELAY: chance.choice(["0", "x"])},
                    MappingProxyType({"TAGS": "proxy"}),
                    {"LONG": "x" * chance.choice([32_700, 32_762, 32_763, 40_000])},
                ]
            ),
            flag=chance.choice([0, 3, 1 << 40 if chance.random() < 0.05 else 1]),
            sys_flag=chance.choice([0, 0, 0, 4, 8]),
            born_timestamp=chance.choice([-1, 0, 1 << 41, 1 << 70 if chance.random() < 0.05 else 5]),
            born_host=chance.choice([*hosts, V6]),
            store_host=hosts[0],
            reconsume_times=chance.randrange(2),
        )
        for _ in range(count)
    ]


@pytest.mark.leaves("record-suspect")
@pytest.mark.parametrize("seed", range(4))
def test_puts_leave_the_bytes_of_the_plain_way(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores, one of which never has the native; segments are short, so that records meet each kind of end."""
    builtin(LAY)
    chance = random.Random(seed)
    messages = messages_to_put(chance, 1500)
    answers: dict[str, list[object]] = {}
    for name in ("plain", "native"):
        if name == "plain":
            monkeypatch.setattr(CommitLog, "_lay_from_now", lambda *_: None)
        else:
            monkeypatch.undo()
        now = iter(range(1_700_000_000_000, 1_800_000_000_000))
        config = StoreConfig(store_path_root_dir=tmp_path / name, mapped_file_size_commit_log=1 << 20)
        with MessageStore.open(config, clock=lambda now=now: next(now) and 1_700_000_000_000) as store:  # type: ignore[misc]
            results = [store.put(message) for message in messages]
            answers[name] = [(result.status, result.append, str(result.error)) for result in results]
            assert store.dispatch.wait_dispatched(store.log.max_offset, 30_000)
    assert answers["native"] == answers["plain"]
    logs_of = [sorted((tmp_path / name / "commitlog").iterdir()) for name in answers]
    assert [path.name for path in logs_of[0]] == [path.name for path in logs_of[1]]
    for one, other in zip(*logs_of, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_what_a_record_needs_is_asked_before_a_byte_is_written() -> None:
    """No room, memory that is read-only, too short or none, arguments of other kinds: None, and no byte has changed."""
    lay = builtin(LAY)
    message = Message("T", b"body", properties={"KEYS": "k"})
    template = preparer().one(message)
    assert isinstance(template, Prepared)
    size = template.size
    told = [(77, 7), (78, 8)]

    def laid(memory: object, begin: int, room: int, file: int, one: object = message, **other: object) -> object:
        """What is given; and what is counted then, in `told`."""
        place = Place()
        table: dict[object, object] = {template.destination.queue: 5} if isinstance(template, Prepared) else {}
        answer = lay(place, memory, begin, room, file, to_lay(one, template, table, begin, **other))
        told[:] = [(place.wrote_position, next(iter(table.values())))]
        return answer

    memory = memoryview(bytearray(400))
    assert laid(memory, 10, 400, 400) == AppendResult(10, size, 77, 5, LOOPBACK, (10,))
    assert told == [(10 + size, 6)]
    assert bytes(memory[10 : 10 + size]) == template.record(5, 10, 77)
    assert bytes(memory[:10]) + bytes(memory[10 + size :]) == bytes(400 - size)
    fits = 400 - size - 8
    assert laid(memoryview(bytearray(400)), fits, 400, 400)
    for begin, room, file in (
        (fits + 1, 400, 400),
        (0, size - 1, 400),
        (-1, 400, 400),
        (0, 500, 500),
        (1 << 62, 400, 400),
    ):
        memory = memoryview(bytearray(400))
        assert laid(memory, begin, room, file) is None, (begin, room, file)
        assert (bytes(memory), told) == (bytes(400), [(-1, 5)])
    for memory in (None, memoryview(bytes(400)), 7):  # type: ignore[assignment]
        assert laid(memory, 0, 400, 400) is None
    memory = memoryview(bytearray(400))
    for wrong in (
        (),
        tuple(message)[:-1],
        [*message],
        message._replace(topic=None),  # type: ignore[arg-type]
        message._replace(topic=["T"]),  # type: ignore[arg-type]
        message._replace(topic="Other"),
        message._replace(queue_id=1),
        message._replace(flag=1),
        message._replace(sys_flag=4),
        message._replace(reconsume_times=1),
        message._replace(prepared_transaction_offset=1),
        message._replace(prepared_transaction_offset=1 << 70),
        message._replace(prepared_transaction_offset="0"),  # type: ignore[arg-type]
        message._replace(topic=Text("T")),
        message._replace(queue_id=False),
        message._replace(flag=0.0),  # type: ignore[arg-type]
        message._replace(reconsume_times=False),
        message._replace(prepared_transaction_offset=False),
        message._replace(store_host=V6),
        message._replace(store_host=("1.2.3.4", 5)),  # type: ignore[arg-type]
        message._replace(born_host=V6),
        message._replace(born_host=Host(bytes(4), True)),
        message._replace(born_host=Host(b"abc", 1)),
        message._replace(born_host=Host(bytes(4), 1 << 31)),
        message._replace(born_host=Host("text", 1)),  # type: ignore[arg-type]
        message._replace(born_host=Host(bytes(4), None)),  # type: ignore[arg-type]
        message._replace(born_host=None),  # type: ignore[arg-type]
        message._replace(body="text"),  # type: ignore[arg-type]
        message._replace(body=memoryview(b"x")),  # type: ignore[arg-type]
        message._replace(properties={1: "k"}),  # type: ignore[dict-item]
        message._replace(properties={"k": b"bytes"}),  # type: ignore[dict-item]
        message._replace(properties={"k": "v", DELAY: "1"}),
        message._replace(properties=None),  # type: ignore[arg-type]
        message._replace(born_timestamp=1 << 63),
        message._replace(born_timestamp="now"),  # type: ignore[arg-type]
        message._replace(body=bytes(101)),
    ):
        assert laid(memory, 0, 400, 400, wrong) is None, wrong
        assert (bytes(memory), told) == (bytes(400), [(-1, 5)])
    for other in (
        {"table": {}},
        {"number": 1 << 63},
        {"number": "5"},
        {"known": {}},
        {"known": None},
        {"stored": "77"},
    ):
        place = Place()
        queues = other.pop("table", {template.destination.queue: other.pop("number", 5)})  # type: ignore[attr-defined]
        before = dict(queues)
        assert lay(place, memory, 0, 400, 400, to_lay(message, template, queues, 0, **other)) is None, other
        assert (bytes(memory), queues, place.wrote_position) == (bytes(400), before, -1)


class Place:
    """As far as the native knows a file."""

    wrote_position = -1


class Fixed:
    """A file that counts nothing."""

    __slots__ = ()


class Text(str):
    """A topic that compares itself."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError("Python code in the middle of a put")


def to_lay(
    one: object,
    template: Prepared,
    table: dict[Any, Any],
    begin: int,
    *,
    most: int = 100,
    stored: object = 77,
    known: object = ...,
) -> tuple[object, ...]:
    """What `CommitLog.append` gives to the native."""
    name = ("T", 0, 0, 0, 0)
    destinations = {name: template.destination.laid} if known is ... else known
    constants = (most, dict, int, str, Host, AppendResult, "wrote_position", ("ip", "port"), None)
    return (one, destinations, table, begin, stored, constants)


def test_a_record_that_can_not_be_counted_does_not_look_like_one() -> None:
    lay, message = builtin(LAY), Message("T", b"body", properties={"KEYS": "k"})
    template, memory = preparer().one(message), memoryview(bytearray(400))
    assert isinstance(template, Prepared)
    table: dict[object, object] = {template.destination.queue: 5}
    with pytest.raises(AttributeError):
        lay(Fixed(), memory, 0, 400, 400, to_lay(message, template, table, 0))
    assert (bytes(memory[:8]), list(table.values())) == (bytes(8), [5])


@pytest.mark.parametrize("clears", [False, True])
def test_garbage_that_is_collected_in_the_middle_changes_no_record(clears: bool) -> None:
    """Python 3.11 collects where a tuple is made: what runs then may change the properties, or forget destinations."""
    lay = builtin(LAY)
    seen = set()
    for count in range(40):
        known, properties_of_it = preparer(), {"K": "v"}
        message = Message("T" * 100, b"body", properties=properties_of_it)
        one = known.one(message)
        assert isinstance(one, Prepared)
        table = {one.destination.queue: 5}
        template = one.destination.template
        del one
        memory, armed = memoryview(bytearray(4096)), [False]

        def collected(
            phase: str,
            _: object,
            armed: list[bool] = armed,
            known: Preparer = known,
            its: dict[str, str] = properties_of_it,
        ) -> None:
            if phase == "start" and armed[0]:
                armed[0] = False
                its.update({f"key{n}": "x" * 50 for n in range(20)})
                if clears:
                    for memo in (known.plain, known._known, known._of_hosts):
                        memo.clear()  # type: ignore[attr-defined]

        what = (
            message,
            known.plain,
            table,
            9,
            77,
            (100, dict, int, str, Host, AppendResult, "wrote_position", ("ip", "port"), None),
        )
        gc.collect()
        gc.disable()
        before = gc.get_threshold()
        gc.callbacks.append(collected)
        try:
            gc.set_threshold(gc.get_count()[0] + count, 10, 10)
            armed[0] = True
            gc.enable()
            answer = lay(Place(), memory, 0, 4096, 4096, what)
        finally:
            gc.disable()
            gc.callbacks.remove(collected)
            gc.set_threshold(*before)
            gc.enable()
        seen.add((armed[0], answer is None))
        if answer is not None:
            again = preparer().one(message)
            assert isinstance(again, Prepared)
            assert again.destination.template.topic == template.topic
            assert bytes(memory[: answer.size]) == again.record(5, 9, 77)
        assert not any(memory[0 if answer is None else answer.size :])
    assert (True, False) in seen
    assert sys.version_info >= (3, 12) or (False, clears) in seen


def test_a_host_that_is_none_is_refused(tmp_path: Path) -> None:
    """What is known of a destination with such a host would be no head of a record, for everybody's puts."""
    builtin(LAY)
    with MessageStore.open(StoreConfig(store_path_root_dir=tmp_path / "store")) as store:
        for number in range(natives.MANY + 90):
            odd = Host(bytes(number % 20), 1)
            results = [
                store.put(Message("T", b"body", number % 3, {"K": "v"}, **hosts))
                for hosts in ({"born_host": odd}, {"store_host": odd}, {})
            ]
            fine = number % 20 in (4, 16)
            assert [result.ok for result in results] == [fine, fine, True]
        assert store.dispatch.wait_dispatched(store.log.max_offset, 30_000)


def test_clients_that_come_and_go_leave_nothing() -> None:
    """Each connection is a client with a port of its own: 10,000 of them held 40 MiB of a daemon's memory."""
    known = preparer()
    for number in range(1000):
        assert known.one(Message("T", b"body", born_host=Host(bytes(4), number)))
    assert len(known._of_hosts) <= 256
    assert len(known._known) == len(known.plain) == 1


@pytest.mark.parametrize("lays", [False, True])
def test_each_client_has_its_own_host_in_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lays: bool
) -> None:
    """Clients of one queue in turn: what is known of their destination is made once for each, by the native for all."""
    builtin(LAY)
    if not lays:
        monkeypatch.setattr(CommitLog, "_lay_from_now", lambda *_: None)
    hosts = [Host(bytes([10, 0, 0, n]), 65_535 - n) for n in range(9)]
    made = []
    monkeypatch.setattr(prepare, "Destination", lambda *given, **named: made.append(1) or Destination(*given, **named))
    with MessageStore.open(StoreConfig(store_path_root_dir=tmp_path / "store")) as store:
        results = [
            store.put(Message("T", b"body", properties={"K": str(n)}, born_host=hosts[n % 9])).append
            for n in range(natives.MANY + 90)
        ]
        assert len(made) == (1 if lays else len(hosts))
        for n, result in enumerate(results):
            assert result is not None
            stored = decode(bytes(store.log.read(result.physical_offset, result.size)))
            assert (stored.born_host, stored.queue_offset) == (hosts[n % 9], n)
        assert store.dispatch.wait_dispatched(store.log.max_offset, 30_000)


def test_a_lack_of_descriptors_or_threads_puts_a_native_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a put needs of it is imported in the middle of one: the put is made the plain way."""
    builtin(LAY)
    lane = FastLane("engine.log.kernels.lay", "lay")

    def refused() -> bool:
        raise OSError(errno.EMFILE, "too many open files")

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(lane, "load", refused)
        assert lane.after(natives.MANY) is None
        patch.setattr(lane, "load", lambda: False)
        patch.setattr(threading.Thread, "start", no_thread)
        assert lane.after(natives.MANY) is None
    assert lane.after(natives.MANY - 1) is None
    assert lane.after(1) is not None


def preparer() -> Preparer:
    return Preparer(StoreConfig(store_path_root_dir=Path("/nowhere")))


def test_each_put_asks_the_clock_once(tmp_path: Path) -> None:
    """Laid or not: delayed, at the end of a file, refused by its fields."""
    builtin(LAY)
    stamps = iter(range(1_700_000_000_000, 1_700_000_000_000 + 2000))
    config = StoreConfig(store_path_root_dir=tmp_path / "store", mapped_file_size_commit_log=1 << 16)
    with MessageStore.open(config, clock=stamps.__next__) as store:
        for number in range(1000):
            named = {DELAY: "1"} if number % 10 == 9 else {"K": "\ud800"} if number % 10 == 8 else {}
            assert store.put(Message("T", bytes(number % 700), properties=named)).ok
        assert store.log._lay is not None
        assert store.dispatch.wait_dispatched(store.log.max_offset, 30_000)
    assert next(stamps) < 1_700_000_000_000 + 1200, "the store asks a few times more when it opens and closes"


class Odd(str):
    """A name that asks to be compared, and can't be."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")


class Whole(int):
    """A number that says it by a method."""


def test_what_the_plain_way_refuses_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """Numbers that no field holds, and objects that raise in the middle: the plain way's error, and the same end."""
    builtin(LAY)
    message = Message("T", b"body", properties={"KEYS": "k"})
    config = StoreConfig(store_path_root_dir=tmp_path / "store", mapped_file_size_commit_log=1 << 20)
    with MessageStore.open(config) as store:
        for _ in range(natives.MANY + 2):
            assert store.put(message).ok
        assert store.log._lay is not None
        log, end = store.log, store.log.max_offset
        table = log.topic_queue_table
        log.topic_queue_table = dict.fromkeys(table, 1 << 63)
        with pytest.raises(struct.error):
            log.append(message)
        log.topic_queue_table = table
        with pytest.raises(ValueError, match="not to be compared"):
            log.append(message._replace(properties={Odd(DELAY): "1"}))
        with pytest.raises((TypeError, struct.error)):
            log.append(message._replace(born_timestamp="now"))  # type: ignore[arg-type]
        assert (log.max_offset, log.topic_queue_table) == (end, table)
        for fine in (message._replace(born_timestamp=Whole(7)), message._replace(born_timestamp=True)):
            assert log.append(fine).size
        assert store.dispatch.wait_dispatched(log.max_offset, 30_000)


# --- a query ---------------------------------------------------------------------------------------------------------


def test_hashes_are_javas() -> None:
    native = builtin(JAVA_HASH)
    for text in ("", "a", "TopicTest#key", "x" * 1000, "\x7f", "é", "\ud800", "漢"):
        for before in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            bits = native(text, before, None)
            assert (bits is None) == (not text.isascii())
            assert bits is None or bits == hashing.java_hash(text, before) & 0xFFFFFFFF


class InMemory(IndexReader):
    """An index file in memory."""

    def __init__(self, data: bytes, layout: IndexLayout) -> None:
        super().__init__("index", layout)
        self.data = memoryview(data)

    def _read(self, position: int, length: int) -> memoryview:
        return self.data[position : position + length]

    def _whole(self) -> memoryview | None:
        return self.data


def index_of(chance: random.Random) -> InMemory:
    """A sound file, of which some bytes may be changed."""
    layout = IndexLayout(chance.choice([1, 3, 8]), 40)
    slots = [0] * layout.slots
    entries = [IndexEntry(0, 0, 0, 0)]
    many = chance.randrange(layout.entries)
    for number in range(1, many + 1):
        key_hash = chance.choice([0, 3, 11, 24, (1 << 31) - 1])
        slot = key_hash % layout.slots
        entries.append(IndexEntry(key_hash, number // 2 * 100, number, slots[slot]))
        slots[slot] = number
    header = IndexHeader(1000, 1000 + many * 1000, 0, many // 2 * 100, 0, many + 1).encode()
    data = bytearray(header + b"".join(slot.to_bytes(4, "big") for slot in slots))
    data += b"".join(entry.encode() for entry in entries)
    data += bytes(layout.file_size - len(data))
    if chance.random() < 0.5:
        for _ in range(chance.choice([1, 3, 20])):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0xFF])
    return InMemory(bytes(data), layout)


class Asked:
    """Who decides which offsets count, and notes each that is asked about."""

    def __init__(self, refused: Container[int]) -> None:
        self.refused = refused
        self.offsets: list[int] = []

    def __call__(self, offset: int) -> bool:
        self.offsets.append(offset)
        return offset not in self.refused


def test_walks_over_an_index_are_those_of_the_plain_way() -> None:
    """Sound and damaged files, all that count or some: the same offsets, the same finding, and each asked once."""
    builtin(OFFSETS)
    edge = Edge()
    findings = 0
    for seed in range(3000):
        chance = random.Random(seed)
        file = index_of(chance)
        file.data = edge.put(file.data)
        key_hash = chance.choice([0, 3, 11, 24, (1 << 31) - 1])
        begin = chance.choice([0, 0, 5000, 1 << 62])
        end = chance.choice([LONG_MAX, 20_000, begin])
        most = chance.choice([0, 1, 2, 5, 64])
        refused: Container[int] = chance.choice([(), (100, 300), range(0, 5000, 100)])
        asked = Asked(refused), Asked(refused)
        fast = file.query(key_hash, begin, end, most, accept=asked[0])
        slot = HEADER_SIZE + key_hash % file.layout.slots * SLOT_SIZE
        plain = file._walked(key_hash, begin, end, most, file.data, asked[1], _Walk(NO_ENTRY, -1, slot, []))
        assert (fast.offsets, str(fast.finding)) == (plain.offsets, str(plain.finding)), seed
        assert asked[0].offsets == asked[1].offsets
        findings += fast.finding is not None
    assert findings > 100


def test_keys_that_come_during_a_walk_move_no_verdict() -> None:
    """Who is asked puts a key of the same hash: each offset is asked about once, and the right ones count."""
    builtin(OFFSETS)
    layout = IndexLayout(1, 200)
    data = bytearray(layout.file_size)
    file = InMemory(bytes(0), layout)
    file.data = memoryview(data)

    def put(number: int) -> None:
        entry = IndexEntry(7, number * 100, number, number - 1).encode()
        data[layout.entry_position(number) : layout.entry_position(number) + len(entry)] = entry
        data[:HEADER_SIZE] = IndexHeader(1000, 9000, 0, 0, 1, number + 1).encode()
        data[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE] = number.to_bytes(4, "big")

    for number in range(1, 100):
        put(number)
    asked: list[int] = []

    def accept(offset: int) -> bool:
        asked.append(offset)
        put(99 + len(asked))
        return offset % 300 == 0

    found = file.query(7, 0, LONG_MAX, 5, accept=accept)
    assert found.offsets == (9900, 9600, 9300, 9000, 8700)
    assert asked == list(range(9900, 8600, -100))


def test_numbers_that_no_word_holds_are_taken(tmp_path: Path) -> None:
    """As many messages as one likes, and as few."""
    for lane in (RUN, OFFSETS, JAVA_HASH, ASKED_FOR):
        builtin(lane)
    with MessageStore.open(StoreConfig(store_path_root_dir=tmp_path / "store")) as store:
        assert store.put(Message("T", b"body", properties={"KEYS": "k"})).ok
        assert store.dispatch.wait_dispatched(store.log.max_offset, 30_000)
        for most in (-(1 << 70), -(1 << 63) - 1, 0, 1, 1 << 70):
            assert store.get("T", 0, 0, most).message_count == 1
        assert store.index is not None
        assert len(store.index.query("T", "k", 0, 1 << 60, 1 << 70).offsets) == 1
        assert store.index.query("T", "k", -(1 << 70), 1 << 70, 5).offsets


def test_an_interrupt_in_the_middle_of_records_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(dict[bytes, object]):
        def __missing__(self, raw: bytes) -> object:
            raise KeyboardInterrupt

    record = bytes(encode(Message("T", b"body"), b""))
    for which in range(2):
        memos = [decoded._HOSTS, decoded._TOPICS]
        memos[which] = Interrupted()  # type: ignore[call-overload]
        with pytest.raises(KeyboardInterrupt):
            builtin(MESSAGES)(memoryview(record), 0, (0,), (len(record),), decoded.ReadMessage, *memos, [], 0)


def test_bytes_that_do_not_lie_together_are_split_plainly() -> None:
    builtin(ITEMS)
    frame = batch.encode([BatchItem(b"body", 1, b"own")])
    doubled = memoryview(bytes(byte for pair in zip(frame, frame, strict=True) for byte in pair))[::2]
    assert list(decoded.decoded_items(doubled)) == [BatchItem(b"body", 1, b"own")]


def test_a_python_whose_tuples_have_more_has_no_natives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Natives make instances of tuples field by field: of 3.14 they would leave the hash 0."""
    assert builtin(PROPERTIES)
    monkeypatch.setattr(kept, "_TUPLE_SIZE", 32)
    assert PROPERTIES._native().kept() is None


def test_records_are_asked_for_as_decoded() -> None:
    native, edge = builtin(ASKED_FOR), Edge()
    answers = {None: 0, False: 0, True: 0}
    for seed in range(300):
        chance = random.Random(seed)
        for record in some_records(chance):
            raw = damaged(record, chance) if seed % 2 else record
            topic, key = chance.choice(["T", "Orders", "é"]), chance.choice(["a", "b", "U", "", "a b", "é"])
            after = bytes(chance.choice([0, 0, 1, 300]))
            answer = native(edge.put(raw + after), topic, key, properties.UNIQ_KEY, properties.KEYS, None)
            answers[answer if answer is None else answer > 0] += 1
            if answer is not None:
                assert bool(answer) == reading.has_key(decode(raw), topic, key), seed
                assert answer in (0, len(raw))
            assert native(edge.put(raw[: chance.randrange(len(raw))]), topic, key, "UNIQ_KEY", "KEYS", None) is None
    assert min(answers.values()) > 50


def chained(chance: random.Random, base: int) -> bytes:
    """Records one after another, most of them where they say; some damaged."""
    out = bytearray()
    for record in some_records(chance):
        own = bytearray(record)
        if chance.random() < 0.97:
            struct.pack_into(">q", own, POSITION_PHYSICAL_OFFSET, base + len(out))
        out += own
    return damaged(bytes(out), chance) if chance.random() < 0.5 else bytes(out)


def test_chains_end_where_the_plain_way_ends_or_at_what_is_not_plain() -> None:
    native, edge = builtin(CHAIN_END), Edge()
    reached_all = stopped = 0
    for seed in range(2000):
        chance = random.Random(seed)
        base = chance.choice([0, 4096, 1 << 40])
        data = chained(chance, base)
        cut = data[: chance.choice([len(data), chance.randrange(len(data))])]
        room = chance.choice([len(cut), 1 << 30, chance.randrange(len(data))])
        rows: list[Row] = []
        walk(cut, 0, room, rows)
        plain = 0
        for row in rows:
            head = cut[row.position : row.position + V4_HEAD_SIZE]
            if row.stored_offset != base + row.position or row.sys_flag & sysflag.HOSTS_V6_MASK or head[-4] & 0x80:
                break
            plain = row.position + row.size
        assert native(edge.put(cut), 0, room, base, None) == plain, seed
        reached_all += plain == len(cut) > 0
        stopped += 0 < plain < len(cut)
    assert min(reached_all, stopped) > 100


def test_chains_begin_where_they_are_told() -> None:
    native = builtin(CHAIN_END)
    record = bytearray(encode(Message("T", b"body"), b""))
    struct.pack_into(">q", record, POSITION_PHYSICAL_OFFSET, 1000)
    data = b"before" + bytes(record)
    assert native(data, 6, 1 << 20, 994, None) == len(data)
    assert native(data, 6, len(data) - 1, 994, None) == 6  # the file ends before
    assert native(data, 6, 1 << 20, 995, None) == 6
    assert native(data, len(data), 1 << 20, 994, None) == len(data)
    for position, room, base in ((-1, 99, 0), (1 << 70, 99, 0), (0, 1 << 70, 0), (0, 99, -(1 << 70))):
        assert native(data, position, room, base, None) is None
    assert native("text", 0, 99, 0, None) is None


# --- what all have in common -----------------------------------------------------------------------------------------


def calls() -> list[Callable[[], object]]:
    """A call of each native that gives something, and one that leaves it to the plain way."""
    record = bytes(encode(Message("T", b"body"), b"KEYS\x01a\x02B\x01c"))
    table, columns = bytearray(168), builtin(COLUMNS)
    of_record = (1 << 40).to_bytes(8, "big") + len(record).to_bytes(4, "big") + bytes(8)
    frame = batch.encode([BatchItem(b"body" * 9, 700, b"own")])
    unit = (5000).to_bytes(8, "big") + (600).to_bytes(4, "big") + bytes(8)
    prepared = preparer().one(Message("T"))
    assert isinstance(prepared, Prepared)
    memory = memoryview(bytearray(400))
    file = index_of(random.Random(1)).data
    message = Message("T", b"body" * 9, properties={"K" * 99: "v", "": "é"})
    runs, walks, asks, lays, chains = (builtin(one) for one in (RUN, OFFSETS, ASKED_FOR, LAY, CHAIN_END))
    requests, answers, texts = (builtin(one) for one in (REQUEST, STORED, TEXT_PROPERTIES))
    reads, parses, splits, cuts, hashes = (builtin(one) for one in (MESSAGES, PROPERTIES, ITEMS, VIEWS, JAVA_HASH))

    header = (
        b'{"code":31000,"extFields":{"a":"b","i":"K\\u0001v"},"flag":0,"language":"JAVA","opaque":70000,"remark":"no",'
        b'"serializeTypeCurrentRPC":"JSON","version":399}'
    )

    def request(header: bytes) -> object:
        return requests(header, b"body", RemotingCommand, LANGUAGES, SerializeType.JSON, headers._FIELDS, None)

    def lay(one: Message) -> object:
        table = {prepared.destination.queue: 500}
        return lays(Place(), memory, 0, 400, 400, to_lay(one, prepared, table, 1 << 40, stored=1 << 41))

    def read(data: bytes) -> object:
        sizes = (len(data),)
        return reads(memoryview(data), 900, (900,), sizes, decoded.ReadMessage, decoded._HOSTS, decoded._TOPICS, [], 0)

    return [
        lambda: read(record),
        lambda: read(bytes(200)),
        lambda: parses(record[-9:], None),
        lambda: parses(b"a\x01\xff", None),
        lambda: texts("A\x01b\x02c\x01d", None),
        lambda: texts("\ud800", None),
        lambda: splits(frame, BatchItem, None),
        lambda: splits(frame[:-1], BatchItem, None),
        lambda: runs(unit * 40, 9000, 32, 32, 1 << 20, 32, 1 << 20, None),
        lambda: runs(unit * 40, 9000, 32, 32, 1, 32, 1, None),
        lambda: cuts(memoryview(record), 900, (900, 950), (500, 3)),
        lambda: lay(message),
        lambda: lay(message._replace(properties={"A": "\ud800"})),
        lambda: lay(message._replace(born_host=Host(b"1234", 70_000))),
        lambda: lay(message._replace(born_host=Host(b"12345", 70_000))),
        lambda: hashes("text" * 9, 1 << 31, None),
        lambda: hashes("é", 1 << 31, None),
        lambda: walks(file, 3, 3, 40, 0, LONG_MAX, 64, 0, -1, None),
        lambda: walks(file[:50], 3, 3, 40, 0, LONG_MAX, 64, 0, -1, None),
        lambda: walks(file, 3, 3, 40, 0, LONG_MAX, 1 << 70, 0, -1, None),
        lambda: asks(record, "T", "a", "UNIQ_KEY", "KEYS", None),
        lambda: request(header),
        lambda: request(header[:-1] + b',"code":1}'),
        lambda: answers(STORED_PIECES, b"ID", 1 << 40, 3, 1 << 40, 1 << 30, None),
        lambda: answers(STORED_PIECES, b"ID", 1 << 70, 3, 4, 5, None),
        lambda: chains(record, 0, 1 << 20, 0, None),
        lambda: chains(record, 0, 1 << 70, 0, None),
        lambda: asks(record[:-1], "T", "\ud800", "UNIQ_KEY", "KEYS", None),
        lambda: columns(of_record, record, table, 1 << 40, 0, 9, 999, 99, 999, 99, None),
        lambda: columns(of_record, record[1:], table, 1 << 40, 0, 9, 999, 99, 999, 1 << 70, None),
    ]


@pytest.mark.parametrize("number", range(30))
def test_nothing_is_leaked(number: int) -> None:
    """A reference too many would keep an object at each call, one too few would end this process."""
    call = calls()[number]
    for _ in range(200):
        call()
    before = sys.getallocatedblocks()
    for _ in range(20_000):
        call()
    assert sys.getallocatedblocks() - before < 2000


def test_threads_share_them() -> None:
    each = calls()
    plain = [repr(call()) for call in each]
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(300):
            at = (number + turn) % len(each)
            if not plain[at].startswith(("(<memory", "<")) and repr(each[at]()) != plain[at]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_native_is_loaded_when_there_is_enough_to_do_for_it() -> None:
    lane = FastLane("engine.log.kernels.objects", "properties")
    assert builtin(PROPERTIES) is not None  # so its code is kept
    assert lane.after(natives.MANY - 1) is None
    assert lane.after(1) is not None
    assert lane.after(1)(b"A\x01b", None) == {"A": "b"}  # type: ignore[misc]


def test_where_no_code_is_kept_it_is_compiled_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_directory", lambda: tmp_path / "code")
    lane = FastLane("engine.log.kernels.objects", "properties")
    lane.after(natives.MANY)
    for thread in threading.enumerate():
        if thread.name == "numba: properties":
            thread.join()
    assert lane.after(1) is not None
    assert len(list((tmp_path / "code").iterdir())) == 1


def test_where_no_code_is_kept_nobody_waits_for_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What declares a native imports numba then: not in the thread that asks for the native."""
    monkeypatch.setattr(kept, "_directory", lambda: tmp_path / "code")
    threads: list[str] = []
    lane = FastLane("engine.log.kernels.objects", "properties")
    monkeypatch.setattr(lane, "_native", lambda: threads.append(threading.current_thread().name))
    assert lane.after(natives.MANY) is None
    for thread in threading.enumerate():
        if thread.name == "numba: properties":
            thread.join()
    assert threads == ["numba: properties"]


def test_where_none_can_be_kept_the_plain_way_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(kept, "_directory", lambda: tmp_path / "taken" / "code")
    assert Native(objects.properties.py_func).compiled() is None
    monkeypatch.setattr(kept, "_directory", lambda: None)
    assert Native(objects.properties.py_func).compiled() is None


def test_code_in_doubt_is_no_native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_directory", lambda: tmp_path / "code")
    one = Native(objects.properties.py_func)
    assert one.compiled() is not None
    (path,) = (tmp_path / "code").iterdir()
    sound = path.read_bytes()
    chance = random.Random(1)
    for _ in range(60):
        changed = bytearray(sound)
        changed[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(changed))
        assert one.kept() is None
    path.write_bytes(sound)
    assert one.kept() is not None


def test_a_native_calls_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that wants a function that natives may not call is not run, though its digest is right."""
    monkeypatch.setattr(kept, "_directory", lambda: tmp_path / "code")
    monkeypatch.setattr(kept, "NATIVE_MAY_CALL", kept.NATIVE_MAY_CALL - {"PyDict_New"})
    assert Native(objects.properties.py_func).kept() is None
    compiling = pytest.importorskip("engine.log.kernels.compiling")
    compiling.keep_native(objects.properties.py_func)
    assert not (tmp_path / "code").exists()


def test_all_are_natives_of_their_modules() -> None:
    assert len({(one._module, one._name) for one in (*NATIVES, REQUEST, STORED)}) == len(NATIVES) + 2
    assert all(isinstance(one._native(), Native) for one in (*NATIVES, REQUEST, STORED))
