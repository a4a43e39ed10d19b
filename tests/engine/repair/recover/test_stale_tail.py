"""Whole records that lie behind the log's end are set aside, not taken in; a clock that goes back loses nothing.

The stale records are made here, byte by byte: copies of records of the log, or of another life of it, at their old
place or with the place where they now lie written into them.
"""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format.index_file import decode_header
from engine.format.message import Message, decode
from engine.format.record import POSITION_PHYSICAL_OFFSET, POSITION_QUEUE_OFFSET, store_timestamp_position
from engine.inspect.check.check import check
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.engine.repair.test_rules import SIZES, damage, messages, put, settings
from tests.support import logs, stores
from tests.support.checking import check_clean
from tests.support.wide import sample

SEGMENT = SIZES["mapped_file_size_commit_log"]


@pytest.fixture(autouse=True)
def _no_two_messages_in_one_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail of the very store time that the log ends with is no older than it: nothing tells that it is stale."""
    now_ms, last = Disk.now_ms, 0

    def later(disk: Disk) -> int:
        nonlocal last
        last = max(last + 1, now_ms(disk))
        return last

    monkeypatch.setattr(Disk, "now_ms", later)


def record_at(root: Path, offset: int) -> bytes:
    with (root / "commitlog" / f"{offset - offset % SEGMENT:020d}").open("rb") as file:
        file.seek(offset % SEGMENT)
        size = int.from_bytes(file.read(4), "big")
        file.seek(offset % SEGMENT)
        return file.read(size)


def end_of(root: Path, offsets: list[int]) -> int:
    return offsets[-1] + len(record_at(root, offsets[-1]))


def leave(root: Path, end: int, records: list[bytes], *, in_place: bool) -> int:
    """Write records behind the log's end, as far as its file has room; how many."""
    count = 0
    for record in records:
        if end % SEGMENT + len(record) + 8 > SEGMENT:
            break
        data = bytearray(record)
        if in_place:
            struct.pack_into(">q", data, POSITION_PHYSICAL_OFFSET, end)
        damage(root, end, bytes(data))
        end += len(record)
        count += 1
    return count


def recovered(root: Path, **options: bool) -> RecoverPlan:
    """Planned, done, done again, checked."""
    plan = plan_recover(Disk(), settings(root), **options)
    apply(Disk(), plan)
    assert not plan_recover(Disk(), settings(root), **options).changed
    assert not plan_recover(Disk(), settings(root), whole=True).changed
    check_clean(root, settings(root))
    return plan


