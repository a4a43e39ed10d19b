"""Below a disk's roots no change goes through a link: with openat2, and on a system that has none."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.errors import OutsideStore, RStoreError
from engine.files.directories import PRIVATE
from engine.files.disk import Disk
from engine.files.libc import Libc
from engine.files.operations import Touch

SWAPS = 3000
KEY = b"of somebody else"


class Old(Libc):
    """Of a system before Linux 5.6, or a sandbox that lets no such call through."""

    error = errno.ENOSYS

    def open_beneath(self, directory: int, path: str, flags: int) -> int:
        raise OSError(self.error, os.strerror(self.error))


class Sandboxed(Old):
    error = errno.EPERM


@pytest.fixture(params=[Libc, Old, Sandboxed])
def disk(request: pytest.FixtureRequest, root: Path) -> Disk:
    """A disk that makes changes below the root alone."""
    disk = Disk()
    disk.libc = request.param()
    roots = disk.roots()
    roots.add(str(root))
    return disk.beneath(roots)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with another one in it."""
    root = tmp_path / "root"
    (root / "plain" / "deep").mkdir(parents=True)
    return root


@pytest.fixture
def victim(tmp_path: Path, root: Path) -> Iterator[Path]:
    """What lies outside, with links to it below the root: it stays as it is."""
    victim = tmp_path / "victim"
    (victim / "below").mkdir(parents=True)
    (victim / "file").write_bytes(KEY)
    (root / "link").symlink_to(victim)
    (root / "plain" / "file").symlink_to(victim / "file")
    yield victim
    assert {str(path.relative_to(victim)) for path in victim.rglob("*")} == {"below", "file"}
    assert (victim / "file").read_bytes() == KEY
    assert (victim / "file").stat().st_mode & 0o777 == 0o644


def path_of(root: Path, *parts: str) -> str:
    return str(root.joinpath(*parts))


CHANGES: dict[str, Callable[[Disk, Path], object]] = {
    "write": lambda disk, root: disk.write_file(path_of(root, "link", "file"), b"x"),
    "write a link": lambda disk, root: disk.write_file(path_of(root, "plain", "file"), b"x"),
    "write atomically": lambda disk, root: disk.write_file_atomically(path_of(root, "link", "file"), b"x"),
    "write a link atomically": lambda disk, root: disk.write_file_atomically(path_of(root, "plain", "file"), b"x"),
    "make": lambda disk, root: disk.open_raw(path_of(root, "link", "new"), new=True),
    "make deep": lambda disk, root: disk.open_raw(path_of(root, "link", "below", "new"), new=True),
    "make a segment": lambda disk, root: disk.open_segment(path_of(root, "link", "new"), 4096, create=True),
    "make a directory": lambda disk, root: disk.mkdirs(path_of(root, "link", "new", "deeper")),
    "make a link": lambda disk, root: disk.link("/", path_of(root, "link", "new")),
    "unlink": lambda disk, root: disk.unlink(path_of(root, "link", "file")),
    "remove a directory": lambda disk, root: disk.remove_dir(path_of(root, "link", "below")),
    "rename away": lambda disk, root: disk.replace(path_of(root, "link", "file"), path_of(root, "mine")),
    "rename into": lambda disk, root: disk.replace(path_of(root, "plain", "deep"), path_of(root, "link", "new")),
    "set a mode": lambda disk, root: disk.set_mode(path_of(root, "plain", "file"), 0o777),
    "set a time": lambda disk, root: disk.set_modified(path_of(root, "plain", "file"), 1),
    "by dots": lambda disk, root: disk.write_file(path_of(root, "..", "victim", "file"), b"x"),
    "another path": lambda disk, root: disk.write_file(path_of(root.parent, "victim", "file"), b"x"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_through_a_link_is_refused(
    change: Callable[[Disk, Path], object], disk: Disk, root: Path, victim: Path
) -> None:
    with pytest.raises(OutsideStore):
        change(disk, root)


def test_what_is_below_the_root_changes(disk: Disk, root: Path) -> None:
    deep = path_of(root, "plain", "deep", "deeper")
    disk.mkdirs(deep)
    disk.write_file(os.path.join(deep, "file"), b"1")
    disk.write_file_atomically(os.path.join(deep, "file"), b"22")
    disk.replace(os.path.join(deep, "file"), path_of(root, "plain", "file"))
    assert (root / "plain" / "file").read_bytes() == b"22"
    disk.unlink(path_of(root, "plain", "file"))
    assert disk.remove_dir(deep)


@pytest.mark.parametrize("touch", Touch)
def test_it_is_told_before(touch: Touch, disk: Disk, root: Path, victim: Path) -> None:
    with pytest.raises(OutsideStore, match="leads to"):
        disk.demand_inside(path_of(root, "link", "file"), touch)
    if touch is Touch.NAME:
        disk.demand_inside(path_of(root, "plain", "file"), touch)  # a link is a name
    else:
        with pytest.raises(OutsideStore, match="leads to"):
            disk.demand_inside(path_of(root, "plain", "file"), touch)
    os.link(victim / "file", root / "plain" / "other")
    if touch is Touch.BYTES:
        with pytest.raises(OutsideStore, match="hard links"):
            disk.demand_inside(path_of(root, "plain", "other"), touch)
    else:
        disk.demand_inside(path_of(root, "plain", "other"), touch)
    (root / "plain" / "other").unlink()
    disk.demand_inside(path_of(root, "plain", "not there", "deeper"), touch)


def test_who_exchanges_directory_and_link_leads_nobody_out(disk: Disk, root: Path, victim: Path) -> None:
    """Another process puts a link where a directory was, again and again, between any look and any change."""
    place, aside = root / "raced", root / "aside"
    place.mkdir()
    ended = threading.Event()

    def race() -> None:
        while not ended.is_set():
            with suppress(OSError):
                place.rename(aside)
                place.symlink_to(victim)
                place.unlink()
                aside.rename(place)

    racer = threading.Thread(target=race)
    racer.start()
    made = refused = 0
    try:
        for number in range(SWAPS):
            file = str(place / str(number))
            try:
                disk.write_file(file, b"x")
                disk.write_file_atomically(file, b"y")
                disk.unlink(file)
                made += 1
            except RStoreError:
                refused += 1
    finally:
        ended.set()
        racer.join()
    assert made + refused == SWAPS  # what lies outside: the fixture's end


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_what_is_made_has_the_stores_mode(mode: int, umask: int, disk: Disk, root: Path) -> None:
    root.chmod(mode)
    before = os.umask(umask)
    try:
        disk.mkdirs(path_of(root, "new", "deeper"))
        disk.write_file(path_of(root, "new", "deeper", "file"), b"x")
        disk.mkdirs(path_of(root, "private", "deeper"), mode=PRIVATE)
        disk.write_file(path_of(root, "private", "deeper", "file"), b"x")
    finally:
        os.umask(before)
    modes = {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in root.rglob("*")}
    assert modes["new"] == modes["new/deeper"] == mode
    assert modes["new/deeper/file"] == mode & 0o666
    assert modes["private"] == modes["private/deeper"] == 0o700
    assert modes["private/deeper/file"] == 0o600
