"""FORMAT.md says what the code does: every table, every byte of the worked example."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import format as layouts
from engine.files.disk import Disk
from engine.files.rocksdb import RocksDatabase
from engine.format import (
    batch,
    batch_unit,
    checkpoint,
    dledger_entry,
    epoch_file,
    hashing,
    index_file,
    message,
    properties,
    property_crc,
    queue_ext,
    queue_unit,
    record,
    rocksdb_queue,
    rocksdb_store,
    sysflag,
    timer_check,
    timer_log,
    timer_wheel,
)
from engine.format.index_file import IndexLayout
from engine.format.record import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_SIZE,
    POSITION_BORN_HOST,
    POSITION_MAGIC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
    POSITION_SYS_FLAG,
    store_timestamp_position,
)
from tests.docs.markdown import Table, code_blocks, hexdump, section, tables
from tests.support import dledger, newer

FORMAT = Path(layouts.__file__).with_name("FORMAT.md")
CODES = {"i16": "h", "i32": "i", "u32": "I", "i64": "q", "8": "8s"}


def fields_of(layout: type) -> list[str]:
    return [field.name for field in dataclasses.fields(layout)]


LAYOUTS: list[tuple[str, struct.Struct, list[str] | None]] = [
    ("Record", record.V4_HEAD, None),
    ("Blank", record.SIZE_AND_MAGIC, None),
    ("Batch", batch._HEAD, None),
    ("Queue unit", queue_unit.UNIT, fields_of(queue_unit.QueueUnit)),
    ("Unit of a batch queue", batch_unit.BATCH_UNIT, fields_of(batch_unit.BatchUnit)),
    ("Consume queues in RocksDB", rocksdb_queue._UNIT, fields_of(rocksdb_queue.RocksDBUnit)),
    ("Extension unit", queue_ext._HEAD, None),
    ("Index header", index_file._HEADER, fields_of(index_file.IndexHeader)),
    ("Index entry", index_file._ENTRY, fields_of(index_file.IndexEntry)),
    ("Checkpoint", checkpoint._FIELDS, fields_of(checkpoint.Checkpoint)),
    ("What RocketMQ 5 adds", checkpoint._REPLICA_FIELDS, fields_of(checkpoint.ReplicaOffsets)),
    ("Timer log unit", timer_log._UNIT, fields_of(timer_log.TimerUnit)),
    ("Timer log blank", timer_log._BLANK, fields_of(timer_log.TimerBlank)),
    ("Timer wheel slot", timer_wheel._SLOT, fields_of(timer_wheel.TimerSlot)),
    ("Timer checkpoint", timer_check._FIELDS, fields_of(timer_check.TimerCheck)),
    ("DLedger entry", dledger_entry._HEAD, fields_of(dledger_entry.DLedgerEntry)),
    ("DLedger index unit", dledger_entry._INDEX_UNIT, fields_of(dledger_entry.DLedgerIndexUnit)),
]


def layout(title: str) -> Table:
    return tables(section(FORMAT, title))[0]


@pytest.mark.parametrize(("title", "declared", "names"), LAYOUTS, ids=[title for title, _, _ in LAYOUTS])
def test_a_layout_is_the_struct(title: str, declared: struct.Struct, names: list[str] | None) -> None:
    table = layout(title)
    at = first = checkpoint.FIELDS_SIZE if title.startswith("What") else 0
    for row in table:
        assert int(row["at"]) == at, row
        assert int(row["size"]) == struct.calcsize(">" + CODES[row["type"]]), row
        at += int(row["size"])
    assert at - first == declared.size
    assert ">" + "".join(CODES[row["type"]] for row in table) == declared.format
    if names is not None:
        assert [row["field"] for row in table] == names


@pytest.mark.parametrize(
    ("field", "position"),
    [
        ("magicCode", POSITION_MAGIC),
        ("queueOffset", POSITION_QUEUE_OFFSET),
        ("physicalOffset", POSITION_PHYSICAL_OFFSET),
        ("sysFlag", POSITION_SYS_FLAG),
        ("bornHost", POSITION_BORN_HOST),
        ("storeTimestamp", store_timestamp_position(0)),
    ],
)
def test_positions_in_a_record(field: str, position: int) -> None:
    (row,) = (row for row in layout("Record") if row["field"] == field)
    assert int(row["at"]) == position


def test_array_layouts_are_the_same() -> None:
    arrays = {
        "Queue unit": queue_unit.unit_dtype(),
        "Index entry": index_file.entry_dtype(),
        "Timer log unit": timer_log.unit_dtype(),
        "Timer wheel slot": timer_wheel.slot_dtype(),
        "DLedger entry": dledger_entry.head_dtype(),
        "DLedger index unit": dledger_entry.index_dtype(),
    }
    for title, dtype in arrays.items():
        assert dtype.fields is not None
        found = [(name, place[1], place[0].itemsize) for name, place in dtype.fields.items()]
        assert found == [(row["field"], int(row["at"]), int(row["size"])) for row in layout(title)]


def test_flags_are_all_there() -> None:
    rows = tables(section(FORMAT, "Record"))[1]
    stated = {row["name"]: int(row["bits"], 16) for row in rows}
    declared = {
        name: value for name, value in vars(sysflag).items() if name.isupper() and not name.endswith(("_MASK", "_NONE"))
    }
    assert stated == declared


def test_hashes() -> None:
    rows = tables(section(FORMAT, "Hashes"))[0]
    assert any(int(row["hashCode"]) < 0 < int(row["as an index key"]) for row in rows)
    for row in rows:
        assert hashing.java_hash(row["text"]) == int(row["hashCode"])
        assert hashing.index_key_hash(row["text"]) == int(row["as an index key"])


def test_magics_and_sizes_in_the_text() -> None:
    text = FORMAT.read_text(encoding="utf-8")
    for number in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC, queue_unit.PRE_BLANK_SIZE):
        assert f"0x{number:08X}" in text
    assert f"takes {MIN_RECORD_SIZE} bytes + body" in text
    assert f"A file of {checkpoint.FILE_SIZE} bytes" in text
    assert f"at most {message.TOPIC_MAX_LENGTH}" in text
    assert f"One file of {timer_wheel.SLOTS} slots, {timer_wheel.FILE_SIZE} bytes" in text
    assert f"whose size is not {timer_log.UNIT_SIZE}, or whose magic is above {timer_log.MAGIC_MOST}" in text
    assert f"only if it and {timer_log.BLANK_SIZE} bytes more fit" in text


def test_every_module_with_a_layout_is_named() -> None:
    text = FORMAT.read_text(encoding="utf-8")
    for module in FORMAT.parent.glob("*.py"):
        if "struct.Struct(" in module.read_text(encoding="utf-8") and module.stem != "hosts":
            assert f"`{module.name}`" in text, module.name


class TestTheExample:
    record_at, record = hexdump(code_blocks(section(FORMAT, "A record"))[0])
    unit_at, unit = hexdump(code_blocks(section(FORMAT, "A queue unit"))[0])
    header, slot, entry = map(hexdump, code_blocks(section(FORMAT, "An index file")))
    checkpoint_at, checkpoint = hexdump(code_blocks(section(FORMAT, "A checkpoint"))[0])
    layout = IndexLayout(200, 800)
    number = 474

    def test_the_record_has_the_values_stated(self) -> None:
        found = message.decode(self.record)
        text = section(FORMAT, "A record")
        known = {
            "body length": str(len(found.body)),
            "topic length": str(len(found.topic)),
            "properties length": str(len(found.properties_raw)),
            "body": found.body.hex(),
            "properties": ", ".join(f"{name}={value}" for name, value in found.properties.items()),
        }
        for row in tables(text)[0]:
            assert row["value"] == known.get(row["field"], str(getattr(found, row["field"], None))), row
        assert b"".join(bytes.fromhex(row["bytes"]) for row in tables(text)[0]) == self.record
        assert found.crc_ok
        assert found.physical_offset == self.record_at
        assert f"The body is the text `{found.body.decode()}`. Its id is {found.msg_id}." in text

    def test_every_field_of_a_record_is_in_the_table(self) -> None:
        stated = {row["field"] for row in tables(section(FORMAT, "A record"))[0]}
        assert {name.removesuffix("_raw") for name in message.StoredMessage._fields} <= stated

    def test_the_unit_has_the_values_stated(self) -> None:
        found = queue_unit.decode(self.unit)
        assert stated_in("A queue unit")[0] == dataclasses.asdict(found)
        record = message.decode(self.record)
        assert self.unit_at == record.queue_offset * queue_unit.UNIT_SIZE
        assert (found.physical_offset, found.size) == (record.physical_offset, record.total_size)
        assert found.tags_code == hashing.tags_code(record.properties["TAGS"])

    def test_the_batch_unit_has_the_values_stated(self, tmp_path: Path) -> None:
        at, data = hexdump(code_blocks(section(FORMAT, "A batch queue unit"))[0])
        found = batch_unit.decode(data)
        assert stated_in("A batch queue unit")[0] == dataclasses.asdict(found)
        assert f"messages {found.base_offset} to {found.end_offset - 1}" in section(FORMAT, "A batch queue unit")
        queue = newer.unpack("batch", tmp_path) / "batchconsumequeue" / "B" / "0" / "00000000000000000000"
        assert queue.read_bytes()[at : at + len(data)] == data

    def test_the_unit_of_a_compacted_topic_has_the_values_stated(self, tmp_path: Path) -> None:
        title = "A unit of a compacted topic"
        at, data = hexdump(code_blocks(section(FORMAT, title))[0])
        assert stated_in(title)[0] == dataclasses.asdict(batch_unit.decode(data))
        queue = (
            newer.unpack("compaction", tmp_path) / "compaction" / "compactionCq" / "C" / "0" / "00000000000000000000"
        )
        assert queue.read_bytes()[at : at + len(data)] == data

    def test_the_unit_in_rocksdb_has_the_values_stated(self, tmp_path: Path) -> None:
        pytest.importorskip("rocksdict")
        title = "A unit in RocksDB"
        unit_key, unit, end_key, end = (hexdump(block)[1] for block in code_blocks(section(FORMAT, title)))
        assert rocksdb_queue.decode_unit_key(unit_key) == rocksdb_queue.UnitKey(b"Orders", 1, 2)
        assert stated_in(title)[0] == dataclasses.asdict(rocksdb_queue.decode_unit(unit))
        assert rocksdb_queue.decode_offset_key(end_key) == rocksdb_queue.OffsetKey(b"Orders", 1, is_max=True)
        assert rocksdb_queue.decode_offset(end) == (13958, 14)
        place = newer.unpack("rocksdb-5.3.3", tmp_path) / "consumequeue"
        with RocksDatabase(Disk(), str(place)) as database:
            for family, key, value in ((rocksdb_queue.UNITS, unit_key, unit), (rocksdb_queue.OFFSETS, end_key, end)):
                (item,) = database.page(family, key, most=1).items()
                assert (bytes(item.key), bytes(item.value)) == (key, value)

    def test_the_entries_of_rocksdbstore_have_the_values_stated(self, tmp_path: Path) -> None:
        pytest.importorskip("rocksdict")
        title = "Entries of rocksdbstore"
        data = [hexdump(block)[1] for block in code_blocks(section(FORMAT, title))]
        families = (rocksdb_store.INDEX, rocksdb_store.TIMER, rocksdb_store.TRANSACTIONS)
        place = newer.unpack("rocksdb-store", tmp_path) / "rocksdbstore"
        with RocksDatabase(Disk(), str(place)) as database:
            for family, key, value, stated in zip(families, data[::2], data[1::2], stated_in(title), strict=True):
                entry = rocksdb_store.decode(family, key, value)
                assert entry is not None
                assert stated.items() <= dataclasses.asdict(entry).items()
                (item,) = database.page(family, key, most=1).items()
                assert (bytes(item.key), bytes(item.value)) == (key, value)

    def test_the_header_has_the_values_stated(self) -> None:
        at, data = self.header
        assert at == 0
        assert stated_in("An index file")[0] == dataclasses.asdict(index_file.decode_header(data))

    def test_the_slot_and_the_entry_have_the_values_stated(self) -> None:
        found = index_file.decode_entry(self.entry[1], 0)
        assert stated_in("An index file")[1] == dataclasses.asdict(found)
        record = message.decode(self.record)
        key = properties.key_words(record.properties["KEYS"])[0]
        assert found.key_hash == hashing.index_key_hash(f"{record.topic}#{key}")
        begin = index_file.decode_header(self.header[1]).begin_timestamp
        assert found.time_diff == index_file.time_diff(record.store_timestamp, begin)
        assert self.entry[0] == self.layout.entry_position(self.number)
        assert self.slot[0] == self.layout.slot_position(found.key_hash % self.layout.slots)

    def test_the_checkpoint_has_the_values_stated(self) -> None:
        found = checkpoint.decode(self.checkpoint)
        assert stated_in("A checkpoint")[0] == dataclasses.asdict(found)
        assert f"stored at {found.min_timestamp} or before" in section(FORMAT, "A checkpoint")

    def test_the_chain_leads_from_the_slot_to_the_entry(self, fixture_store: Callable[[str], Path]) -> None:
        data = min((fixture_store("clean-small") / "index").iterdir()).read_bytes()
        number, passed = int.from_bytes(self.slot[1], "big"), []
        while number not in (self.number, index_file.NO_ENTRY):
            passed.append(str(number))
            number = index_file.decode_entry(data, self.layout.entry_position(number)).previous
        assert f"leads to it by {', '.join(passed)}." in section(FORMAT, "An index file")

    def test_the_bytes_are_in_the_fixture(self, fixture_store: Callable[[str], Path]) -> None:
        store = fixture_store("clean-small")
        queue = store / "consumequeue" / "audit_log-x" / "1"
        index = min((store / "index").iterdir())
        places = [
            (store / "commitlog" / "00000000000000131072", self.record_at - 131072, self.record),
            (queue / "00000000000000000000", self.unit_at, self.unit),
            *((index, at, data) for at, data in (self.header, self.slot, self.entry)),
            (store / "checkpoint", self.checkpoint_at, self.checkpoint),
        ]
        for path, at, data in places:
            assert path.read_bytes()[at : at + len(data)] == data
        assert f"index/{index.name}" in section(FORMAT, "An index file")


def test_the_example_of_an_entry(tmp_path: Path) -> None:
    at, data = hexdump(code_blocks(section(FORMAT, "A DLedger entry"))[0])
    one = dledger_entry.decode(data)
    assert stated_in("A DLedger entry")[0] == dataclasses.asdict(one)
    assert one.encode() == data
    first = dledger.entry_files(dledger.unpack("mixed4", tmp_path))[0]
    assert first.read_bytes()[at : at + len(data)] == data
    start = int(first.name)
    text = section(FORMAT, "A DLedger entry")
    assert f"{start} + {at} + {dledger_entry.HEAD_SIZE} = {one.pos + dledger_entry.HEAD_SIZE}." in text


class TestTheExampleOfRocketMQ5:
    unit_at, unit = hexdump(code_blocks(section(FORMAT, "A timer log unit"))[0])
    slot_at, slot = hexdump(code_blocks(section(FORMAT, "A timer wheel slot"))[0])
    check_at, check = hexdump(code_blocks(section(FORMAT, "A timer checkpoint"))[0])
    epochs_at, epochs = hexdump(code_blocks(section(FORMAT, "An epoch file"))[0])

    def test_the_bytes_have_the_values_stated(self) -> None:
        unit, slot = timer_log.decode(self.unit), timer_wheel.decode(self.slot)
        assert stated_in("A timer log unit")[0] == dataclasses.asdict(unit)
        assert stated_in("A timer wheel slot")[0] == dataclasses.asdict(slot)
        assert stated_in("A timer checkpoint")[0] == dataclasses.asdict(timer_check.decode(self.check))
        assert f"{unit.write_time} + {unit.delay} = {unit.due_time}." in section(FORMAT, "A timer log unit")
        assert unit.topic_hash == hashing.java_hash("Late")
        number = timer_wheel.slot_of(slot.due)
        assert f"{slot.due} % {timer_wheel.SLOTS} = {number}, at" in section(FORMAT, "A timer wheel slot")
        assert self.slot_at == number * timer_wheel.SLOT_SIZE
        assert epoch_file.decode(self.epochs) == (epoch_file.EpochEntry(1, 0),)
        assert epoch_file.encode((epoch_file.EpochEntry(1, 0),)) == self.epochs

    def test_the_bytes_are_in_the_fixtures(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        into = tmp_path_factory.mktemp("rocketmq5")
        timer, controller = newer.unpack("timer", into), newer.unpack("controller", into)
        places = (
            (timer / "timerlog" / "00000000000000000000", self.unit_at, self.unit),
            (timer / "timerwheel", self.slot_at, self.slot),
            (timer / "config" / "timercheck", self.check_at, self.check),
            (controller / "epochFileCheckpoint", self.epochs_at, self.epochs),
        )
        for path, at, data in places:
            with path.open("rb") as file:
                file.seek(at)
                assert file.read(len(data)) == data
        assert (controller / "epochFileCheckpoint").stat().st_size == len(self.epochs)


class TestThePropertyCrc:
    at, record = hexdump(code_blocks(section(FORMAT, "The property CRC of a record"))[0])

    def test_the_layout_is_the_declaration(self) -> None:
        rows = tables(section(FORMAT, "Property CRC"))[0]
        sizes = [len(property_crc.FRONT), property_crc.DIGITS, len(property_crc.LAST)]
        assert [int(row["size"]) for row in rows] == sizes
        places = [sum(sizes[:k]) - property_crc.SIZE for k in range(3)]
        assert [int(row["at"].replace("totalSize − ", "-")) for row in rows] == places
        text = section(FORMAT, "Property CRC")
        assert f"`{property_crc.NAME}\\x01`" in text
        assert f"at least {property_crc.LEAST_ALIKE} of the {len(property_crc.FRONT + property_crc.LAST)}" in text

    def test_the_record_has_the_values_stated(self) -> None:
        text = section(FORMAT, "The property CRC of a record")
        rows = tables(text)[0]
        assert b"".join(bytes.fromhex(row["bytes"]) for row in rows) == self.record[-property_crc.SIZE :]
        found = message.decode(self.record)
        assert (found.topic, found.queue_id, found.queue_offset, found.physical_offset) == ("T", 1, 0, self.at)
        assert rows[1]["value"] == found.properties[property_crc.NAME]
        crc = property_crc.compute(self.record)
        assert f"have the CRC-32 {crc}: the digits, read backwards, are {crc:010}." in text
        assert f"Its {len(self.record)} bytes without the last {property_crc.SIZE} " in text
        assert property_crc.is_sealed(self.record)

    def test_the_bytes_are_in_the_fixture(self, tmp_path: Path) -> None:
        store = newer.unpack("property-crc", tmp_path)
        log = (store / "commitlog" / "00000000000000000000").read_bytes()
        assert log[self.at : self.at + len(self.record)] == self.record


def stated_in(title: str) -> list[dict[str, int]]:
    """The values of each table of numbers in a section, by field."""
    return [{row["field"]: int(row["value"]) for row in table} for table in tables(section(FORMAT, title))]
