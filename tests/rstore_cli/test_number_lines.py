"""Units and index entries as JSON lines, many at a time: the lines that one at a time gives, to the last character."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.queue_unit import UNIT_SIZE, QueueUnit
from engine.inspect.dump import number_rows
from engine.inspect.dump.dump import IndexFileDump, dump_index, dump_queue
from engine.inspect.dump.number_rows import NumberRows
from rstore_cli.render import Output
from tests.conftest import Store
from tests.rstore_cli.conftest import Cli
from tests.support.wide import examples

MOST = (1 << 63) - 1
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def one_by_one(rows: list[dict[str, object]], limit: int | None = None) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows[:limit])


@pytest.mark.wide
@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.lists(NAMES, min_size=1, max_size=5, unique=True), st.none() | st.integers(0, 12))
def test_whatever_the_numbers_are(data: st.DataObject, names: list[str], limit: int | None) -> None:
    rows = st.lists(st.lists(NUMBERS, min_size=len(names), max_size=len(names)), max_size=6)
    same = st.dictionaries(NAMES.filter(lambda name: name not in names), st.text('%sd"\\\x01ü'), max_size=1)
    blocks = [
        NumberRows(tuple(names), np.array(some, dtype=np.int64).reshape(-1, len(names)), data.draw(same))
        for some in data.draw(st.lists(rows, max_size=4))
    ]
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stdout", type("Out", (), {"write": written.append, "encoding": "utf-8"})())
        Output(json=True, quiet=True).number_lines(blocks, limit)
    assert "".join(written) == one_by_one([row for block in blocks for row in block.dicts()], limit)


@pytest.mark.leaves
def test_a_queue_of_odd_units(fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in a unit, and more of them than a block has."""
    monkeypatch.setattr(number_rows, "AT_ONCE", 7)
    store = fixture_copy("clean-small")
    path = next((store / "consumequeue").glob("*/0")) / f"{0:020d}"
    topic = path.parent.parent.name
    some = [QueueUnit(-(1 << 63), -(1 << 31), (1 << 63) - 1), QueueUnit((1 << 63) - 1, (1 << 31) - 1, -1)]
    count = path.stat().st_size // UNIT_SIZE // 2
    path.write_bytes(b"".join(unit.encode() for unit in some) * count)
    rows = list(dump_queue(Disk(), StoreConfig(store_path_root_dir=store), topic, 0, start=0))
    assert len(rows) >= 2 * count > 30
    for words, part in (
        (("--from", "0"), rows),
        (("--from", "3", "--to", "20"), rows[3:20]),
        (("--from", "0", "--limit", "10"), rows[:10]),
        (("--from", "0", "--limit", "14"), rows[:14]),
        (("--from", str(MOST)), []),
    ):
        ran = cli("--store", store, "dump", "consumequeue", topic, "0", "--json", *words)
        assert (ran.code, ran.err, ran.out) == (0, "", one_by_one(part))


def test_the_index_and_its_bounds(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    config = StoreConfig(store_path_root_dir=store)
    rows = [row for row in dump_index(Disk(), config) if not isinstance(row, IndexFileDump)]
    offsets = sorted({int(row["physicalOffset"]) for row in rows})
    assert len(offsets) > 9
    for low, high in ((0, MOST), (offsets[3], offsets[7]), (offsets[7], offsets[3]), (MOST, MOST), (0, 0)):
        part = [row for row in rows if low <= int(row["physicalOffset"]) < high]
        ran = cli("--store", store, "dump", "index", "--json", "--from", str(low), "--to", str(high))
        assert (ran.code, ran.out) == (0, one_by_one(part))
        assert cli("--store", store, "dump", "index", "--json", "--limit", "3").out == one_by_one(rows, 3)


def test_nothing_is_read_for_no_row(tmp_path: Path, cli: Cli) -> None:
    ran = cli("--store", tmp_path / "none", "dump", "index", "--json", "--limit", "0")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
