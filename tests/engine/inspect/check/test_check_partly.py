"""What check leaves out: by a time limit, after what it could not read, and beside a running broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.check import check as module
from tests.conftest import Store
from tests.engine.inspect.check.test_check import SEGMENT, busy, codes, damage_body, log, look, set_unit
from tests.support import fixtures

# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.leaves("log-damage")
def test_a_time_box_says_what_is_left(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    damage_body(store)
    found = look(store, time_box_ms=0)
    assert codes(found) == {"time-box"}
    assert not found.complete
    assert "the log from 0" in found.findings[0].message
    assert codes(look(store, time_box_ms=600_000)) == codes(look(store))


def test_what_was_not_read_is_not_judged(fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the log in time: no unit and no entry of the other half is called wrong."""
    from engine.inspect.check import log as check_log

    store = fixture_copy("clean-small")

    class Clock:
        calls = 0

        def monotonic(self) -> float:
            Clock.calls += 1
            return 0.0 if Clock.calls < 3 else 1e9

    monkeypatch.setattr(check_log, "time", Clock())
    found = look(store, time_box_ms=3_600_000)
    assert codes(found) == {"time-box"}
    assert 0 < found.counts["records"] < 600


def test_progress_reaches_its_end(fixture_store: Store) -> None:
    for jobs in (1, 2):
        seen: list[tuple[int, int]] = []
        look(
            fixture_store("clean-small"), jobs=jobs, progress=lambda done, total, seen=seen: seen.append((done, total))
        )
        assert seen[-1][0] == seen[-1][1] == 4 * SEGMENT


# --- beside a live writer --------------------------------------------------------------------------------------------


@pytest.mark.leaves("log-tail", "not-closed", "unit-missing")
def test_beside_a_live_writer_ends_are_not_judged(fixture_copy: Store) -> None:
    """Torn tail, units and keys not there yet, an abort file: all of it is as it should be beside a writer."""
    store = fixture_copy("crashed-small")
    end = fixtures.manifest("crashed-small")["maxPhyOffset"]
    log(store, end, b"\0\0\x01\0\xda\xa3\x20\xa7 half a record")
    last = max((m for m in fixtures.dump("crashed-small") if m["type"] == "msg"), key=lambda m: m["physicalOffset"])
    set_unit(store, last, bytes(UNIT_SIZE))
    with StoreLock(Disk(), str(store)):
        found = look(store)
        assert codes(found) == {"ends-not-checked"}
        assert (found.ok, found.live) == (True, True)
    assert {"not-closed", "log-tail", "unit-missing"} <= codes(look(store))


@pytest.mark.leaves("log-damage", "unit-missing", "unit-orphaned")
def test_beside_a_live_writer_old_damage_is_found(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    damage_body(store)
    set_unit(store, busy(store), b"\x01", 7)
    with StoreLock(Disk(), str(store)):
        assert {"log-damage", "unit-orphaned", "ends-not-checked"} <= codes(look(store))


@pytest.mark.leaves("unit-missing")
def test_a_file_that_a_live_broker_removes(fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check begins again with what is there now."""
    store = fixture_copy("clean-small")
    removed: list[Path] = []
    original = module.dispatched

    def remove(*args: Any) -> int:
        if not removed:
            queue = max((store / "consumequeue").glob("*/*"), key=lambda path: len(list(path.iterdir())))
            removed.extend(sorted(queue.iterdir())[:1])
            removed[0].unlink()
        return original(*args)

    monkeypatch.setattr(module, "dispatched", remove)
    with StoreLock(Disk(), str(store)):
        assert "ends-not-checked" in codes(look(store))
    assert removed
