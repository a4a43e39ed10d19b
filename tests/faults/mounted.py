"""A store with a tmpfs mounted at one of its directories: `python -m tests.faults.mounted STORE PART`.

Ends with 0 when all went as it must. See test_mounted.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.errors import CannotRepair
from engine.files.disk import Disk
from engine.inspect.check.doctor import doctor
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.repair.salvage.test_undo import files
from tests.engine.repair.test_rules import messages, put, settings
from tests.support.checking import check_clean

COUNT = 300


def repair(root: Path, *, closed: bool = True) -> None:
    """Recover it; nothing is left to do."""
    if not closed:
        (root / "abort").touch()
    apply(Disk(), plan_recover(Disk(), settings(root)))
    assert not plan_recover(Disk(), settings(root)).changed
    check_clean(root, settings(root), known={"config-missing"}, why="config/ has nothing but what mkfs made")


def with_lost_and_found(root: Path, part: str) -> None:
    """mkfs's own directory is in nobody's way."""
    lost = root / part / "lost+found"
    lost.mkdir(mode=0o700)
    put(root, COUNT)
    repair(root, closed=False)
    assert len(messages(root)) == COUNT
    assert lost.is_dir()
    assert not (root / "quarantine").exists()
    codes = {finding.code for finding in doctor(Disk(), settings(root)).findings}
    assert ("mount-top" in codes) == (part == "commitlog")


def with_strays(root: Path, part: str) -> None:
    """Files are saved and go; what is no file is never taken to another disk: refused by name."""
    place = root / part
    below = {"consumequeue": place / "T" / "0"}.get(part, place)
    (below / f"{1 << 40:020d}").touch()
    if part != "commitlog":
        (below / f"{1 << 41:020d}").write_bytes(b"theirs")
    repair_before = files(root)
    os.mkfifo(below / f"{1 << 42:020d}")
    (below / f"{1 << 43:020d}").mkdir()
    for name in (f"{1 << 42:020d}", f"{1 << 43:020d}"):
        before = files(root)
        with pytest.raises(CannotRepair) as refused:
            apply(Disk(), plan_recover(Disk(), settings(root)))
        assert refused.value.path == str(below / name)
        assert "move it out of the store" in str(refused.value.hint)
        assert files(root) == before
        (below / name).rmdir() if (below / name).is_dir() else (below / name).unlink()
    repair(root)
    assert not (below / f"{1 << 40:020d}").exists()
    undo(Disk(), plan_undo(Disk(), settings(root)))
    assert files(root) == repair_before
    repair(root)
    assert len(messages(root)) == COUNT


def main() -> None:
    root, part = Path(sys.argv[1]), sys.argv[2]
    with_lost_and_found(root, part)
    if part in ("commitlog", "consumequeue", "index"):
        with_strays(root, part)


if __name__ == "__main__":
    main()
