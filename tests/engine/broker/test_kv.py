"""The name service's key-value pairs: kept, and as they were when they can't be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.tables.config_file import ConfigFile
from engine.broker.tables.kv import KvConfig
from engine.errors import CannotRepair, DiskFull, RStoreError
from engine.files.disk import Disk


class FullDisk(Disk):
    """One on which nothing more can be written."""

    def write_file_atomically(self, path: str, data: bytes) -> None:
        raise DiskFull("no space left on the device", path=path)


def changed(
    disk: Disk, root: Path, *changes: Callable[[KvConfig, Callable[[RStoreError | None], None]], None]
) -> tuple[KvConfig, list[RStoreError | None]]:
    """A table after these changes, and what became of each, in the order in which that was told."""

    async def run() -> tuple[KvConfig, list[RStoreError | None]]:
        one = KvConfig(ConfigFile(disk, str(root), "kvConfig.json"), asyncio.get_running_loop())
        told: list[RStoreError | None] = []
        over = asyncio.Event()

        def done(failure: RStoreError | None) -> None:
            told.append(failure)
            if len(told) == len(changes):
                over.set()

        for change in changes:
            change(one, done)
        await over.wait()
        return one, told

    return asyncio.run(run())


def loaded(root: Path) -> KvConfig:
    async def run() -> KvConfig:
        one = KvConfig(ConfigFile(Disk(), str(root), "kvConfig.json"), asyncio.get_running_loop())
        one.load()
        return one

    return asyncio.run(run())


def test_what_is_put_is_there_the_next_time(tmp_path: Path) -> None:
    _, told = changed(
        Disk(), tmp_path,
        lambda one, done: one.put("A", "k", "v", done),
        lambda one, done: one.put("A", "gone", "v", done),
        lambda one, done: one.delete("A", "gone", done),
        lambda one, done: one.delete("B", "never", done),
    )  # fmt: skip
    assert told == [None] * 4
    again = loaded(tmp_path)
    assert again.space("A") == {"k": "v"}
    assert again.space("B") is None


def test_a_change_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    one, told = changed(FullDisk(), tmp_path, lambda one, done: one.put("A", "k", "v", done))
    assert [type(failure) for failure in told] == [DiskFull]
    assert one.get("A", "k") is None


def test_a_table_of_another_shape_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "kvConfig.json").write_text('{"configTable":{"A":[1]}}')
    with pytest.raises(CannotRepair) as caught:
        loaded(tmp_path)
    assert "A" in str(caught.value)
