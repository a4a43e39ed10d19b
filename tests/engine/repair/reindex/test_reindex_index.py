"""Index files written apart: the bytes that one writer leaves, however many keys there are and however they come."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DiskFull
from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.format.index_file import IndexLayout
from engine.log.derive import Keys
from engine.log.index_service import IndexService
from engine.repair.reindex.index import IndexShare, build_share, shares

LAYOUT = IndexLayout(7, 11)
"""Ten keys a file."""


def keys_of(count: int, seed: int) -> Keys:
    """Up to three keys a message, times that go back now and then."""
    rng = np.random.default_rng(seed)
    offsets = np.sort(rng.integers(0, max(1, count // 2), count)) * 100
    times = 1_700_000_000_000 + offsets * 10 + (offsets % 700) * 13
    return Keys(rng.integers(0, 40, count).astype(np.int32), offsets.astype(np.int64), times.astype(np.int64))


def cut(keys: Keys, share: IndexShare, step: int) -> Iterator[Keys]:
    for at in range(share.first, share.end, step):
        yield keys.taken(np.arange(at, min(at + step, share.end)))


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.iterdir())]


@given(old=st.integers(0, 35), count=st.integers(0, 60), seed=st.integers(0, 99), step=st.integers(1, 20))
def test_apart_as_by_one_writer(
    tmp_path_factory: pytest.TempPathFactory, old: int, count: int, seed: int, step: int
) -> None:
    """`old` keys are there already."""
    place = tmp_path_factory.mktemp("index")
    one, apart = place / "one", place / "apart"
    disk = Disk()
    keys = keys_of(old + count, seed)
    before, new = keys.taken(np.arange(old)), keys.taken(np.arange(old, old + count))
    if old and count:  # as dispatch does, one message's keys come in one call
        new = dataclasses.replace(new, physical_offset=new.physical_offset + before.physical_offset[-1] + 100)
    for directory in (one, apart):
        directory.mkdir()
        service = IndexService(disk, str(directory), LAYOUT)
        if old:
            service.put(before)
        service.shutdown()
    service = IndexService(disk, str(one), LAYOUT)
    service.open(os.listdir(one))
    if count:
        assert service.put(new) == count
    service.shutdown()

    kept = len(os.listdir(apart))
    found = shares(disk, str(apart), LAYOUT, count)
    for share in reversed(found):  # in any order
        last = share.first - 1
        ends = (int(new.physical_offset[last]), int(new.store_timestamp[last])) if last >= 0 else (0, 0)
        build_share(disk, str(apart / share.name), LAYOUT, share, share.before or ends, cut(new, share, step))
    assert contents(apart) == contents(one)
    assert sorted(os.listdir(apart))[kept - 1 if found and found[0].begun else kept :] == [s.name for s in found]
    assert [share.place for share in found] == [sorted(os.listdir(apart)).index(share.name) for share in found]


def test_no_room(tmp_path: Path) -> None:
    class Small(Disk):
        def usage(self, path: str) -> Usage:
            return dataclasses.replace(super().usage(path), usable=2 * LAYOUT.file_size)

    assert len(shares(Small(), str(tmp_path), LAYOUT, 25)) == 3
    with pytest.raises(DiskFull, match="maxIndexNum = 11"):
        shares(Small(), str(tmp_path), LAYOUT, 50)
