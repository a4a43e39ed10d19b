"""What no CRC covers: rot of header, topic and properties is told, nothing is cut for it, and its witnesses stay."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import judge, message, properties
from engine.format.hosts import Host
from engine.format.message import Message
from engine.inspect.check.check import check
from engine.inspect.check.verify import verify
from engine.inspect.finding_codes import Severity
from engine.inspect.store.survey import survey
from engine.log.doubts import doubts_of
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.engine.repair.recover.test_stale_tail import record_at
from tests.engine.repair.test_rules import damage, put, settings
from tests.rstore_cli.conftest import Cli, cli
from tests.support import references, stores
from tests.support.checking import check_clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cli"]


@pytest.mark.parametrize("name", references.ALL)
def test_what_apache_wrote_is_not_suspect(name: str, reference_store: Callable[[str], Path]) -> None:
    """By either lane."""
    root = reference_store(name)
    config = references.settings(name).with_changes(store_path_root_dir=root)
    files = survey(Disk(), config)
    for kernels in (False, True):
        with ClosedLog(Disk(), files.log) as log:
            for event in Scanner(log, kernels=kernels).scan(files.log[0].offset, resume=True):
                if isinstance(event, RecordBatch):
                    assert not doubts_of(event)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", None),
        (b"KEYS\x01a b\x02TAGS\x01t", None),
        (b"KEYS\x01a\x02", None),
        (b"KEYS\x01a\x02\x02\x02\x02", None),
        (b"\x02\x02\x02", None),
        (b"EMPTY\x01\x02K\x01v", None),
        ("K\x01grün 😀\x02L\x01a\n\tb".encode(), None),
        (b"K\x01v\x02" + bytes(25), "no value"),
        (b"K\x01v\x02TA", "no value"),
        (b"K\x01v\x02\x01x", "invalid name"),
        (b"K\x01v\x02\x00Y\x01x", "invalid name"),
        (b"K\x01a\x00b", "zero bytes"),
        (b"K\x01a\x1fb\x02L", "no value"),
        (b"K\x01a\x02\x02L\x01b", "no value"),
        (b"\x02K\x01a", "no value"),
    ],
)
def test_the_judge_of_properties(raw: bytes, why: str | None) -> None:
    found = judge.of_properties(raw)
    assert found is None if why is None else found is not None and why in found.reason and not found.unusual


ODD = [b"K\x03Y\x01x", b"K\x01a\x01b", b"K\x01\x1f", b"K\tY\x01x", b"K\x01v\x02L\x01\x7f\x0b\x02"]


@pytest.mark.parametrize("raw", ODD)
def test_what_a_client_may_send_is_unusual(raw: bytes) -> None:
    """Apache's broker takes it, and hands it on as it is (MessageDecoder)."""
    found = judge.of_properties(raw)
    assert found is not None
    assert found.unusual
    assert "control characters" in found.reason
    assert properties.join(properties.parse(raw.decode())).encode() == raw.rstrip(b"\x02")


def texts(topic: bytes, raw: bytes) -> tuple[NDArray[np.uint8], int, int, int]:
    """As in a record, and where topic, properties and end are."""
    data = np.frombuffer(bytes(80) + topic + len(raw).to_bytes(2, "big") + raw + b"more", dtype=np.uint8)
    return data, 80, 82 + len(topic), 82 + len(topic) + len(raw)


def test_the_lanes_agree() -> None:
    """The kernel's rule passes just what the judge passes, its glance nothing more."""
    from engine.log.kernels.doubt import texts_are_sound
    from engine.log.kernels.judge import texts_are_plain

    rng = random.Random(5)
    seen = {(sound, plain): 0 for sound in (False, True) for plain in (False, True)}
    for _ in range(6000):
        pieces = [
            b"k%d\x01" % rng.randrange(99) + bytes(rng.choice(b"abc \n\t\xc3\xa9") for _ in range(rng.randrange(40)))
            for _ in range(rng.randrange(8))
        ]
        raw = bytearray(b"\x02".join(pieces) + b"\x02" * rng.choice([0, 0, 1, 3]))
        if rng.randrange(2):
            raw = raw.replace(b"\n", b"n").replace(b"\t", b"t")
        topic = bytearray(b"t" * rng.choice([1, 5, 30, 61, 62, 63, 100, 127]))
        for _ in range(rng.choice([0, 0, 1, 2])):
            some = topic if rng.randrange(8) == 0 else raw
            if some:
                some[rng.randrange(len(some))] = rng.choice([0, 1, 2, 3, 10, 65])
        sound = judge.of_properties(bytes(raw)) is None and min(topic) >= 32
        plain = texts_are_plain(*texts(topic, raw))
        assert texts_are_sound(*texts(topic, raw)) == sound, (topic, raw)
        assert sound or not plain, (topic, raw)
        seen[sound, plain] += 1
    assert min(seen[False, False], seen[True, False], seen[True, True]) > 500


