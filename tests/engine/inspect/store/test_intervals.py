"""Intervals against Python's own sets; the spools against lists."""

from __future__ import annotations

import errno
import os
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DiskFull
from engine.inspect.store import spool
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.spool import KeySpool, Spool
from engine.log.derive import Keys

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=25)


def both(pairs: list[tuple[int, int]]) -> tuple[Intervals, set[int]]:
    found, members = Intervals(), set()
    for start, length in pairs:
        found.add(start, start + length)
        members |= set(range(start, start + length))
    return found, members


@given(spans)
def test_as_a_set(pairs: list[tuple[int, int]]) -> None:
    found, members = both(pairs)
    assert {v for start, end in found for v in range(start, end)} == members
    assert found.total() == len(members)
    assert all(a[1] < b[0] for a, b in zip(found, list(found)[1:], strict=False)), "disjoint and not touching"
    assert [v in found for v in range(80)] == [v in members for v in range(80)]
    assert found.mask(np.arange(80)).tolist() == [v in members for v in range(80)]
    spread = range(200, 200 + 2 * 640, 2)  # so many intervals that a few values are looked for one by one
    for value in spread:
        found.add(value, value + 1)
    few = np.array([0, 7, 200, 201, 1478, 1479, 5000])
    assert found.mask(few).tolist() == [v in members or v in spread for v in few.tolist()]
    for start, end in [(200, 1479), (3, 9)]:
        assert found.mask(np.arange(start, end)).tolist() == [v in members or v in spread for v in range(start, end)]
    found, _ = both(pairs)
    assert (found.start, found.end) == (min(members, default=0), max(members, default=-1) + 1)


@given(spans, st.integers(0, 70), st.integers(0, 70))
def test_missing_and_overlap(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    found, members = both(pairs)
    wanted = set(range(start, end))
    assert {v for a, b in found.missing(start, end) for v in range(a, b)} == wanted - members
    assert found.overlap(start, end) == len(wanted & members)


@given(spans, st.lists(st.integers(0, 80), max_size=40))
def test_add_many(pairs: list[tuple[int, int]], values: list[int]) -> None:
    found, members = both(pairs)
    found.add_many(np.array(values, dtype=np.int64))
    assert {v for start, end in found for v in range(start, end)} == members | set(values)


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_a_spool_gives_back_what_it_took(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(spool, "IN_MEMORY", in_memory)
    dtype = np.dtype([("a", "i4"), ("b", "i8")])
    table = Spool(dtype)
    taken = []
    for n in (3, 0, 500_000, 1):
        rows = np.zeros(n, dtype=dtype)
        rows["b"] = np.arange(n) + len(taken)
        table.add(rows)
        taken += rows["b"].tolist()
    for _ in range(2):
        assert [int(v) for chunk in table.chunks() for v in chunk["b"]] == taken
    assert len(table) == len(taken)
    table.close()
    assert list(table.chunks()) == []


steps = st.sampled_from([0, 1, 91, 4096, 1 << 31, 1 << 40])
times = st.sampled_from([0, 1, 1_700_000_000_000, 1_700_000_000_999, -5])
keys = st.lists(st.tuples(st.integers(0, 2**31 - 1), steps, times), max_size=40)


@given(st.lists(keys, max_size=6), st.sampled_from([0, 50, 1 << 20]), st.sampled_from([1, 30, 1 << 14]))
def test_a_key_spool_gives_back_what_it_took(
    batches: list[list[tuple[int, int, int]]], in_memory: int, at_once: int
) -> None:
    taken, offset = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "KEYS_IN_MEMORY", in_memory)
        patch.setattr(spool, "KEYS_AT_ONCE", at_once)
        table = KeySpool()
        for batch in batches:
            rows = []
            for key_hash, step, time in batch:
                offset += step
                rows.append((key_hash, offset, time))
            columns = np.array(rows, dtype=np.int64).reshape(len(rows), 3).T
            table.add(Keys(columns[0].astype(np.int32), columns[1], columns[2]))
            taken += rows
    assert len(table) == len(taken)
    for _ in range(2):
        found = [
            row
            for one in table.chunks()
            for row in zip(
                one.key_hash.tolist(), one.physical_offset.tolist(), one.store_timestamp.tolist(), strict=True
            )
        ]
        assert found == taken
    table.close()
    assert list(table.chunks()) == []


def test_few_keys_of_large_batches_do_not_hold_them() -> None:
    """300 batches of 28 keys held 430 MB: each key's columns are views of its whole batch's."""
    table = KeySpool()
    batch = np.zeros((2, 100_000), dtype=np.int64)
    table.add(Keys(np.zeros(3, dtype=np.int32), batch[0, :3], batch[1, :3]))
    held = weakref.ref(batch)
    del batch
    assert held() is None
    assert len(table) == 3


def test_what_is_packed_is_written_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan writes nothing any more while it is applied; what could not be written is not lost from it."""
    monkeypatch.setattr(spool, "KEYS_IN_MEMORY", 0)
    table = KeySpool()
    numbers = np.arange(3, dtype=np.int64)
    table.add(Keys(numbers.astype(np.int32), numbers, numbers))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DiskFull):
            table.pack()
    table.pack()
    monkeypatch.setattr(os, "pwrite", full)
    assert [keys.physical_offset.tolist() for keys in table.chunks()] == [[0, 1, 2]]
