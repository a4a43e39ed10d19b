"""The index against Apache's: its files byte by byte, and what it answers."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")


from engine.files.disk import Disk
from engine.format.index_file import IndexHeader
from engine.format.names import is_index_name
from engine.log.index_reader import ClosedIndexFile, IndexCheck
from engine.log.index_service import IndexService
from tests.engine.log import rebuild
from tests.engine.log.indexes import FOREVER
from tests.support import fixtures, golden, stores

# --- Apache's bytes and answers ---------------------------------------------------------------------------------------


def dump_of(name: str, ours: bool, kind: str) -> list[dict[str, Any]]:
    if not ours:
        return golden.dump(name, kind)
    with lzma.open(fixtures.FIXTURES / f"{name}.dump.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [line for line in map(json.loads, lines) if line["type"] == kind]


def store_of(request: pytest.FixtureRequest, name: str, ours: bool) -> Path:
    found: Path = request.getfixturevalue("fixture_store" if ours else "golden_store")(name)
    return found


ALL = [(name, True) for name in rebuild.FIXTURES] + [(name, False) for name in rebuild.GOLDEN]
WINDOWS = [(*one, 1 << 20) for one in ALL] + [(*one, 1 << 12) for one in ALL if not one[0].startswith("default")]
"""How much of the log is derived at once, bytes; once is enough for an index file of 420 MB."""


@pytest.mark.parametrize(("name", "ours", "window"), WINDOWS)
def test_apaches_files_again(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, ours: bool, window: int
) -> None:
    store, config = store_of(request, name, ours), rebuild.config_of(name, ours=ours)
    service = IndexService(Disk(), str(tmp_path / "index"), rebuild.layout_of(config))
    for _, keys in rebuild.derived(store, config, window)[1]:
        assert service.put(keys) == len(keys)
        assert service.put(keys) == 0
    service.shutdown()
    theirs, mine = rebuild.files_below(store / "index"), rebuild.files_below(tmp_path / "index")
    assert all(is_index_name(path) for path in mine)
    assert [stores.digest(path) for path in mine.values()] == [stores.digest(path) for path in theirs.values()]


@pytest.mark.parametrize(("name", "ours"), [one for one in ALL if not one[0].startswith("crashed")])
def test_apaches_answers(request: pytest.FixtureRequest, name: str, ours: bool) -> None:
    """Of a store that had crashed Apache was asked after its recovery, which lost index entries: see the next test."""
    store, config = store_of(request, name, ours), rebuild.config_of(name, ours=ours)
    service = IndexService(Disk(), str(store / "index"), rebuild.layout_of(config))
    service.open([path.name for path in (store / "index").iterdir()], writable=False)
    check_answers(service, dump_of(name, ours, "query"), config.max_msgs_num_batch)
    headers = dump_of(name, ours, "indexFile")
    assert [file.header for file in service.files] == [
        IndexHeader(
            line["beginTimestamp"], line["endTimestamp"], line["beginPhyOffset"], line["endPhyOffset"],
            line["hashSlotCount"], line["indexCount"],
        )
        for line in headers
    ]  # fmt: skip
    for file in service.files:
        file.shutdown()


def test_apaches_answers_after_its_recovery(golden_store) -> None:
    store, config = golden_store("crashed-small.after"), rebuild.config_of("crashed-small", ours=False)
    service = IndexService(Disk(), str(store / "index"), rebuild.layout_of(config))
    service.open([path.name for path in (store / "index").iterdir()], writable=False)
    check_answers(service, golden.dump("crashed-small", "query"), config.max_msgs_num_batch)
    for file in service.files:
        file.shutdown()


def check_answers(service: IndexService, lines: list[dict[str, Any]], most: int) -> None:
    assert lines
    for line in lines:
        found = service.query(line["topic"], line["key"], *FOREVER, most)
        assert list(found.offsets) == line["rawIndexOrder"]
        assert found.findings == ()
        if not found.offsets:
            continue  # Apache's store answers 0, 0 then, whatever its index says
        assert (found.last_update_timestamp, found.last_update_phy_offset) == (
            line["indexLastUpdateTimestamp"],
            line["indexLastUpdatePhyoffset"],
        )


@pytest.mark.parametrize(("name", "ours"), ALL)
def test_apaches_files_are_sound(request: pytest.FixtureRequest, name: str, ours: bool, unchanged) -> None:
    store, config = store_of(request, name, ours), rebuild.config_of(name, ours=ours)
    unchanged(store / "index")
    for path in sorted((store / "index").iterdir()):
        with ClosedIndexFile(Disk(), str(path), rebuild.layout_of(config)) as file:
            assert file.verify() == IndexCheck(file.entry_count)


def test_a_small_part_at_a_time(fixture_store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.log.index_reader.CHUNK", 37)
    layout = rebuild.layout_of(rebuild.config_of("clean-small", ours=True))
    for path in (fixture_store("clean-small") / "index").iterdir():
        with ClosedIndexFile(Disk(), str(path), layout) as file:
            assert file.verify() == IndexCheck(file.entry_count)
