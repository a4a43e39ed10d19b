"""What the jobs do without Spark: rows and their addresses, tasks of small splits, errors as answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.errors import DamageInTheMiddle, InvalidArgument, RStoreError, StorageError
from engine.files.disk import Disk
from engine.format.property_crc import CrcDemand
from engine.inspect.check.verify import verify as verify_alone
from engine.log.derive import Keys, Units
from engine.log.source import Segment
from engine.pipeline.jobs import verify
from engine.pipeline.jobs.reindex_rows import (
    INDEX,
    MOST,
    QUEUE,
    BlobTarget,
    KeyRow,
    Scanned,
    UnitRow,
    key_blobs,
    keys_of,
    unit_blobs,
    units_of,
)
from engine.pipeline.jobs.reindex_scan import ScanWork, scan_group
from engine.pipeline.jobs.reindex_write import StoreWork, address, build
from engine.pipeline.jobs.tasks import Failed, grouped, joined, unfailed
from engine.pipeline.splits import SPLIT_BYTES, Split, plan_splits
from engine.pipeline.stores import StoreRef, find_stores
from engine.repair.reindex.index import IndexShare
from engine.repair.reindex.reindex import Scope
from tests.engine.repair import corpus
from tests.support import mutate, stores


@dataclass
class Shared:
    """As Spark's broadcast."""

    value: tuple[StoreWork, ...]


def units(count: int) -> Units:
    numbers = np.arange(count, dtype=np.int64)
    return Units(
        numbers.astype(np.int32), numbers + 5, numbers * 91, (numbers + 91).astype(np.int32), -numbers, numbers
    )


