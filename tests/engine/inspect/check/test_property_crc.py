"""Property CRCs of RocketMQ 5 in stores: each changed byte is told, and what a client sent is no damage."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import property_crc
from engine.format.message import Message
from engine.format.record import (
    POSITION_BORN_HOST,
    POSITION_PHYSICAL_OFFSET,
    POSITION_RECONSUME_TIMES,
    total_size_at,
)
from engine.inspect.check.check import check as check_store
from engine.inspect.check.verify import VerifyResult, verify
from engine.log.property_crcs import CLIENTS, MISMATCH, MISSING
from tests.rstore_cli.conftest import Cli, cli
from tests.support import newer, sealed_logs, stores

__all__ = ["cli"]

pytestmark = pytest.mark.leaves("record-crc")
FAKE = b"__CRC32#\x011234567890\x02"
SEGMENT = 1 << 16


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return newer.unpack("property-crc", tmp_path_factory.mktemp("rocketmq5"))


@pytest.fixture
def copied(real: Path, tmp_path: Path) -> Path:
    return stores.copy(real, tmp_path / "store")


def first_segment(root: Path) -> Path:
    return min((root / "commitlog").iterdir())


def places(log: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while size := total_size_at(log, at):
        yield at, size
        at += size


def config(root: Path, **other: str) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root, other=other)


def look(root: Path, **other: str) -> VerifyResult:
    return verify(Disk(), config(root, **other))


@pytest.mark.leaves
def test_records_of_a_real_broker_have_theirs(real: Path) -> None:
    found = look(real)
    assert (found.records, found.property_crcs, found.crc_mismatches, found.bad) == (20, 20, 0, [])
    assert look(real, forceVerifyPropCRC="true").clean
    log = first_segment(real).read_bytes()
    for at, size in places(log):
        assert property_crc.is_sealed(log[at : at + size])
        assert log[at + size - property_crc.SIZE - 1] == 2  # it is a property of its own


@pytest.mark.leaves
@pytest.mark.parametrize("number", [0, 7, 19])
def test_each_byte_of_a_real_record_is_covered(number: int, copied: Path) -> None:
    """Header, body, topic, properties, and the CRC's own digits: none is left out, as nothing is filled in later."""
    path = first_segment(copied)
    log = path.read_bytes()
    at, size = list(places(log))[number]
    whole, reasons = look(copied), set()
    with path.open("r+b", buffering=0) as file:
        for position in range(at, at + size):
            os.pwrite(file.fileno(), bytes([log[position] ^ random.Random(position).randrange(1, 256)]), position)
            found = look(copied)
            assert {bad.offset for bad in found.bad} == {at}, position - at
            reasons |= {bad.reason for bad in found.bad}
            if MISMATCH in {bad.reason for bad in found.bad}:
                assert (found.records, found.property_crcs, found.crc_mismatches) == (20, 20, 1)
            os.pwrite(file.fileno(), log[position : position + 1], position)
    assert {MISMATCH, "body CRC mismatch"} < reasons
    assert look(copied).bad == whole.bad == []


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_says_what_and_where(jobs: str, copied: Path, cli: Cli) -> None:
    path = first_segment(copied)
    at, _ = list(places(path.read_bytes()))[3]
    with path.open("r+b") as file:
        file.seek(at + POSITION_RECONSUME_TIMES + 3)
        file.write(b"\x05")
    ran = cli("--store", copied, "verify-crc", "--json", "--jobs", jobs)
    assert ran.code == 1
    assert (ran.json["propertyCrcRecords"], ran.json["propertyCrcMismatches"]) == (20, 1)
    assert ran.json["damage"] == [{"physicalOffset": at, "file": path.name, "reason": "property CRC mismatch"}]
    text = cli("--store", copied, "verify-crc", "--jobs", jobs)
    assert text.code == 1
    assert "20 records with a property CRC: it matches in 19" in text.out
    assert "property CRC mismatch" in text.out
    checked = cli("--store", copied, "check", "--json").json
    (finding,) = [one for one in checked["findings"] if one["severity"] == "error"]
    assert (finding["code"], checked["ok"], checked["next"]["command"]) == ("record-crc", False, None)
    assert str(at) in finding["where"]


