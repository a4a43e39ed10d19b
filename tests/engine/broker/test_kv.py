"""The name service's key-value pairs: kept, and as they were when they can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.tables.config_file import ConfigFile
from engine.broker.tables.kv import KvConfig
from engine.errors import CannotRepair, DiskFull
from engine.files.disk import Disk


class FullDisk(Disk):
    """One on which nothing more can be written."""

    def write_file_atomically(self, path: str, data: bytes) -> None:
        raise DiskFull("no space left on the device", path=path)


def test_what_is_put_is_there_the_next_time(tmp_path: Path) -> None:
    one = KvConfig(ConfigFile(Disk(), str(tmp_path), "kvConfig.json"))
    one.put("A", "k", "v")
    one.put("A", "gone", "v")
    one.delete("A", "gone")
    one.delete("B", "never")
    again = KvConfig(ConfigFile(Disk(), str(tmp_path), "kvConfig.json"))
    again.load()
    assert again.space("A") == {"k": "v"}
    assert again.space("B") is None


def test_a_change_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    one = KvConfig(ConfigFile(FullDisk(), str(tmp_path), "kvConfig.json"))
    with pytest.raises(DiskFull):
        one.put("A", "k", "v")
    assert one.get("A", "k") is None


def test_a_table_of_another_shape_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "kvConfig.json").write_text('{"configTable":{"A":[1]}}')
    with pytest.raises(CannotRepair) as caught:
        KvConfig(ConfigFile(Disk(), str(tmp_path), "kvConfig.json")).load()
    assert "A" in str(caught.value)