def test_blobs_say_what_went_into_them() -> None:
    some = units(2 * MOST + 3)
    blobs = list(unit_blobs(some))
    assert [len(blob) // 36 for blob in blobs] == [MOST, MOST, 3]
    for name in ("queue_offset", "physical_offset", "size", "tags_code", "store_timestamp"):
        column = np.concatenate([getattr(units_of(blob), name) for blob in blobs])
        assert column.dtype == getattr(some, name).dtype
        assert (column == getattr(some, name)).all()
    keys = Keys(np.array([7, 2**31 - 1], dtype=np.int32), np.array([1, 2**62]), np.array([-1, 5]))
    (blob,) = key_blobs(keys)
    back = keys_of(blob)
    assert [back.key_hash.tolist(), back.physical_offset.tolist(), back.store_timestamp.tolist()] == [
        [7, 2**31 - 1],
        [1, 2**62],
        [-1, 5],
    ]
    assert list(unit_blobs(units(0))) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_keys_go_to_the_files_that_their_numbers_say(files: list[int], chunks: list[int]) -> None:
    """Files of `files` keys (the last takes the rest), keys in rows of `chunks` from one split or another."""
    total = sum(chunks)
    shares, first = [], 0
    for place, room in enumerate([*files, total]):
        end = min(total, first + room)
        if first < end:
            shares.append(IndexShare(str(place), place, first, end, False, (0, 0) if not place else None))
        first = end
    hashes = np.arange(total, dtype=np.int32)
    keys = Keys(hashes, hashes.astype(np.int64) * 10, hashes.astype(np.int64) * 100)
    starts: dict[int, int] = {}
    rows, at = [], 0
    for number, size in enumerate(chunks):
        starts.setdefault(number // 2, at)
        (blob,) = key_blobs(keys.taken(np.arange(at, at + size)))
        rows.append(KeyRow(0, number // 2, at - starts[number // 2], blob))
        at += size
    shared = Shared((StoreWork(None, "", 0, tuple(shares), starts),))  # type: ignore[arg-type]
    sent = sorted(one for row in reversed(rows) for one in address(shared, row))  # type: ignore[arg-type]
    assert all((target.store, target.kind) == (0, INDEX) for target, _ in sent)
    for number, share in enumerate(shares):
        blobs = [keys_of(blob) for target, blob in sent if target.number == number]
        if number:
            last = blobs.pop(0)
            assert last.key_hash.tolist() == [share.first - 1]
        assert [h for blob in blobs for h in blob.key_hash.tolist()] == list(range(share.first, share.end))


def test_units_go_to_their_queue() -> None:
    ((target, blob),) = address(Shared(()), UnitRow(3, "T", 1, 5, 2, b"x"))  # type: ignore[arg-type]
    assert (target, blob) == (BlobTarget(3, QUEUE, "T", 1, 5, 2), b"x")
    assert list(address(Shared(()), "said")) == []  # type: ignore[arg-type]


def test_a_directory_that_is_not_shared_is_an_answer(tmp_path: Path) -> None:
    shared = Shared((StoreWork(None, str(tmp_path), 0, (), {}),))  # type: ignore[arg-type]
    pytest.importorskip("pyspark")
    (answer,) = build(shared, iter([(BlobTarget(0, QUEUE, "T", 0, 0, 0), b"")]))  # type: ignore[arg-type]
    assert isinstance(answer, Failed)
    assert "same path" in str(answer.error)


def splits(lengths: list[int]) -> list[Split]:
    store = StoreRef("s", StoreConfig(), (), False)
    found, at = [], 0
    for number, length in enumerate(lengths):
        found.append(Split(store, number, Segment(0, 1 << 40, "f"), at, at + length, 1 << 40))
        at += length
    return found


@given(st.lists(st.integers(1, 3 * SPLIT_BYTES), max_size=60), st.integers(1, 8))
def test_small_splits_share_a_task(lengths: list[int], cores: int) -> None:
    some = splits(lengths)
    groups = grouped(some, cores)
    assert [split for group in groups for split in group] == some
    for group in groups:
        assert len(group) == 1 or sum(split.end - split.start for split in group) <= SPLIT_BYTES
    assert len(groups) <= len(some)


def test_a_fleet_of_small_stores_is_few_tasks() -> None:
    assert len(grouped(splits([1000] * 1000), 2)) == 4


def test_splits_of_nothing() -> None:
    with pytest.raises(InvalidArgument, match="must be ≥ 1"):
        plan_splits([], split_bytes=0)


def test_an_error_is_an_answer() -> None:
    error = DamageInTheMiddle("torn", path="/s/log", offset=7, hint="run recover")
    kept = pickle.loads(pickle.dumps(Failed(error)))
    with pytest.raises(DamageInTheMiddle) as raised:
        list(unfailed([1, kept, Failed(StorageError("later"))]))
    assert str(raised.value) == str(error)
    assert isinstance(raised.value, RStoreError)
    assert list(unfailed([1, 2])) == [1, 2]


def test_rows_of_each_split_of_its_own(fixture_store: Callable[[str], Path]) -> None:
    """Every boundary, though splits share tasks."""
    (store,) = find_stores([str(fixture_store("clean-small"))])
    splits = plan_splits([store], split_bytes=10_000)
    assert len(splits) > 40
    scope = Scope(queues=True, index=True)
    rows = list(scan_group([ScanWork(0, i, split, 0, scope) for i, split in enumerate(splits)]))
    assert sum(isinstance(row, Scanned) for row in rows) == len(splits)
    assert sum(row.records for row in rows if isinstance(row, Scanned)) == 600


def test_neighbouring_splits_of_a_task_are_one(fixture_store: Callable[[str], Path]) -> None:
    (store,) = find_stores([str(fixture_store("clean-small"))])
    splits = plan_splits([store], split_bytes=10_000)
    one_a_file = plan_splits([store])
    assert [(one.segment, one.start, one.end) for one in joined(splits)] == [
        (one.segment, one.start, one.end) for one in one_a_file
    ]
    apart = [split for split in splits if split.index % 3]
    assert sum(one.end - one.start for one in joined(apart)) == sum(one.end - one.start for one in apart)
    assert len(joined(apart)) > len(one_a_file)
    (again,) = find_stores([f"again={fixture_store('clean-small')}"])
    first = plan_splits([again])[0]
    assert joined([one_a_file[0], replace(first, start=one_a_file[0].end)])[1].store is again


@pytest.mark.leaves  # damaged on purpose, and only read
def test_what_each_split_tells_of_its_own(fixture_store: Callable[[str], Path], tmp_path: Path) -> None:
    """Every boundary of damaged logs, though splits share tasks: the merged answer is that of `verify-crc`."""
    options = verify.VerifyOptions(5_000)
    for case in corpus.fixture_cases()[::5]:
        root = stores.copy(fixture_store(case["base"]), tmp_path / case["id"])
        mutate.apply(root, case["ops"])
        (store,) = find_stores([str(root)])
        splits = verify._plan([store], options)
        checked = [verify._check(verify._Work(split, False, CrcDemand.NOTHING)) for split in splits]
        told = verify._merge_all([store], splits, checked, options)[store.name]
        expected = verify_alone(Disk(), store.config)
        assert (told.records, told.size, told.end) == (expected.records, expected.size, expected.end), case["id"]
        assert told.bad == expected.bad, case["id"]