TAILS = [b"v\x02b", b"\x02b\x01c", b"\x01c", b"\x01c\x02", b"\x01\x02b\x01c", b"\x01c\x02\x01d", b"\x01c\x02b", b""]


@pytest.mark.parametrize("before", range(1, 140))
def test_the_glance_is_the_same_wherever_a_block_ends(before: int) -> None:
    """Control characters at every place of the 64 bytes that are looked at together."""
    from engine.log.kernels.judge import texts_are_plain

    for tail in TAILS:
        raw = b"a" * before + tail
        sound = judge.of_properties(raw) is None
        assert texts_are_plain(*texts(b"topic", raw)) == sound, raw
        assert texts_are_plain(*texts(b"topic", raw + b"x" * 70)) == (judge.of_properties(raw + b"x" * 70) is None), raw


V6 = Host(bytes(15) + b"\1", 9876)
HEADS = [
    (12, struct.pack(">i", -1), "queueId"),
    (12, struct.pack(">i", 1 << 30), "queueId"),
    (20, struct.pack(">q", -5), "queueOffset"),
    (36, struct.pack(">i", 1 << 20), "sysFlag"),
    (40, struct.pack(">q", 1 << 50), "bornTimestamp"),
    (40, struct.pack(">q", judge.BORN_MOST), "bornTimestamp"),
    (40, struct.pack(">q", -1), "bornTimestamp"),
    (52, struct.pack(">i", 1 << 20), "port"),
    (56, struct.pack(">q", 0), "storeTimestamp"),
    (56, struct.pack(">q", 1 << 60), "storeTimestamp"),
    (68, struct.pack(">i", -7), "port"),
    (72, struct.pack(">i", 1 << 25), "reconsumeTimes"),
    (76, struct.pack(">q", -9), "preparedTransactionOffset"),
]


@pytest.mark.leaves("index-witness", "record-suspect", "unit-foreign")
@pytest.mark.parametrize(("at", "data", "field"), HEADS)
@pytest.mark.parametrize("kernels", [False, True])
def test_the_judge_of_heads(tmp_path: Path, at: int, data: bytes, field: str, kernels: bool) -> None:
    root = tmp_path / "store"
    offsets = put(root, 40)
    damage(root, offsets[20] + at, data)
    with ClosedLog(Disk(), survey(Disk(), settings(root)).log) as log:
        batches = [e for e in Scanner(log, kernels=kernels).scan(0) if isinstance(e, RecordBatch)]
    (found,) = [suspect for batch in batches for suspect in doubts_of(batch)]
    assert found.offset == offsets[20]
    assert field in found.reason
    assert not found.unusual


def test_ipv6_hosts_are_judged_where_they_are() -> None:
    record = message.encode(Message("T", b"x", born_host=V6, store_host=V6, born_timestamp=5))
    message.patch(record, 0, queue_offset=0, physical_offset=0, store_timestamp=9)
    assert judge.of_record(bytes(record), b"T", b"") is None
    record[40:48] = struct.pack(">q", 10 + judge.SKEW_MS)
    ahead = f"bornTimestamp {10 + judge.SKEW_MS} is ahead of storeTimestamp 9"
    assert judge.of_record(bytes(record), b"T", b"") == (ahead, True)
    assert judge.of_record(bytes(record), b"T", b"K\x01\x1f") == (ahead, True)
    assert judge.of_record(bytes(record), b"T", b"K") == ("property 1 has no value: 'K'", False)
    record[48 + 16 : 48 + 20] = struct.pack(">i", -1)
    assert judge.of_record(bytes(record), b"T", b"") == ("a host's port is out of range: -1, 9876", False)


def rot(root: Path, offset: int) -> None:
    """The last 25 bytes of a record are zeros: of its properties."""
    size = len(record_at(root, offset))
    damage(root, offset + size - 25, bytes(25))


