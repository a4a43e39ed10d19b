"""Masters with slaves, looked at in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import BrokerRole
from tests.engine.broker.ha.pair import Pair
from tests.engine.opening import assert_sound, small


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    """`pair()`: a master; its stores are closed and looked at in the end."""
    made: list[Pair] = []

    def get(role: BrokerRole = BrokerRole.ASYNC_MASTER, **changes: Any) -> Pair:
        made.append(Pair(tmp_path, role, **changes))
        return made[-1]

    yield get
    for one in made:
        one.close()
        for name in ("master", "slave"):
            if (tmp_path / name).exists():
                assert_sound(small(tmp_path / name, **one.changes))
