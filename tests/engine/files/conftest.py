"""The same tests on three disks: memory map, channel, and a fake file system that knows neither maps nor allocation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.faults import FaultyDisk


@dataclass(frozen=True)
class Place:
    disk: Disk
    root: str
    kind: str

    def path(self, *parts: str) -> str:
        return str(Path(self.root, *parts))

    @property
    def mapped(self) -> bool:
        return self.kind == "map"


@pytest.fixture(params=["map", "channel", "fake"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "fake":
        request.getfixturevalue("fs").create_dir("/store")
        return Place(Disk(), "/store", "fake")
    root = str(request.getfixturevalue("tmp_path"))
    return Place(Disk(mapped=request.param == "map"), root, request.param)


@pytest.fixture
def real(tmp_path: Path) -> Place:
    return Place(Disk(), str(tmp_path), "map")


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyDisk:
    root = tmp_path / "store"
    root.mkdir()
    return FaultyDisk(str(root))
