"""The outcomes in fixtures/starts against RocketMQ 5's own message store, here and now; and what issues are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compat import starts5, toolchain
from tests.support import starts
from tests.support.wide import sample

pytestmark = pytest.mark.interop


TURNS = 3
"""Starts of one store until its outcome counts that has too few index files each time."""


def compared(line: dict[str, Any]) -> dict[str, Any]:
    """A case without what differs from start to start: words of an error, the times in names of new index files."""
    outcome = {name: value for name, value in line["outcome"].items() if name != "error"}
    if "queues" in outcome:
        outcome["queues"] = sorted(outcome["queues"])
    if "index" in outcome:
        outcome["index"] = len(outcome["index"])
    return line | {"outcome": outcome}


def lacks_index_files_alone(line: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether an outcome is the recorded one but for fewer index files.

    IndexService#getAndCreateLastIndexFile names them by the ms: two that fill within one are one file.
    """
    now, then = line["outcome"].get("index", 0), case["outcome"].get("index", 0)
    return now < then and line == case | {"outcome": case["outcome"] | {"index": now}}


@pytest.mark.wide
@pytest.mark.timeout(900)  # a start that hangs takes two minutes, and index files have three turns
@pytest.mark.leaves
@pytest.mark.parametrize("release", starts5.RELEASES)
def test_the_recorded_outcomes_are_those_of_the_real_start(release: str, tmp_path: Path) -> None:
    cases = sample(starts.cases(release), 12, first=5)
    for turn in range(TURNS):
        try:
            again = [compared(line) for line in starts5.run(release, cases, tmp_path / str(turn))]
        except toolchain.Missing as missing:
            pytest.skip(str(missing))
        assert len(again) == len(cases)
        differ = [(line, case) for line, case in zip(again, map(compared, cases), strict=True) if line != case]
        for line, case in differ:
            assert lacks_index_files_alone(line, case), (line, case)
            assert turn + 1 < TURNS, line
        ids = {case["id"] for _, case in differ}
        cases = [case for case in cases if case["id"] in ids]
        if not cases:
            break
