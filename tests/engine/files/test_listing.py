from __future__ import annotations

import os
from pathlib import Path

from engine.files.listing import MissingOffsets, Oddness, list_segments
from engine.format.names import segment_name
from tests.engine.files.conftest import Place


def test_everything_that_is_no_segment_is_named(place: Place) -> None:
    disk, path = place.disk, place.path
    disk.mkdirs(path("log"))
    for offset in (300, 0, 100):
        disk.write_file(path("log", segment_name(offset)), bytes(100))
    disk.write_file(path("log", segment_name(400)), b"")
    disk.write_file(path("log", segment_name(500)), bytes(99))
    disk.write_file(path("log", segment_name(650)), bytes(100))
    disk.write_file(path("log", "notes.txt"), bytes(100))
    disk.mkdirs(path("log", "lost+found"))  # a file system's own
    disk.mkdirs(path("log", "directory"))
    disk.mkdirs(path("other"))
    disk.write_file(path("other", segment_name(100)), bytes(100))
    disk.write_file(path("other", segment_name(600)), bytes(100))

    listing = list_segments(disk, [path("log"), path("other"), path("gone")], 100)

    assert [file.offset for file in listing.files] == [0, 100, 300, 600]
    assert listing.gaps == (MissingOffsets(200, 300), MissingOffsets(400, 600))
    assert (listing.min_offset, listing.end_offset) == (0, 700)
    assert listing.missing == (path("gone"),)
    assert {(Path(odd.path).name, odd.why) for odd in listing.odd} == {
        (segment_name(400), Oddness.EMPTY),
        (segment_name(500), Oddness.WRONG_SIZE),
        (segment_name(650), Oddness.MISALIGNED),
        ("notes.txt", Oddness.STRANGE_NAME),
        ("directory", Oddness.NOT_A_FILE),
        (segment_name(100), Oddness.DUPLICATE),
    }


def test_nothing_there(place: Place) -> None:
    listing = list_segments(place.disk, [place.root], 100)
    assert (listing.files, listing.odd, listing.gaps, listing.min_offset, listing.end_offset) == ((), (), (), -1, 0)


def test_links_are_followed_and_dangling_ones_named(real: Place, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "elsewhere").write_bytes(bytes(100))
    (tmp_path / "log" / segment_name(0)).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "log" / segment_name(100)).symlink_to(tmp_path / "nowhere")
    listing = list_segments(real.disk, [str(tmp_path / "log")], 100)
    assert [file.offset for file in listing.files] == [0]
    assert [(odd.why, odd.what) for odd in listing.odd] == [
        (Oddness.ABSENT, f"a link to {tmp_path / 'nowhere'}, which does not exist")
    ]


def test_listing_changes_nothing(real: Place, tmp_path: Path) -> None:
    (tmp_path / segment_name(0)).write_bytes(bytes(100))
    os.utime(tmp_path / segment_name(0), ns=(1, 2))
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    list_segments(real.disk, [str(tmp_path)], 100)
    assert {path: path.stat() for path in tmp_path.rglob("*")} == before
