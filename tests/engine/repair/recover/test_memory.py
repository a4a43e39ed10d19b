"""What a recovery remembers of the log: the plan is the same with it and without, and nothing stale is believed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.errors import TimeLimitReached
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.log.derive import Keys
from engine.log.scan import Scanner
from engine.repair.recover.apply import apply
from engine.repair.recover.memory import WORTH_IT, directory_of
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.engine.repair.test_rules import damage, put, settings
from tests.support import mutate, stores
from tests.support.wide import sample

CASES = corpus.fixture_cases()
LONG = 10**9


def said(plan: RecoverPlan) -> tuple[str, list[Any], list[Any]]:
    """All that a plan says, and would write."""
    spools = [plan.index.tail, *(insert.keys for insert in plan.index.inserts)]
    return (
        json.dumps([plan.to_json(), str(plan.refusal)], sort_keys=True),
        [[row for chunk in spool.chunks() for row in chunk.tolist()] for spool in (plan.writes,)],
        [[key for keys in spool.chunks() for key in listed(keys)] for spool in spools],
    )


def listed(keys: Keys) -> list[tuple[int, ...]]:
    """Keys, one by one."""
    return list(zip(keys.key_hash.tolist(), keys.physical_offset.tolist(), keys.store_timestamp.tolist(), strict=True))


def remembered(root: Path) -> list[Path]:
    """The segments that are remembered."""
    return sorted(path for path in Path(directory_of(str(root))).glob("*") if "." not in path.name)


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(CASES[::3], 3), ids=lambda case: str(case["id"]))
@pytest.mark.parametrize("choice", [{}, {"bridge": True}], ids=["refusing", "bridge"])
def test_the_plan_is_the_same(case: corpus.Case, choice: dict[str, Any], fixture_copy: Store) -> None:
    root = fixture_copy(case["base"])
    mutate.apply(root, case["ops"])
    config = corpus.config(root, case)
    plain = said(plan_recover(Disk(), config, **choice))
    assert not remembered(root)
    assert said(plan_recover(Disk(), config, locked=True, time_box_ms=LONG, **choice)) == plain
    there = remembered(root)
    assert said(plan_recover(Disk(), config, **choice)) == plain
    assert remembered(root) == there


def read_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """Where scans begin and end, from now on."""
    seen: list[tuple[int, int | None]] = []
    real = Scanner.scan

    def scan(self: Scanner, start: int, end: int | None = None, **options: Any) -> Any:
        seen.append((start, end))
        return real(self, start, end, **options)

    monkeypatch.setattr(Scanner, "scan", scan)
    return seen


def crashed(root: Path) -> list[int]:
    """A store of several segments that was not closed, its queues lost; where its records lie."""
    places = put(root, 700)
    (root / "abort").touch()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    (root / "checkpoint").write_bytes(bytes(4096))
    return places


@pytest.mark.leaves("index-missing", "not-closed", "unit-missing")
def test_what_is_remembered_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed(tmp_path)
    config = settings(tmp_path)
    expected = said(plan_recover(Disk(), config))
    segments = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    assert len(segments) > 3
    plan_recover(Disk(), config, locked=True, time_box_ms=LONG)
    assert len(remembered(tmp_path)) == len(segments) - 1
    seen = read_of(monkeypatch)
    assert said(plan_recover(Disk(), config)) == expected
    # That the log does not end in the one before the last is told by its last bytes.
    assert {start for start, end in seen if end != start + 1} == set(segments[-1:])


def test_a_time_box_stops_and_the_next_run_goes_on(tmp_path: Path) -> None:
    crashed(tmp_path)
    config = settings(tmp_path)
    before = stores.contents(tmp_path)
    expected = said(plan_recover(Disk(), config))
    runs = 0
    while True:
        try:
            plan = plan_recover(Disk(), config, locked=True, time_box_ms=0)
            break
        except TimeLimitReached:
            runs += 1
        assert len(remembered(tmp_path)) == runs  # one segment at least is done in each run
    assert runs > 2
    assert said(plan) == expected
    assert {
        path: d for path, d in stores.contents(tmp_path).items() if not path.startswith("recover.progress")
    } == before
    apply(Disk(), plan)
    assert not Path(directory_of(str(tmp_path))).exists()


@pytest.mark.leaves("index-missing", "log-damage", "not-closed", "unit-missing")
@pytest.mark.parametrize("spoil", ["torn", "flipped", "no json", "odd json", "other settings", "touched", "gone"])
def test_what_cannot_be_trusted_is_read_again(tmp_path: Path, spoil: str) -> None:
    places = crashed(tmp_path)
    config = settings(tmp_path)
    expected = said(plan_recover(Disk(), config))
    plan_recover(Disk(), config, locked=True, time_box_ms=LONG)
    first = remembered(tmp_path)[0]
    chunk = first.with_name(f"{first.name}.0")
    if spoil == "torn":
        chunk.write_bytes(chunk.read_bytes()[:-8])
    elif spoil == "flipped":
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    elif spoil == "no json":
        first.write_bytes(b"\xff{")
    elif spoil == "odd json":
        first.write_text(json.dumps({**json.loads(first.read_text()), "queues": 7}))
    elif spoil == "other settings":
        config = config.with_changes(message_delay_level="1s 2s")
        expected = said(plan_recover(Disk(), config))
    elif spoil == "touched":
        damage(tmp_path, places[2] + 95, b"\xff")
        found = said(plan_recover(Disk(), config))
        shutil.rmtree(directory_of(str(tmp_path)))
        assert found == said(plan_recover(Disk(), config)) != expected
        return
    else:
        chunk.unlink()
    assert said(plan_recover(Disk(), config)) == expected


def test_a_bridged_segment_is_not_remembered_as_it_will_be(tmp_path: Path) -> None:
    places = crashed(tmp_path)
    damage(tmp_path, places[20] + 95, b"\xff")
    config = settings(tmp_path)
    plan_recover(Disk(), config, locked=True, time_box_ms=LONG, bridge=True)
    assert "00000000000000000000" not in [path.name for path in remembered(tmp_path)]
    plan = plan_recover(Disk(), config)
    assert plan.refusal is not None
    apply(Disk(), plan_recover(Disk(), config, bridge=True))


@pytest.mark.leaves("index-missing", "not-closed", "unit-missing")
@pytest.mark.wide
def test_killed_while_remembering(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crashed(root)
    expected = said(plan_recover(Disk(), settings(root)))
    disk = FaultyDisk(None)
    plan_recover(disk, settings(root), locked=True, time_box_ms=LONG)
    changes = disk.changes_seen
    shutil.rmtree(directory_of(str(root)))
    assert changes > 10
    for number in sample(range(1, changes + 1), 5, changes - 1):  # the last one among them
        faulty = FaultyDisk(None)
        faulty.kill_before(number)
        with pytest.raises(Killed):
            plan_recover(faulty, settings(root), locked=True, time_box_ms=LONG)
        assert said(plan_recover(Disk(), settings(root), locked=True)) == expected
        shutil.rmtree(directory_of(str(root)), ignore_errors=True)


@pytest.mark.leaves("index-missing", "not-closed", "unit-missing")
def test_a_full_disk_ends_the_remembering_only(tmp_path: Path) -> None:
    root = tmp_path / "store"
    crashed(root)
    expected = said(plan_recover(Disk(), settings(root)))
    faulty = FaultyDisk(None)
    faulty.fail_after(3)
    assert said(plan_recover(faulty, settings(root), locked=True, time_box_ms=LONG)) == expected


@pytest.mark.leaves("index-missing", "not-closed", "unit-missing")
def test_a_short_log_leaves_no_trace(tmp_path: Path) -> None:
    crashed(tmp_path)
    plan_recover(Disk(), settings(tmp_path), locked=True)
    assert sum(path.stat().st_size for path in (tmp_path / "commitlog").iterdir()) < WORTH_IT
    assert not Path(directory_of(str(tmp_path))).exists()