@pytest.mark.wide
@pytest.mark.parametrize("options", [{}, {"bridge": True}, {"cut": True}], ids=["plain", "bridge", "cut"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("seed", sample(range(4), 2))
def test_a_stale_tail_is_set_aside(
    tmp_path: Path, seed: int, crashed: bool, in_place: bool, options: dict[str, bool]
) -> None:
    """From one record to many, from anywhere in the log, at their own place or with this one written into them."""
    rng = random.Random(seed)
    root = tmp_path / "store"
    offsets = put(root, 150 + rng.randrange(20))
    end = end_of(root, offsets)
    first = rng.randrange(len(offsets) - 60)
    count = rng.choice([1, 2, 7, 8, 20])
    stale = leave(root, end, [record_at(root, o) for o in offsets[first : first + count]], in_place=in_place)
    assert stale, "no room in the file"
    if crashed:
        (root / "abort").touch()
    before = stores.contents(root)
    found = check(Disk(), settings(root))
    assert {f.code for f in found.findings if f.code != "not-closed"} == {"log-stale"}
    assert found.counts["byCode"]["log-stale"] == stale
    assert found.counts["records"] == len(offsets)
    assert found.next is not None
    assert (found.next.command or "").endswith(" recover")
    plan = recovered(root, **options)
    assert plan.refusal is None
    assert plan.log.end.end == end
    assert plan.log.end.stale is not None
    assert (plan.log.end.stale.offset, plan.log.end.stale.records) == (end, stale)
    assert any("stale" in problem for problem in plan.problems)
    assert not plan.log.mends
    undo(Disk(), plan_undo(Disk(), settings(root)))
    after = stores.contents(root)
    assert {path: after[path] for path in before} == before
    apply(Disk(), plan_recover(Disk(), settings(root)))
    assert len(messages(root)) == len(offsets)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_stale_tail_behind_a_clock_that_went_back(tmp_path: Path, crashed: bool) -> None:
    """Store times say nothing then; units show each message of the tail where it was put."""
    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    stale = [record_at(root, offset) for offset in offsets[60:66]]
    for offset in offsets[130:]:
        at = offset + store_timestamp_position(0)
        time = int.from_bytes(record_at(root, offset)[at - offset :][:8], "big") - 3_600_000
        damage(root, at, struct.pack(">q", time))
    assert leave(root, end, stale, in_place=True) == 6
    if crashed:
        (root / "abort").touch()
    plan = recovered(root)
    assert plan.log.end.end == end
    assert plan.log.end.stale is not None
    assert len(messages(root)) == 150


@pytest.mark.leaves("log-damage", "not-closed")
def test_damage_that_stays_before_a_clock_that_went_back_leaves_the_index_as_it_is(tmp_path: Path) -> None:
    """The next start, which the abort file makes careful, finds no index file newer than the checkpoint: Apache's would
    delete it.
    """
    root = tmp_path / "store"
    offsets = put(root, 250)
    start = offsets[-1] // SEGMENT * SEGMENT - 2 * SEGMENT  # where recovery begins to read
    for place in (start - 3000, start + 3000):
        damage(root, next(offset for offset in offsets if offset > place) + 95, b"\xff" * 20)
    for offset in offsets[5:]:
        at = offset + store_timestamp_position(0)
        time = int.from_bytes(record_at(root, offset)[at - offset :][:8], "big") - 3_600_000
        damage(root, at, struct.pack(">q", time))
    plan = plan_recover(Disk(), settings(root), cut=True)
    assert plan.trap is not None
    apply(Disk(), plan)
    again = plan_recover(Disk(), settings(root))
    assert again.refusal is None
    assert not again.changed
    headers = [decode_header(path.read_bytes()) for path in (root / "index").iterdir()]
    assert headers
    assert max(header.end_timestamp for header in headers) <= again.files.checkpoint.index_msg_timestamp


def test_a_stale_tail_of_messages_that_are_damaged_where_they_were_put(tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    stale = [record_at(root, offset) for offset in offsets[140:146]]
    for offset in offsets[135:]:
        damage(root, offset, b"\xff" * len(record_at(root, offset)))
    leave(root, end, stale, in_place=True)
    plan = recovered(root)
    assert plan.log.end.end == offsets[135]
    assert plan.log.end.stale is not None
    assert len(messages(root)) == 135


@pytest.mark.parametrize("in_place", [False, True])
def test_a_stale_tail_of_messages_that_were_lost_in_the_middle(tmp_path: Path, in_place: bool) -> None:
    """Their queues would go on with them, but their units show where they lay; they are saved, as is what was there."""
    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    stale = [record_at(root, offset) for offset in offsets[70:80]]
    for offset in offsets[70:149]:
        damage(root, offset, bytes(len(record_at(root, offset))))
    assert leave(root, end, stale, in_place=in_place) >= 8
    plan = plan_recover(Disk(), settings(root), bridge=True)
    assert plan.refusal is None
    apply(Disk(), plan)
    assert plan.log.end.end == end
    assert plan.log.end.stale is not None
    assert not plan_recover(Disk(), settings(root), whole=True).changed
    assert len(messages(root)) == 150 - 79


@pytest.mark.leaves("log-stale")
def test_garbage_before_the_stale_tail(tmp_path: Path) -> None:
    """A cut log that was written on: the new end lies within an old record, whole ones behind it."""
    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    old = [record_at(root, offset) for offset in offsets[20:24]]
    damage(root, end, old[0][50:])
    leave(root, end + len(old[0]) - 50, old[1:], in_place=True)
    for options in ({"bridge": True}, {}):
        copy = stores.copy(root, tmp_path / str(options))
        plan = recovered(copy, **options)
        assert plan.log.end.end == end
        assert plan.log.end.stale is not None
        assert not plan.log.bridges
        assert len(messages(copy)) == 150


def test_whole_stale_segments(tmp_path: Path) -> None:
    """The last files are of an earlier life, at their right place: three and more of them."""
    root = tmp_path / "store"
    put(root, 60)
    old = sorted((root / "commitlog").iterdir())
    kept = [path.read_bytes() for path in old]
    offsets = put(root, 200, first=60)
    end = end_of(root, offsets)
    start = (end // SEGMENT + 1) * SEGMENT
    for i in range(4):
        data = bytearray(SEGMENT)
        data[: len(kept[0])] = kept[0]
        at = 0
        while int.from_bytes(data[at + 4 : at + 8], "big") == 0xDAA320A7:
            struct.pack_into(">q", data, at + POSITION_PHYSICAL_OFFSET, start + i * SEGMENT + at)
            at += int.from_bytes(data[at : at + 4], "big")
        (root / "commitlog" / f"{start + i * SEGMENT:020d}").write_bytes(data)
    blank = SEGMENT - end % SEGMENT
    damage(root, end, struct.pack(">iI", blank, 0xCBD43194))
    plan = recovered(root)
    assert plan.log.end.stale is not None
    assert len(messages(root)) == 260


@pytest.mark.parametrize("back", [1, 3_600_000])
@pytest.mark.parametrize("units", [True, False])
def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path, back: int, units: bool) -> None:
    """The rest of the log is stored earlier, and its queue offsets go on: messages, dispatched or not."""
    root = tmp_path / "store"
    offsets = put(root, 200)
    shift = decode(record_at(root, offsets[-1])).store_timestamp - decode(record_at(root, offsets[0])).store_timestamp
    for offset in offsets[170:]:
        record = bytearray(record_at(root, offset))
        at = store_timestamp_position(0)
        (stored,) = struct.unpack_from(">q", record, at)
        struct.pack_into(">q", record, at, stored - shift - back)
        damage(root, offset, bytes(record))
    if not units:
        for path in (root / "consumequeue").rglob("0*"):
            if path.is_file():
                path.unlink()
        (root / "abort").touch()
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    apply(Disk(), plan)
    assert len(messages(root)) == 200


@pytest.mark.leaves("index-missing", "not-closed", "unit-missing")
def test_a_topic_that_is_made_again_is_none(tmp_path: Path) -> None:
    """Queue offsets begin anew at a later time."""
    import shutil

    root = tmp_path / "store"
    put(root, 100)
    shutil.rmtree(root / "consumequeue" / "T")
    offsets = put(root, 60, topic="Other")
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    end = end_of(root, offsets)
    copies = []
    newest = decode(record_at(root, offsets[-1])).store_timestamp
    for i, offset in enumerate(offsets[:5]):
        record = bytearray(record_at(root, offset))
        struct.pack_into(">q", record, store_timestamp_position(0), newest + 1000 + i)
        struct.pack_into(">q", record, POSITION_QUEUE_OFFSET, i // 2)
        copies.append(bytes(record))
    assert leave(root, end, copies, in_place=True) == 5
    (root / "abort").touch()
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    assert plan.log.end.end > end


@pytest.mark.leaves("index-missing", "not-closed", "unit-missing")
def test_what_queues_disagree_about_is_said_and_stays(tmp_path: Path) -> None:
    """One queue of the tail repeats, another goes on."""
    root = tmp_path / "store"
    offsets = put(root, 151)
    end = end_of(root, offsets)
    repeating = record_at(root, offsets[40])
    going_on = bytearray(record_at(root, offsets[41]))
    struct.pack_into(">q", going_on, POSITION_QUEUE_OFFSET, 75)
    (root / "abort").touch()
    assert leave(root, end, [repeating, bytes(going_on)], in_place=True) == 2
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    assert any(f"--to-offset {end}" in problem for problem in plan.problems)


def set_back(root: Path, offset: int, *, number: int | None = None, by: int = 3_600_000) -> None:
    """Store a record earlier, and with another queue offset where one is given."""
    record = bytearray(record_at(root, offset))
    at = store_timestamp_position(0)
    (stored,) = struct.unpack_from(">q", record, at)
    struct.pack_into(">q", record, at, stored - by)
    if number is not None:
        struct.pack_into(">q", record, POSITION_QUEUE_OFFSET, number)
    damage(root, offset, bytes(record))


@pytest.mark.leaves("unit-foreign")
@pytest.mark.parametrize("options", [{}, {"bridge": True}, {"cut": True}, {"whole": True}])
@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("rotten", [1, 2])
def test_a_rotten_header_behind_a_clock_that_goes_back_loses_nothing(
    tmp_path: Path, rotten: int, queues: int, options: dict[str, bool]
) -> None:
    """One bit of the first records' queue offsets: the units of the others prove that they are messages."""
    root = tmp_path / "store"
    offsets = put(root, 200, queues=queues)
    for i, offset in enumerate(offsets[170:], 170):
        set_back(root, offset, number=(i // queues) ^ 2 if i < 170 + rotten else None)
    plan = plan_recover(Disk(), settings(root), **options)
    assert plan.log.end.stale is None
    assert plan.log.end.end == end_of(root, offsets)
    assert not plan.log.bytes_cut


def test_a_wild_unit_behind_a_clock_that_goes_back_loses_nothing(tmp_path: Path) -> None:
    """The unit of the first record names another place: the units of the others prove that they are messages."""
    root = tmp_path / "store"
    offsets = put(root, 200, queues=1)
    for offset in offsets[170:]:
        set_back(root, offset)
    at = 170 * 20
    with (root / "consumequeue" / "T" / "0" / f"{at - at % 400:020d}").open("r+b") as file:
        file.seek(at % 400)
        file.write(struct.pack(">q", offsets[3]))
    plan = recovered(root)
    assert plan.log.end.stale is None
    assert len(messages(root)) == 200


def made_again(root: Path) -> tuple[list[int], int]:
    """A topic that was made again after the clock was set back, its queues gone; its records, and the log's end."""
    import shutil

    put(root, 100)
    put(root, 1, topic="X")
    offsets = put(root, 30, first=500)
    for i, offset in enumerate(offsets):
        set_back(root, offset, number=i // 2)
    end = end_of(root, offsets)
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    return offsets, end


@pytest.mark.leaves("index-missing", "unit-missing")
@pytest.mark.parametrize("options", [{}, {"cut": True}, {"whole": True}])
def test_what_no_unit_proves_stale_stays_and_is_said(tmp_path: Path, options: dict[str, bool]) -> None:
    """Queue offsets begin anew at earlier times, and the queues are gone, to be built again: nobody knows why."""
    root = tmp_path / "store"
    offsets, end = made_again(root)
    plan = plan_recover(Disk(), settings(root), **options)
    assert plan.log.end.stale is None
    assert plan.log.end.end == end
    assert not plan.log.bytes_cut
    assert any(f"rstore truncate --to-offset {offsets[0]}" in problem for problem in plan.problems)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("crashed", [False, True])
def test_copies_of_records_are_stale_without_units(tmp_path: Path, crashed: bool, in_place: bool) -> None:
    """The queues are gone, but each record of the tail is there before: nothing is lost with it."""
    import shutil

    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    stale = leave(root, end, [record_at(root, offset) for offset in offsets[20:27]], in_place=in_place)
    shutil.rmtree(root / "consumequeue")
    if crashed:
        (root / "abort").touch()
    plan = recovered(root)
    assert plan.log.end.stale is not None
    assert (plan.log.end.stale.offset, plan.log.end.stale.records) == (end, stale)
    assert len(messages(root)) == 150


@pytest.mark.parametrize("at", [45, -3], ids=["bornTimestamp", "properties"])
def test_copies_of_records_that_have_rotten_since_are_stale_without_units(tmp_path: Path, at: int) -> None:
    """A header field or the properties of one have changed where it was put: its body and queue offset tell."""
    import shutil

    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    records = [record_at(root, offset) for offset in offsets[20:27]]
    stale = leave(root, end, records, in_place=True)
    shutil.rmtree(root / "consumequeue")
    place = offsets[22] + (at if at > 0 else len(records[2]) + at)
    damage(root, place, bytes([records[2][at] ^ 8]))
    plan = recovered(root)
    assert plan.log.end.stale is not None
    assert (plan.log.end.stale.offset, plan.log.end.stale.records) == (end, stale)


@pytest.mark.leaves("index-missing", "unit-missing")
def test_one_record_that_is_not_there_before_keeps_the_tail(tmp_path: Path) -> None:
    """Without units, a tail of copies and of one record that is none stays whole."""
    import shutil

    root = tmp_path / "store"
    offsets = put(root, 150)
    end = end_of(root, offsets)
    records = [record_at(root, offset) for offset in offsets[20:27]]
    other = bytearray(records[3])
    struct.pack_into(">q", other, POSITION_QUEUE_OFFSET, 7)
    records[3] = bytes(other)
    stale = leave(root, end, records, in_place=True)
    assert stale > 3
    shutil.rmtree(root / "consumequeue")
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    assert any(f"--to-offset {end}" in problem for problem in plan.problems)


@pytest.mark.leaves("unit-missing")
@pytest.mark.parametrize("units", [True, False])
def test_a_clock_that_trembles_starts_no_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: bool) -> None:
    """Steps back of 1 ms, many of them: the records behind them, or their units, tell at once."""
    import shutil

    from engine.inspect.check.stale_tail import StaleJudge

    root = tmp_path / "store"
    offsets = put(root, 200)
    first = decode(record_at(root, offsets[0])).store_timestamp
    for i, offset in enumerate(offsets):
        there = decode(record_at(root, offset)).store_timestamp
        set_back(root, offset, by=there - (first + i // 10 - i % 2))
    if not units:
        shutil.rmtree(root / "consumequeue")
    judged: list[int] = []
    judge = StaleJudge.judge

    def counted(self: StaleJudge, offset: int, stored: int) -> object:
        judged.append(offset)
        return judge(self, offset, stored)

    monkeypatch.setattr(StaleJudge, "judge", counted)
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert plan.log.end.stale is None
    assert plan.log.end.end == end_of(root, offsets)
    # Without units, the steps that end a batch (a segment here) are judged by what lies behind it.
    assert len(judged) <= (0 if units else 4 * len(list((root / "commitlog").iterdir())))


@pytest.mark.leaves("unit-foreign")
@pytest.mark.parametrize("bit", [0, 2, 40])
def test_a_rotten_queue_offset_makes_no_message_stale(tmp_path: Path, bit: int) -> None:
    """Messages that were not dispatched, after a clock that went back, and the first one's queueOffset is damaged."""
    root = tmp_path / "store"
    offsets = put(root, 150, queues=1)
    more = put(root, 6, first=150, queues=1)
    for offset in more:
        data = bytearray(record_at(root, offset))
        at = store_timestamp_position(int.from_bytes(data[36:40], "big"))
        struct.pack_into(">q", data, at, struct.unpack_from(">q", data, at)[0] - 3_600_000)
        damage(root, offset, bytes(data))
    rotten = bytearray(record_at(root, more[0])[POSITION_QUEUE_OFFSET : POSITION_QUEUE_OFFSET + 8])
    rotten[7 - bit // 8] ^= 1 << bit % 8
    damage(root, more[0] + POSITION_QUEUE_OFFSET, bytes(rotten))
    unit = 20 * len(offsets)
    size = SIZES["mapped_file_size_consume_queue"]
    for path in sorted((root / "consumequeue/T/0").iterdir()):
        start = max(0, unit - int(path.name))
        if start < size:
            path.write_bytes(path.read_bytes()[:start].ljust(size, b"\0"))
    (root / "abort").touch()
    assert "log-stale" not in check(Disk(), settings(root)).counts["byCode"]
    plan = plan_recover(Disk(), settings(root), whole=True)
    assert plan.log.end.stale is None
    assert plan.log.end.end == more[-1] + len(record_at(root, more[-1]))
    apply(Disk(), plan)
    assert [q.max_offset for q in plan.queues] == [156]
    bodies = set(messages(root).values())
    assert {decode(record_at(root, offset)).body for offset in more[1:]} <= bodies


def test_a_rotten_queue_offset_of_the_last_message_makes_it_not_stale(tmp_path: Path) -> None:
    """It names a message of its size, which was put before; and nobody dispatched it."""
    root = tmp_path / "store"
    offsets = put(root, 150, queues=1)
    queue = root / "consumequeue" / "T" / "0"
    units = {path: path.read_bytes() for path in queue.iterdir()}
    (last,) = put(root, 1, first=150, queues=1)
    for path in queue.iterdir():
        path.write_bytes(units.get(path, bytes(path.stat().st_size)))
    damage(root, last + POSITION_QUEUE_OFFSET, (140).to_bytes(8, "big"))
    (root / "abort").touch()
    assert len(record_at(root, last)) == len(record_at(root, offsets[140]))
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    assert plan.log.end.end == last + len(record_at(root, last))
    apply(Disk(), plan)
    assert len(messages(root)) == 151


@pytest.mark.parametrize("how", ["swapped", "copied"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_units_of_another_queues_file_make_no_message_stale(tmp_path: Path, how: str, goes_on: bool) -> None:
    """The clock went back an hour within the log. The other queue's units name places before it, as copies' would."""
    built = logs.build(
        [Message("T", bytes([i]) * 100, int(i >= 40 or (goes_on and i < 10))) for i in range(60)], SEGMENT, 0
    )
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    for start, content in built.log.files.items():
        data = bytearray(content)
        for offset in built.offsets[40:]:
            if start <= offset < start + SEGMENT:
                stored = struct.unpack_from(">q", data, offset - start + 56)[0]
                struct.pack_into(">q", data, offset - start + 56, stored - 3_600_000)
        (root / "commitlog" / f"{start:020d}").write_bytes(data)
    apply(Disk(), plan_recover(Disk(), settings(root)))
    assert len(messages(root)) == 60
    one, other = (root / "consumequeue" / "T" / name for name in "01")
    if how == "copied":
        shutil.rmtree(other)
        shutil.copytree(one, other)
    else:
        one.rename(tmp_path / "aside")
        other.rename(one)
        (tmp_path / "aside").rename(other)
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    apply(Disk(), plan)
    assert len(messages(root)) == 60


@pytest.mark.leaves("index-missing", "unit-missing")
def test_messages_with_one_body_are_no_copies(tmp_path: Path) -> None:
    """A topic that was made again behind a clock that was set back, whose messages all have the same body as before."""
    root = tmp_path / "store"
    offsets = []
    for count in (100, 30):
        with MessageStore.open(settings(root)) as store:
            for i in range(count):
                keys = {"KEYS": f"{count:03d}-{i:03d}", "UNIQ_KEY": f"{count:04d}{i:04d}"}
                put_one = store.put(Message("T", b"heartbeat " * 10, i % 2, keys))
                assert put_one.append is not None
                offsets.append(put_one.append.physical_offset)
    for i, offset in enumerate(offsets[-30:]):
        set_back(root, offset, number=i // 2)
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    plan = plan_recover(Disk(), settings(root))
    assert plan.log.end.stale is None
    assert not plan.log.bytes_cut
