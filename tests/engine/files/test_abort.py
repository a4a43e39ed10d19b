from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import StorageError
from engine.files.abort import AbortFile
from engine.files.faults import FaultyDisk
from tests.engine.files.conftest import Place


def test_the_mark_comes_and_goes(place: Place) -> None:
    abort = AbortFile(place.disk, place.root)
    assert not abort.exists()
    abort.create()
    abort.create()
    assert abort.exists()
    assert place.disk.read_file(place.path("abort")) == b""
    abort.remove()
    abort.remove()
    assert not abort.exists()


def test_no_store_no_mark(place: Place) -> None:
    with pytest.raises(StorageError):
        AbortFile(place.disk, place.path("nothing")).create()


def test_the_mark_and_its_removal_are_durable(faulty: FaultyDisk, tmp_path: Path) -> None:
    abort = AbortFile(faulty, str(tmp_path / "store"))
    abort.create()
    faulty.crash_copy(str(tmp_path / "one"), lose="all")
    assert (tmp_path / "one" / "abort").exists()
    abort.remove()
    faulty.crash_copy(str(tmp_path / "two"), lose="all")
    assert not (tmp_path / "two" / "abort").exists()