@pytest.mark.leaves("index-witness", "record-suspect", "unit-witness")
def test_properties_that_rot_are_told_and_their_witnesses_stay(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    offsets = put(root, 200)
    hurt = [offsets[12], offsets[190]]
    for offset in hurt:
        rot(root, offset)
    before = stores.contents(root)
    found = verify(Disk(), settings(root))
    assert not found.bad
    assert [one.offset for one in found.suspect] == hurt
    assert found.records == 200
    ran = cli("--store", root, "verify-crc")
    assert ran.code == 1
    assert all(str(offset) in ran.out for offset in hurt)
    assert f"Next: rstore --store {root} check" in ran.out
    assert cli("--store", root, "verify-crc", "--json").json["suspectRecords"] == 2
    looked = check(Disk(), settings(root))
    assert not looked.ok
    codes = {one.code for one in looked.findings}
    assert codes >= {"record-suspect", "index-witness", "unit-witness"}
    assert codes <= {"record-suspect", "index-witness", "unit-witness", "topic-unknown"}
    assert all("reindex replaces" in one.hint for one in looked.findings if one.code.endswith(("suspect", "witness")))
    assert stores.contents(root) == before


@pytest.mark.leaves("index-witness", "record-suspect", "unit-witness")
@pytest.mark.parametrize("options", [{}, {"whole": True}, {"bridge": True}, {"cut": True}])
def test_no_repair_cuts_for_it_or_takes_its_witnesses(tmp_path: Path, options: dict[str, bool]) -> None:
    root = tmp_path / "store"
    offsets = put(root, 200)
    rot(root, offsets[190])
    rot(root, offsets[12])
    before = stores.contents(root)
    plan = plan_recover(Disk(), settings(root), **options)
    assert plan.refusal is None
    apply(Disk(), plan)
    after = stores.contents(root)
    assert {path: after[path] for path in before if path != "lock"} == {p: d for p, d in before.items() if p != "lock"}


UNUSUAL = [
    Message("T", b"body", properties={"KEYS": "a\x1fb", "TAGS": "t"}),
    Message("T", b"body", properties={"K\x1f": "v"}),
    Message("T", b"body", properties={"K": "a\x01b"}),
    Message("T", b"body", born_timestamp=judge.STORED_MOST - 1),
]


def test_what_clients_sent_is_noted_and_no_fault(tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "store"
    put(root, 20)
    with MessageStore.open(settings(root)) as store:
        for one in UNUSUAL:
            assert store.put(one).ok
    found = verify(Disk(), settings(root))
    assert found.clean
    assert (found.suspects, found.unusuals) == (0, len(UNUSUAL))
    ran = cli("--store", root, "verify-crc")
    assert ran.code == 0
    assert f"{len(UNUSUAL)} unusual records" in ran.out
    assert "No damage." in ran.out
    told = cli("--store", root, "verify-crc", "--json").json
    assert told["unusualRecords"] == len(UNUSUAL)
    assert [one["reason"].split()[0] for one in told["unusual"]] == ["property", "the", "property", "bornTimestamp"]
    looked = check_clean(root, settings(root))
    (note,) = [one for one in looked.findings if one.code == "record-unusual"]
    assert (note.severity, note.count) == (Severity.INFO, len(UNUSUAL))


@pytest.mark.leaves("index-witness", "record-suspect", "unit-witness")
@pytest.mark.parametrize("what", ["KEYS", "TAGS"])
def test_an_unusual_record_that_a_unit_or_an_entry_denies_is_suspect(tmp_path: Path, what: str) -> None:
    """A byte of its key, or of its tag, became a control character; what was written with it says so."""
    root = tmp_path / "store"
    offsets = put(root, 200)
    at = record_at(root, offsets[30]).rindex(what.encode()) + len(what) + 1
    damage(root, offsets[30] + at, b"\x1f")
    found = verify(Disk(), settings(root))
    assert (found.suspects, [one.offset for one in found.unusual]) == (0, [offsets[30]])
    looked = check(Disk(), settings(root))
    witness = "index-witness" if what == "KEYS" else "unit-witness"
    assert {one.code for one in looked.findings if one.severity is not Severity.INFO} == {"record-suspect", witness}
    (suspect,) = [one for one in looked.findings if one.code == "record-suspect"]
    assert "disagrees" in suspect.message
    before = stores.contents(root)
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert plan.refusal is None
    apply(Disk(), plan)
    after = stores.contents(root)
    assert {path: after[path] for path in before if path != "lock"} == {p: d for p, d in before.items() if p != "lock"}


@pytest.mark.leaves("record-suspect", "unit-witness")
def test_by_the_counter_as_by_the_scanner(tmp_path: Path) -> None:
    """A log that is long enough for kernels."""
    root = tmp_path / "store"
    config = StoreConfig(store_path_root_dir=root).with_changes(mapped_file_size_commit_log=32 << 20)
    offsets = []
    with MessageStore.open(config) as store:
        for i in range(400):
            result = store.put(Message("T", bytes([i % 251]) * 50_000, properties={"KEYS": f"k{i}", "TAGS": "tag"}))
            assert result.append is not None
            offsets.append(result.append.physical_offset)
    path = root / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        for offset in (offsets[3], offsets[390]):
            file.seek(offset)
            size = int.from_bytes(file.read(4), "big")
            file.seek(offset + size - 6)
            file.write(bytes(6))
    found = verify(Disk(), config)
    assert [one.offset for one in found.suspect] == [offsets[3], offsets[390]]
    assert not found.bad
