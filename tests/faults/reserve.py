"""A store on an ext4 that keeps half of its blocks back for root: `python -m tests.faults.reserve PLACE`, by root.

Ends with 0 when all went as it must. See test_reserve.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import NoSpaceToSave
from engine.files.disk import Disk
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.engine.repair import test_rules as rules
from tests.support import stores
from tests.support.checking import check_clean

NOBODY = 65534
MIB = 1 << 20
ASKED = "import sys; from engine.files.disk import Disk; print(Disk().writable(sys.argv[1]))"


def fill(place: Path, leave: int) -> None:
    """A file with blocks for what root may still take, but for `leave` bytes and what nobody gets (4096 blocks)."""
    free = os.statvfs(place)
    with (place / "ballast").open("ab") as file:
        os.posix_fallocate(file.fileno(), file.tell(), free.f_bfree * free.f_frsize - 4096 * free.f_bsize - leave)


def repaired(root: Path) -> None:
    apply(Disk(), plan_recover(Disk(), rules.settings(root), bridge=True, whole=True))
    check_clean(root, rules.settings(root), known={"log-bridged"}, why="bytes were overwritten")


def main() -> None:
    place = Path(sys.argv[1])
    root = place / "store"
    rules.put(root, 200)
    rules.damage(root, 5_000, b"\xff" * 300)
    fill(place, 8 * MIB)
    usage, writable = Disk().usage(str(place)), Disk().writable(str(place))
    repaired(root)
    assert usage.usable == 0
    assert 7 * MIB < writable <= 8 * MIB

    rules.damage(root, 19_800, b"\xff" * 300)
    fill(place, 4096)
    before = stores.snapshot(root)
    with pytest.raises(NoSpaceToSave):
        repaired(root)
    assert stores.snapshot(root) == before

    (place / "ballast").unlink()
    usable = Disk().usage(str(place)).usable
    assert Disk().writable(str(place)) > usable > 0
    apart = ["unshare", "--user", "--map-root-user", sys.executable, "-c", ASKED, str(place)]
    ran = subprocess.run(apart, capture_output=True, text=True, check=False)  # root in a container alone, perhaps
    assert ran.returncode != 0 or int(ran.stdout) == usable
    os.chdir(place)
    os.seteuid(NOBODY)
    assert Disk().writable(".") == usable
    os.seteuid(0)
    repaired(root)


if __name__ == "__main__":
    main()
