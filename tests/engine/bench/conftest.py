"""Small workloads, and a kept store of one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.bench import child
from engine.bench.stores import KeptStore, Made, keep
from engine.bench.timing import MeasureTask, Timer
from engine.bench.workload import KIB, MIB, Workload, workloads

PROGRAM = (sys.executable, "-m", "rstore_cli.app")
SMALL = (
    Workload("b1k", KIB, size=300_000, segment=100_000),
    Workload("b128", 128, size=500_000, segment=500_000),
    Workload("queues", 256, queues=30, size=100_000, segment=100_000),
    Workload("b64k", 64 * KIB, size=MIB, segment=MIB // 2),
    replace(workloads(MIB)["sparse"], size=4 * MIB),
    Workload("b128-crc", 128, size=200_000, segment=100_000, sealed=True),
)


def make(workload: Workload, root: Path) -> Made:
    """A closed store, in this process."""
    made = child.run(MeasureTask(child.MAKE, workload, root), Timer())
    return Made(made.messages, made.size)


@pytest.fixture(scope="session", params=SMALL, ids=lambda workload: workload.name)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KeptStore:
    """The closed store of each small workload, to read and to copy."""
    return keep(request.param, tmp_path_factory.mktemp("kept"), make)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> KeptStore:
    """That of 128 byte bodies alone."""
    return keep(SMALL[1], tmp_path_factory.mktemp("plain"), make)
