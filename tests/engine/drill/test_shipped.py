"""Every drill that comes with rstore passes, with a few of its interruptions; one on a fake file system, too."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy  # noqa: F401 - before the file system is a fake one
import pytest

from engine.drill import library
from engine.drill.apart import run_drills
from engine.drill.read_script import parse_script
from engine.drill.run import run_drill
from engine.drill.script import Drill
from engine.drill.steps import How

if TYPE_CHECKING:
    from pyfakefs.fake_filesystem import FakeFilesystem

MEMORY = Path("/dev/shm")
REAL = library.shipped("disk-full-real")
SERVED = library.shipped("serve-disk-full")


@pytest.fixture
def place() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="rstore-drills-", dir=MEMORY if MEMORY.is_dir() else None) as found:
        yield str(Path(found) / "drill")


@pytest.mark.parametrize(
    "name",
    [name for name in library.names() if name not in (REAL.name, SERVED.name)],
)
def test_it_passes(name: str, place: str) -> None:
    drill = library.shipped(name)
    result = run_drill(drill, place, how=How(sample=3))
    assert result.failures == []
    assert result.verdict == "passed"
    assert result.judged >= len(drill.steps) // 2
    for step, done in zip(drill.steps, result.steps, strict=True):
        assert done.summary
        assert (done.tried > 0) is (getattr(step, "crash", None) is not None)
        assert done.tried <= 3 + 1  # the power goes when a command has ended, too
        assert done.tried <= done.of
    assert not Path(place).exists()


@pytest.mark.parametrize(("drill", "step"), [(REAL, 3), (SERVED, 4)], ids=lambda it: getattr(it, "name", ""))
def test_a_really_full_disk(drill: Drill, step: int) -> None:
    """A tmpfs of its own, in a process of its own: ENOSPC from the kernel, and no SIGBUS."""
    (result,) = run_drills([drill]).drills
    if result.verdict == "not run":
        pytest.skip(str(result.why))
    assert result.failures == []
    assert result.verdict == "passed"
    assert "refused" in result.steps[step].summary


@pytest.fixture
def collected() -> None:
    """What other tests have left is closed on the real file system: later, descriptors are the fake one's."""
    gc.collect()


@pytest.mark.usefixtures("collected")
def test_a_full_disk_of_a_fake_file_system(fs: FakeFilesystem) -> None:
    """With one index file: a look-up by key reads all of them, and reads of fake files are slow."""
    text = REAL.text.replace("own = true\n", "own = true\nindex_slots = 500\nindex_entries = 2000\n")
    drill = parse_script(text.encode(), REAL.source)
    assert drill.store.index_entries > REAL.store.index_entries
    fs.create_dir("/scratch")
    fs.set_disk_usage(REAL.store.file_system)
    result = run_drill(drill, "/scratch/drill", how=How(own_place="/scratch"))
    assert result.failures == []
    assert result.verdict == "passed"
    assert "refused" in result.steps[3].summary
    assert shutil.disk_usage("/scratch").total == REAL.store.file_system
