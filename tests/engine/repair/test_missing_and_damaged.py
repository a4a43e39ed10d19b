"""A missing segment beside a damaged one: what is left is found again, a second run has nothing to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.files.disk import Disk
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.survey import survey
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.support import layouts, stores
from tests.support.layouts import BODY, SIZE, Made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return layouts.make(tmp_path / "store")


def _recovered(made: Made, **how: Any) -> None:
    """Repaired; a second run finds nothing to do, undo brings everything back, and it can be done again."""
    before = stores.contents(made.root)
    apply(Disk(), plan_recover(Disk(), made.config, **how))
    done = stores.contents(made.root)
    again = plan_recover(Disk(), made.config)
    assert again.refusal is None
    assert not again.changed
    undo(Disk(), plan_undo(Disk(), made.config))
    assert {p: s for p, s in stores.contents(made.root).items() if not p.startswith("salvage")} == before
    apply(Disk(), plan_recover(Disk(), made.config, **how))
    assert {p: s for p, s in stores.contents(made.root).items() if not p.startswith("salvage")} == {
        p: s for p, s in done.items() if not p.startswith("salvage")
    }


def test_rows_of_lost_messages_behind_a_missing_segment_show_one_that_is_there(made: Made) -> None:
    made.files[1].unlink()
    os.truncate(made.root / "commitlog" / f"{2 * SIZE:020d}", 0)
    _recovered(made, bridge=True)
    for found in survey(Disk(), made.config).queues:
        rows = QueueRows(Disk(), found)
        places = rows.read(0, rows.extent)["physical_offset"].tolist()
        assert not [place for place in places if 2 * SIZE <= place < 3 * SIZE]
        kept = [place for place in places if SIZE <= place < 2 * SIZE]
        assert len(kept) == len(set(kept)), "a row repeats what is missing"


def test_a_log_is_cut_before_missing_segments_where_nothing_sound_follows_them_at_once(made: Made) -> None:
    made.files[1].unlink()
    os.truncate(made.root / "commitlog" / f"{2 * SIZE:020d}", 0)
    _recovered(made, cut=True)
    assert [path.name for path in made.files] == [f"{0:020d}"]


def test_a_cut_where_recovery_starts_sees_the_damage_before_that_a_next_start_would_read(made: Made) -> None:
    """Nothing sound is read: the log ends in the segment before, which the next start reads."""
    place = sorted(offset for offset in made.records if 2 * SIZE <= offset < 3 * SIZE)[5]
    with made.files[2].open("r+b") as file:
        file.seek(place % SIZE + BODY)
        file.write(b"\xff" * 20)
    os.truncate(made.files[3], 0)
    _recovered(made, cut=True)
    assert plan_recover(Disk(), made.config).log.end.end == place
