"""The last step of every test that leaves a store behind: `check` finds nothing wrong in it.

The fixture `_stores_are_checked` (tests/conftest.py) takes it for each store below the test's `tmp_path`, with what its
files tell of its settings. A test that leaves damage names it: `@pytest.mark.leaves("log-damage")`. By hand
(`check_clean`) is what comes in the middle of a test, and a store that only its own settings explain.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.check import CheckResult, check
from engine.inspect.finding_codes import Severity


def check_clean(
    store: Path, config: StoreConfig | None = None, *, known: Collection[str] = (), why: str = ""
) -> CheckResult:
    """Fail with what `check` finds wrong in a store; notes by the way (info) are none of it.

    Args:
        store: its directory.
        config: its settings (default: as the files tell).
        known: codes that this store may well have.
        why: the reason for `known`; asked for when there is any.
    """
    assert bool(known) == bool(why), "say why a store may have findings"
    result = check(Disk(), config or StoreConfig(store_path_root_dir=store))
    wrong = [f for f in result.findings if f.severity is not Severity.INFO and f.code not in known]
    assert not wrong, "\n".join(f"{f.code} {f.where}: {f.message}" for f in wrong)
    return result


def stores_below(place: Path) -> Iterator[Path]:
    """Directories at or below `place` that hold a commit log where it lies by default, but for those within another."""
    for directory, names, _ in os.walk(place):
        if "commitlog" in names:
            yield Path(directory)
            names.clear()
