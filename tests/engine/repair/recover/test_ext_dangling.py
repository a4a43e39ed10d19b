"""Units whose extension is gone are made anew: Apache's next abnormal start would die of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import names
from engine.format.queue_unit import decode_many, is_ext_address
from engine.log.closed_queue import ClosedExt
from engine.log.derive import TopicQueue
from engine.repair.recover.apply import apply
from engine.repair.recover.log_end import Mode
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair import corpus

CASE = {"base": "transient-ext"}


def units(root: Path) -> dict[TopicQueue, list[tuple[int, int, int]]]:
    """Every unit of every queue: physical offset, size, tags code."""
    found = {}
    for directory in sorted((root / names.CONSUMEQUEUE).glob("*/*")):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        rows = [tuple(map(int, row)) for row in decode_many(data) if row["size"] > 0]
        found[TopicQueue(directory.parent.name, int(directory.name))] = rows
    return found  # type: ignore[return-value]


def tags(root: Path, config: StoreConfig) -> dict[TopicQueue, list[int]]:
    """The tags codes that units mean, through the extension."""
    size = config.mapped_file_size_consume_queue_ext
    out = {}
    for queue, rows in units(root).items():
        ext = ClosedExt(Disk(), str(root / names.CONSUMEQUEUE_EXT), queue, size)
        out[queue] = []
        for _, _, code in rows:
            unit = ext.get(code) if is_ext_address(code) else None
            assert unit is not None or not is_ext_address(code)
            out[queue].append(code if unit is None else unit.tags_code)
    return out


@pytest.mark.parametrize("mode", [Mode.NORMAL, Mode.ABNORMAL])
@pytest.mark.parametrize("lost", ["all", "one queue", "one file", "one unit"])
def test_they_are_made_anew(fixture_copy: Store, mode: Mode, lost: str) -> None:
    root = fixture_copy("transient-ext")
    config = corpus.config(root, CASE)
    expected, places = tags(root, config), {q: [row[:2] for row in rows] for q, rows in units(root).items()}
    files = sorted((root / names.CONSUMEQUEUE_EXT).glob("*/*/*"))
    if lost == "all":
        shutil.rmtree(root / names.CONSUMEQUEUE_EXT)
    elif lost == "one queue":
        shutil.rmtree(files[0].parent)
    elif lost == "one file":
        files[0].unlink()
    else:
        with files[0].open("r+b") as file:
            file.write(bytes(2))
    plan = plan_recover(Disk(), config, mode=mode)
    assert any("extension unit that does not exist" in problem for problem in plan.problems)
    apply(Disk(), plan)
    assert tags(root, config) == expected
    assert {q: [row[:2] for row in rows] for q, rows in units(root).items()} == places
    assert not plan_recover(Disk(), config).changed


def test_without_an_extension_the_tags_code_itself_comes_back(fixture_copy: Store) -> None:
    root = fixture_copy("transient-ext")
    expected = tags(root, corpus.config(root, CASE))
    shutil.rmtree(root / names.CONSUMEQUEUE_EXT)
    config = StoreConfig(store_path_root_dir=root)
    apply(Disk(), plan_recover(Disk(), config))
    assert {queue: [code for _, _, code in rows] for queue, rows in units(root).items()} == expected


def test_a_sound_extension_changes_nothing(fixture_copy: Store) -> None:
    root = fixture_copy("transient-ext")
    assert not plan_recover(Disk(), corpus.config(root, CASE)).changed
    assert not plan_recover(Disk(), StoreConfig(store_path_root_dir=root)).changed
