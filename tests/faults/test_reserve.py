"""ext4 keeps blocks back for root (`mke2fs -m`): a repair by root uses them, and is refused when they are used up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.test_full_disk import ROOT

MOUNT = 'mount -o loop "$1" "$2" && shift 2 && exec "$@"'


def on_ext4(image: Path, place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a file's ext4 at `place`, which nobody else sees and which is gone afterwards."""
    apart = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(image), str(place), *command]
    return subprocess.run(apart, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may use what is kept back for root")
def test_a_repair_by_root_may_use_what_is_kept_back_for_root(tmp_path: Path) -> None:
    made = shutil.which("mke2fs", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if made is None or shutil.which("unshare") is None:
        pytest.skip("no mke2fs or no unshare program here: no ext4 of our own")
    image, place = tmp_path / "image", tmp_path / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run([made, "-q", "-F", "-t", "ext4", "-m", "50", image], check=True)
    if on_ext4(image, place, "true").returncode != 0:
        pytest.skip("this system mounts no file for us: no ext4 of our own")
    ran = on_ext4(image, place, sys.executable, "-m", "tests.faults.reserve", str(place))
    assert ran.returncode == 0, f"{ran.returncode}\n{ran.stderr[-4000:]}"
