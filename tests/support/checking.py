"""The last step of a test that leaves a store behind: `check` finds nothing wrong in it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.check import CheckResult, check
from engine.inspect.finding import Severity


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
    found = check(Disk(), config or StoreConfig(store_path_root_dir=store))
    wrong = [f for f in found.findings if f.severity is not Severity.INFO and f.code not in known]
    assert not wrong, "\n".join(f"{f.code} {f.where}: {f.message}" for f in wrong)
    return found
