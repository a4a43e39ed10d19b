"""Runs of one seed become one table: chunks beside each other, Apache's columns from the run that asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import merge, report
from tests.proof.judge import Verdict
from tests.proof.store import Judged

JUDGED = Judged(3, "tiny", [("segment-empty", "one is empty")], 480, 500)
JUDGED.verdicts = [Verdict("plain", ["recover"], 0, place=1, lost=1, findings=[("lost-place", "one")])]
ASKED = replace(JUDGED, verdicts=[], apache={"exit": 0, "place": 7, "queue": 7, "key": 7, "lost": 7})
OPENED = replace(JUDGED, verdicts=[], opened=True, differs="one")


def left(place: Path, *stores: Judged, seed: int = 1) -> Path:
    report.write(stores, place, seed)
    return place


def test_each_column_comes_from_the_run_that_has_it(tmp_path: Path) -> None:
    places = [left(tmp_path / "asked", ASKED), left(tmp_path / "judged", JUDGED), left(tmp_path / "opened", OPENED)]
    places.append(left(tmp_path / "next", replace(JUDGED, number=4)))
    found = merge.merge(places, tmp_path / "all")
    assert found == [replace(JUDGED, apache=ASKED.apache, opened=True, differs="one"), replace(JUDGED, number=4)]
    said = json.loads((tmp_path / "all" / "proof.json").read_text())
    assert [Judged.of(one) for one in said["stores"]] == found
    assert said["seed"] == 1
    (row,) = [line for line in (tmp_path / "all" / "proof.md").read_text().splitlines() if "segment-empty" in line]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2:5] == ["2", "960", "2"]
    assert cells[14:18] == ["1", "0", "7", "0 of 1"]


@pytest.mark.parametrize(
    ("other", "seed"), [(replace(JUDGED, sound=479), 1), (replace(JUDGED, number=4), 2)], ids=["store", "seed"]
)
def test_what_is_of_another_run_is_refused(other: Judged, seed: int, tmp_path: Path) -> None:
    places = [left(tmp_path / "a", JUDGED), left(tmp_path / "b", other, seed=seed)]
    with pytest.raises(ValueError, match=r"another one|several seeds"):
        merge.merge(places, tmp_path / "all")
    assert not (tmp_path / "all").exists()
