"""The outcomes in fixtures/starts against RocketMQ 5's own message store, here and now; and what issues are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat import starts5, toolchain
from tests.support import starts
from tests.support.wide import sample

pytestmark = pytest.mark.interop


@pytest.mark.wide
@pytest.mark.timeout(900)  # a start that falls into a race of others hangs, and is tried again
@pytest.mark.leaves
@pytest.mark.parametrize("release", starts5.RELEASES)
def test_the_recorded_outcomes_are_those_of_the_real_start(release: str, tmp_path: Path) -> None:
    cases = sample(starts.cases(release), 12, first=5)
    try:
        again = list(starts5.run(release, cases, tmp_path))
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    assert len(again) == len(cases)
    for case, line in zip(cases, again, strict=True):
        for outcome in (case["outcome"], line["outcome"]):
            outcome.pop("error", None)
            outcome.get("queues", []).sort()
            if "index" in outcome:  # a new index file has the time in its name
                outcome["index"] = len(outcome["index"])
        assert line == case
