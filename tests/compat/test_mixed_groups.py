"""Java's, Go's and our clients in one group: nothing is lost, and an ordered group stays in order, whatever happens.

`python -m tests.compat.mixed_group` is the same for 200,000 messages, and beside it a group of Java's alone
(engine/client/CLIENT.md has what came of it).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat import mixed_group, toolchain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("how", ["concurrent", "ordered"])
def test_nothing_is_lost(tmp_path: Path, how: str) -> None:
    try:
        toolchain.go_clients()
        seen = mixed_group.run(tmp_path / "run", messages=6_000, how=how, kinds=("java", "go", "ours"))
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    assert seen.acknowledged >= 6_000
    assert seen.lost == 0, seen
    assert not seen.disordered, seen
    by_kind = {
        kind: sum(count for name, count in seen.by_member.items() if kind in name) for kind in ("java", "go", "ours")
    }
    assert all(by_kind.values()), by_kind
