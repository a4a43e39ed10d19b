"""The disk is really full: ENOSPC from the system, on a tmpfs of one megabyte in a mount namespace of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.full_disk import KINDS

ROOT = Path(__file__).resolve().parents[2]
ROOMY = ("map", "channel", "async", "pool", "ext")
"""Their stores take some 0.9 MiB in the end, now a little more and now less: as the disk fills up, so many puts fit."""
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


def on_a_small_disk(place: Path, size: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a tmpfs of `size` at `place`, which nobody else sees and which is gone afterwards."""
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", size, str(place), *command]
    return subprocess.run(namespace, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """Where the tmpfs goes; skips where the system has none for us."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare program here: no disk of our own to fill")
    if on_a_small_disk(tmp_path, "64k", "true").returncode != 0:
        pytest.skip("this system lets ordinary users mount no tmpfs in a user namespace: no disk of our own to fill")
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_on_a_full_disk(kind: str, small_disk: Path) -> None:
    if kind == "holes" and shutil.which("fallocate") is None:
        pytest.skip("no fallocate program here: no holes")
    size = "2m" if kind in ROOMY else "1m"
    ran = on_a_small_disk(small_disk, size, sys.executable, "-m", "tests.faults.full_disk", str(small_disk), kind)
    assert ran.returncode == 0, f"{ran.returncode}\n{ran.stderr[-4000:]}"
    full = int(ran.stdout.splitlines()[-1])  # commands that it runs print before
    assert full > 0 or kind == "cleaning", "it was never full"
