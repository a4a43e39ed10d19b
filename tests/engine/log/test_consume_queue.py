"""Consume queues: Apache's bytes again, what appending takes and refuses, one by one and in batches, what is found."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import DiskFull, FormatError, InvalidArgument, WrongFileSize
from engine.files.disk import Disk
from engine.files.operations import Doing, Operation
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE, QueueUnit
from engine.log.consume_queue import ConsumeQueue, UnitsAppended
from engine.log.derive import TopicQueue
from engine.log.state import QueueState
from tests.engine.log import rebuild
from tests.support import golden, stores

Q = TopicQueue("T", 3)
PER_FILE = 10
SIZE = PER_FILE * UNIT_SIZE
STEP = 100  # bytes of a message in these tests


@dataclass(frozen=True)
class Place:
    disk: Disk
    root: str

    def queue(self, state: QueueState | None = None) -> ConsumeQueue:
        made = ConsumeQueue(self.disk, self.root, Q, SIZE)
        made.open(state)
        return made


@pytest.fixture(params=["map", "channel", "fake"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "fake":
        request.getfixturevalue("fs").create_dir("/store")
        return Place(Disk(), "/store")
    return Place(Disk(mapped=request.param == "map"), str(request.getfixturevalue("tmp_path")))


def fill(queue: ConsumeQueue, start: int, count: int, physical: int | None = None) -> UnitsAppended:
    """`count` units from queue offset `start`; message n at n × STEP unless said otherwise."""
    offsets = np.arange(start, start + count, dtype=np.int64)
    base = start * STEP if physical is None else physical
    places = base + np.arange(count, dtype=np.int64) * STEP
    return queue.append(offsets, places, np.full(count, STEP, np.int32), offsets + 7)


def all_units(queue: ConsumeQueue, start: int = 0) -> list[tuple[int, ...]]:
    return [tuple(unit) for _, part in queue.units(start) for unit in part.tolist()]


# --- Apache's bytes ---------------------------------------------------------------------------------------------------


def rebuild_queues(store: Path, root: Path, name: str, *, ours: bool, batches: bool) -> None:
    config = rebuild.config_of(name, ours=ours)
    numbers, parts = rebuild.derived(store, config)
    queues: dict[TopicQueue, ConsumeQueue] = {}
    for units, _ in parts:
        for queue, some in rebuild.by_queue(numbers, units):
            if queue not in queues:
                queues[queue] = ConsumeQueue(Disk(), str(root), queue, config.mapped_file_size_consume_queue)
            if batches:
                result = queues[queue].append(some.queue_offset, some.physical_offset, some.size, some.tags_code)
                assert result == UnitsAppended(appended=len(some))
            else:
                for i in range(len(some)):
                    row = (some.queue_offset[i], some.physical_offset[i], some.size[i], some.tags_code[i])
                    assert queues[queue].put_one(*map(int, row)) == UnitsAppended(appended=1)
    for queue in queues.values():
        while not queue.flush():
            pass
        queue.shutdown()
    theirs, mine = rebuild.files_below(store / "consumequeue"), rebuild.files_below(root)
    assert list(mine) == list(theirs)
    assert [path for path in mine if stores.digest(mine[path]) != stores.digest(theirs[path])] == []


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq"])
def test_fixture_queues_again(fixture_store, tmp_path: Path, name: str, batches: bool) -> None:
    rebuild_queues(fixture_store(name), tmp_path, name, ours=True, batches=batches)


@pytest.mark.parametrize("name", rebuild.GOLDEN)
def test_golden_queues_again(golden_store, tmp_path: Path, name: str) -> None:
    rebuild_queues(golden_store(name), tmp_path, name, ours=False, batches=True)


@pytest.mark.parametrize("name", ["clean-small", "default-sizes-tiny"])
def test_positions_of_a_store_that_apache_wrote(golden_copy, name: str) -> None:
    size = rebuild.config_of(name, ours=False).mapped_file_size_consume_queue
    base = str(golden_copy(name) / "consumequeue")
    for line in golden.dump(name, "queue"):
        queue = ConsumeQueue(Disk(), base, TopicQueue(line["topic"], line["queueId"]), size)
        queue.open(None)
        found = (queue.min_offset, queue.max_offset, queue.max_physical_offset)
        queue.shutdown()
        # Apache has counted the messages that were put again when it opened the store: it looks at the same bytes
        assert found == (line["min"], line["max"], line["maxPhysicOffset"])


# --- appending --------------------------------------------------------------------------------------------------------


def test_a_new_queue_is_empty(place: Place) -> None:
    queue = place.queue()
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, -1)
    assert queue.get(0) is None
    assert queue.select(0) is None
    assert len(queue.read(0, 5)) == 0
    assert list(queue.units()) == []
    assert queue.flush()
    assert not place.disk.exists(queue.directory)


@pytest.mark.parametrize("count", [1, 5, 10, 11, 35])
def test_units_are_where_they_belong(place: Place, count: int) -> None:
    queue = place.queue()
    assert fill(queue, 0, count) == UnitsAppended(appended=count)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, count, count * STEP)
    assert all_units(queue) == [(n * STEP, STEP, n + 7) for n in range(count)]
    assert queue.get(count - 1) == QueueUnit((count - 1) * STEP, STEP, count + 6)


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("start", [3, 10, 27, 20])
def test_a_queue_that_starts_in_the_middle(place: Place, start: int, count: int) -> None:
    queue = place.queue()
    assert fill(queue, start, count) == UnitsAppended(appended=count)
    assert (queue.min_offset, queue.max_offset) == (start, start + count)
    blank = (PRE_BLANK.physical_offset, PRE_BLANK.size, PRE_BLANK.tags_code)
    first = start - start % PER_FILE
    assert all_units(queue, first)[: start - first + 1] == [blank] * (start - first) + [(start * STEP, STEP, start + 7)]
    assert queue.select(start - 1) is None
    queue.correct_min_offset(0)
    assert queue.min_offset == start
    while not queue.flush():
        pass
    queue.shutdown()
    again = place.queue()
    assert (again.min_offset, again.max_offset, again.max_physical_offset) == (
        start,
        start + count,
        (start + count) * STEP,
    )


def test_messages_that_come_again_are_ignored(place: Place) -> None:
    queue = place.queue()
    fill(queue, 0, 25)
    before = all_units(queue)
    assert fill(queue, 0, 25) == UnitsAppended(ignored=25)
    assert fill(queue, 20, 10) == UnitsAppended(appended=5, ignored=5)
    assert all_units(queue)[:25] == before
    assert queue.max_offset == 30
    assert queue.put_one(12, 29 * STEP, STEP, 0) == UnitsAppended(ignored=1)


@pytest.mark.parametrize("offset", [0, 4])
def test_a_taken_offset_stays_what_it_is(place: Place, offset: int) -> None:
    queue = place.queue()
    fill(queue, 0, 5)
    assert queue.put_one(offset, 5000, STEP, 1) == UnitsAppended(ignored=1)
    assert (queue.max_offset, queue.max_physical_offset) == (5, 5 * STEP)


@pytest.mark.parametrize("count", [1, 12])
def test_a_jump_repeats_the_unit_before_it(place: Place, count: int) -> None:
    queue = place.queue()
    fill(queue, 0, 5)
    assert fill(queue, 17, count, 17 * STEP) == UnitsAppended(appended=count, filled=12)
    assert queue.max_offset == 17 + count
    assert all_units(queue)[4:18] == [(4 * STEP, STEP, 11)] * 13 + [(17 * STEP, STEP, 24)]
    assert queue.max_physical_offset == (17 + count) * STEP


def test_an_offset_that_cannot_be_is_refused(place: Place) -> None:
    queue = place.queue()
    fill(queue, 0, 5)
    assert queue.put_one(1 << 40, 5 * STEP, STEP, 0) == UnitsAppended(refused=1)
    assert queue.put_one(-1, 5 * STEP, STEP, 0) == UnitsAppended(ignored=1)
    assert queue.max_offset == 5
    assert queue.put_one(5, 6 * STEP, STEP, 0) == UnitsAppended(appended=1)
    new = ConsumeQueue(place.disk, place.root, TopicQueue("U", 0), SIZE)
    new.open(None)
    assert new.put_one(1 << 62, 6 * STEP, STEP, 0) == UnitsAppended(refused=1)
    assert new.max_offset == 0


def test_no_whole_units_no_queue(place: Place) -> None:
    for size in (0, 30):
        with pytest.raises(InvalidArgument):
            ConsumeQueue(place.disk, place.root, Q, size)


Batch = list[tuple[int, int, int]]


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    """Batches of (queue offset, physical offset, size): mostly in order, with repetitions, jumps and wrong offsets."""
    batches: list[Batch] = []
    offset, physical = draw(st.sampled_from([0, 0, 3, 10, 23])), draw(st.integers(0, 50)) * STEP + 2500
    for _ in range(draw(st.integers(1, 5))):
        batch: Batch = []
        for _ in range(draw(st.integers(0, 25))):
            turn = draw(st.integers(0, 40))
            if turn == 0:
                offset = max(0, offset - draw(st.integers(1, 12)))
            elif turn == 1:
                offset += draw(st.integers(1, 14))
                physical += draw(st.integers(0, 20)) * STEP
            elif turn == 2:
                physical = max(0, physical - draw(st.integers(1, 10)) * STEP)
            size = draw(st.sampled_from([91, STEP, 180]))
            batch.append((offset, physical, size))
            offset += 1
            physical += size
        batches.append(batch)
    return batches


def model(batches: list[Batch]) -> tuple[UnitsAppended, dict[int, tuple[int, int, int]], int, int]:
    """The rules, said again: result, units by offset, min offset, max physical offset."""
    units: dict[int, tuple[int, int, int]] = {}
    result, low, known = UnitsAppended(), 0, -1
    for offset, physical, size in (one for batch in batches for one in batch):
        end = max(units, default=-1) + 1
        if physical + size <= known or (units and offset < end):
            result += UnitsAppended(ignored=1)
        elif offset > end and (offset - end) * 91 > physical - max(known, 0):
            result += UnitsAppended(refused=1)
        else:
            if not units:
                low = offset
                units = dict.fromkeys(range(offset - offset % PER_FILE, offset), (0, 2**31 - 1, 0))
            else:
                result += UnitsAppended(filled=offset - end)
                last = units[end - 1]
                units |= dict.fromkeys(range(end, offset), last)
            units[offset] = (physical, size, offset + 7)
            known = physical + size
            result += UnitsAppended(appended=1)
    return result, units, low, known


@given(batches=logs())
@example(batches=[[(0, 2500, 91), (1, 2491, 91), (1, 2582, 91)]])  # it overlaps the one before, and is no jump
def test_batches_leave_what_one_by_one_leaves(tmp_path_factory: pytest.TempPathFactory, batches: list[Batch]) -> None:
    root = tmp_path_factory.mktemp("queues")
    expected, units, low, known = model(batches)
    seen = []
    for way in ("batch", "single"):
        queue = ConsumeQueue(Disk(), str(root / way), Q, SIZE)
        queue.open(None)
        result = UnitsAppended()
        for batch in batches:
            if way == "single":
                for one in batch:
                    result += queue.put_one(*one, one[0] + 7)
                continue
            offsets, places, sizes = np.array(batch, dtype=np.int64).reshape(len(batch), 3).T
            result += queue.append(offsets, places, sizes.astype(np.int32), offsets + 7)
        assert result == expected
        assert (queue.min_offset, queue.max_physical_offset) == (low, known)
        assert queue.max_offset == max(units, default=-1) + 1
        assert all_units(queue, min(units, default=0)) == [units[n] for n in sorted(units)]
        queue.shutdown()
        seen.append(stores.contents(root / way) if (root / way).exists() else {})
    assert seen[0] == seen[1]


class FullDisk(Disk):
    """No room for files from the third on."""

    room = 2

    def doing(self, operation: Operation, path: str, offset: int | None = None, length: int = 0, source=None) -> Doing:
        if operation is Operation.CREATE:
            self.room -= 1
            if self.room < 0:
                raise DiskFull("creating", path=path)
        return super().doing(operation, path, offset, length, source)


def test_a_full_disk_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    disk = FullDisk()
    queue = Place(disk, str(tmp_path)).queue()
    with pytest.raises(DiskFull):
        fill(queue, 0, 35)
    assert (queue.max_offset, queue.max_physical_offset) == (20, 20 * STEP)
    with pytest.raises(DiskFull):
        fill(queue, 20, 1)
    disk.room = 5
    assert fill(queue, 0, 35) == UnitsAppended(appended=15, ignored=20)
    assert all_units(queue) == [(n * STEP, STEP, n + 7) for n in range(35)]


# --- opening ----------------------------------------------------------------------------------------------------------


def test_open_takes_recoverys_word(place: Place) -> None:
    queue = place.queue()
    fill(queue, 0, 35)
    queue.shutdown()
    queue = place.queue(QueueState(Q, 4, 17, 1700))
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (4, 17, 1700)
    assert len(place.disk.listdir(queue.directory)) == 2
    assert queue.get(17) is None
    assert fill(queue, 17, 3) == UnitsAppended(appended=3)
    assert all_units(queue) == [(n * STEP, STEP, n + 7) for n in range(20)]


def test_open_cut_to_nothing(place: Place) -> None:
    queue = place.queue()
    fill(queue, 23, 5)
    queue.shutdown()
    queue = place.queue(QueueState(Q, 20, 20, -1))
    assert queue.max_offset == 20
    assert queue.put_one(43, 4300, STEP, 0) == UnitsAppended(appended=1)
    assert (queue.min_offset, queue.max_offset) == (43, 44)
    assert place.disk.listdir(queue.directory) == ("00000000000000000800",)
    assert all_units(queue, 40)[:3] == [(0, 2**31 - 1, 0)] * 3


def test_open_refuses_what_is_not_there(place: Place) -> None:
    queue = place.queue()
    fill(queue, 0, 5)
    queue.shutdown()
    with pytest.raises(FormatError):
        place.queue(QueueState(Q, 0, 11, 1100))
    place.disk.write_file(f"{queue.directory}/{SIZE:020d}", b"short")
    with pytest.raises(WrongFileSize):
        place.queue()


def test_opening_changes_no_byte(fixture_copy) -> None:
    store = fixture_copy("clean-small")
    before = stores.snapshot(store)
    size = rebuild.config_of("clean-small", ours=True).mapped_file_size_consume_queue
    for directory in sorted((store / "consumequeue").glob("*/*")):
        queue = ConsumeQueue(
            Disk(), str(store / "consumequeue"), TopicQueue(directory.parent.name, int(directory.name)), size
        )
        queue.open(None)
        while not queue.flush():
            pass
        queue.shutdown()
    assert stores.snapshot(store) == before


# --- reading ----------------------------------------------------------------------------------------------------------


def test_read_and_select_end_with_their_file(place: Place) -> None:
    queue = place.queue()
    fill(queue, 3, 20)
    assert len(queue.read(5, 100)) == 5
    assert len(queue.read(5, 2)) == 2
    assert len(queue.read(20, 100)) == 3
    assert queue.read(12, 1)["physical_offset"][0] == 1200
    with queue.select(18) as found:  # type: ignore[union-attr]
        assert found.size == 2 * UNIT_SIZE
    for nowhere in (2, 23, 1000):
        assert queue.select(nowhere) is None
    assert (queue.roll_next_file(0), queue.roll_next_file(9), queue.roll_next_file(10)) == (10, 10, 20)


# --- the log's beginning moves ----------------------------------------------------------------------------------------


@given(start=st.integers(0, 25), count=st.integers(1, 40), low=st.integers(0, 70 * STEP))
def test_min_offset_is_the_first_message_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, start: int, count: int, low: int
) -> None:
    queue = Place(Disk(), str(tmp_path_factory.mktemp("q"))).queue()
    fill(queue, start, count)
    expected = next((n for n in range(start, start + count) if n * STEP >= low), start)
    assert queue.correct_min_offset(low) == queue.min_offset == expected
    assert queue.correct_min_offset(0) == expected
    queue.shutdown()


def test_expired_files_go_but_never_the_last(place: Place) -> None:
    queue = place.queue()
    fill(queue, 0, 35)
    assert queue.delete_expired(9 * STEP) == 0
    assert queue.min_offset == 9
    assert queue.delete_expired(15 * STEP) == 1
    assert queue.min_offset == 15
    assert queue.get(9) is None
    assert queue.delete_expired(1000 * STEP) == 2
    assert (queue.min_offset, queue.max_offset) == (30, 35)
    assert fill(queue, 35, 1) == UnitsAppended(appended=1)


def test_destroy(place: Place) -> None:
    queue = place.queue()
    fill(queue, 0, 35)
    queue.destroy()
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, -1)
    assert not place.disk.exists(queue.directory)
    assert fill(queue, 0, 3) == UnitsAppended(appended=3)


# --- by time ----------------------------------------------------------------------------------------------------------


@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=35).map(sorted),
    wanted=st.integers(-1, 61),
    gone=st.integers(0, 5),
)
def test_bounds_by_time(tmp_path_factory: pytest.TempPathFactory, times: list[int], wanted: int, gone: int) -> None:
    queue = Place(Disk(), str(tmp_path_factory.mktemp("q"))).queue()
    fill(queue, 0, len(times))
    gone = min(gone, len(times))

    def store_time_of(physical: int, size: int) -> int:
        assert size == STEP
        return times[physical // STEP] if physical >= gone * STEP else -1

    assert queue.lower_bound_by_time(wanted, store_time_of) == max(gone, bisect_left(times, wanted))
    assert queue.upper_bound_by_time(wanted, store_time_of) == max(gone, bisect_right(times, wanted))
    queue.shutdown()


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [(1000, 0), (1040, 4), (1043, 4), (1045, 4), (1046, 5), (999, 0), (1090, 9), (5000, 9), (0, 0)],
)
def test_offset_by_time_is_apaches(tmp_path: Path, wanted: int, answer: int) -> None:
    """Messages 0 … 9 stored at 1000, 1010, …: that of the time, else the nearer one, the earlier of two as near."""
    queue = Place(Disk(), str(tmp_path)).queue()
    fill(queue, 0, 10)
    assert queue.offset_by_time(wanted, lambda physical, _: 1000 + physical // STEP * 10, 0) == answer


def test_offset_by_time_looks_into_one_file_by_its_modification(tmp_path: Path) -> None:
    queue = Place(Disk(), str(tmp_path)).queue()
    fill(queue, 0, 30)
    for i, name in enumerate(sorted(os.listdir(queue.directory))):
        os.utime(Path(queue.directory) / name, (i + 1, i + 1))
    times = lambda physical, _: physical // STEP * 100 + 100  # noqa: E731 - message n at (n + 1) × 100 ms
    assert queue.offset_by_time(950, times, 0) == 8
    assert queue.offset_by_time(1150, times, 0) == 10
    assert queue.offset_by_time(2600, times, 0) == 25
    assert queue.offset_by_time(999_999, times, 0) == 29
    # All of the file lies below the log's first byte: one less than the file's first unit, as Apache computes it.
    assert queue.offset_by_time(1150, times, 100 * STEP) == 9
    assert queue.offset_by_time(950, times, 100 * STEP) == 0
    assert queue.offset_by_time(950, lambda *_: -1, 0) == 0
    assert Place(Disk(), str(tmp_path / "none")).queue().offset_by_time(950, times, 0) == 0