@pytest.mark.leaves("record-crc", "record-displaced")
def test_a_changed_offset_is_told_twice(copied: Path) -> None:
    path = first_segment(copied)
    with path.open("r+b") as file:
        file.seek(POSITION_PHYSICAL_OFFSET)
        file.write(b"\x01")
    assert {bad.reason.partition(" (")[0] for bad in look(copied).bad} == {
        "a displaced record: its physicalOffset is another one",
        MISMATCH,
    }


ENDS = ("checkpoint-missing", "unit-missing", "index-missing", "config-missing", "topic-unknown")


def mixed(root: Path, older: int, sealed: int, fakes: frozenset[int] = frozenset()) -> list[tuple[int, int]]:
    """A store whose broker wrote no property CRCs at first, with a client's property of that name in some records."""
    rows = (
        (Message("T", b"%05d" % i * 40, 0, {"KEYS": f"k{i}"}), None if i >= older else FAKE if i in fakes else b"")
        for i in range(older + sealed)
    )
    return sealed_logs.write(root, rows, SEGMENT)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.leaves(*ENDS)
def test_older_records_have_none(force: bool, tmp_path: Path) -> None:
    where = mixed(tmp_path, 300, 300)
    found = look(tmp_path, forceVerifyPropCRC=str(force).lower())
    assert (found.records, found.property_crcs, found.crc_mismatches) == (600, 300, 0)
    assert {bad.reason for bad in found.bad} == ({MISSING} if force else set())
    codes = {one.code for one in check_store(Disk(), config(tmp_path, forceVerifyPropCRC=str(force).lower())).findings}
    assert ("record-crc-missing" in codes, "record-crc" in codes) == (force, False)
    if force:  # one range a segment
        assert sum(bad.length for bad in found.bad) == sum(size for _, size in where[:300])
        assert len(found.bad) == len({at // SEGMENT for at, _ in where[:300]})


@pytest.mark.leaves(*ENDS)
def test_what_a_client_sent_to_an_older_broker_is_no_damage(tmp_path: Path) -> None:
    """Not in the middle, not at a segment's end, not several side by side; of a forced check it is damage."""
    segments = [at // SEGMENT for at, _ in mixed(tmp_path / "plain", 300, 300)]
    last = segments.index(1) - 1  # of the first segment, as records of fakes are larger
    fakes = frozenset({3, 40, 41, 42, *range(last - 30, last + 1)})
    where = mixed(tmp_path / "store", 300, 300, fakes)
    found = look(tmp_path / "store")
    assert (found.bad, found.property_crcs, found.crc_mismatches) == ([], 300, 0)
    assert {(one.offset, one.reason) for one in found.unusual} == {(where[i][0], CLIENTS) for i in fakes}
    assert found.clean
    findings = check_store(Disk(), config(tmp_path / "store")).findings
    assert sum(one.count for one in findings if one.code == "record-unusual") == len(fakes)
    assert "record-crc" not in {one.code for one in findings}
    forced = look(tmp_path / "store", forceVerifyPropCRC="true")
    assert forced.crc_mismatches == len(fakes)


@pytest.mark.leaves(*ENDS)
def test_a_store_without_property_crcs_has_none_to_judge(tmp_path: Path) -> None:
    for fakes in (frozenset({1, 5}), frozenset(range(50))):
        root = tmp_path / str(len(fakes))
        mixed(root, 50, 0, fakes)
        found = look(root)
        assert (found.clean, found.unusuals, found.property_crcs, found.records) == (True, 0, 0, 50)
        assert not {"record-crc", "record-unusual"} & {one.code for one in check_store(Disk(), config(root)).findings}


@pytest.mark.leaves(*ENDS)
def test_many_mismatches_are_counted(tmp_path: Path) -> None:
    """More than have room at first, and a broken one at the log's end, where nothing follows."""
    where = mixed(tmp_path, 0, 600)
    for at, _ in where[100::2]:
        with (tmp_path / "commitlog" / f"{at // SEGMENT * SEGMENT:020d}").open("r+b") as file:
            file.seek(at % SEGMENT + POSITION_BORN_HOST)
            file.write(b"\x42")
    found = look(tmp_path)
    assert [bad.offset for bad in found.bad] == [at for at, _ in where[100::2]]
    assert (found.property_crcs, found.crc_mismatches) == (600, 250)
