"""Apache RocketMQ 4.9.8 on sealed stores: it passes the seals over, loses nothing, and its new segments are sealed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.seals.directory import sealed_offsets
from engine.seals.scrub import scrub
from engine.seals.scrub_result import Scrubbed, ScrubOptions
from engine.seals.sealing import Sealed, SealOptions, seal_store
from engine.store import MessageStore
from tests.compat import apache
from tests.compat.apache import Sizes
from tests.compat.checks import settings
from tests.engine.opening import message
from tests.support import stores
from tests.support.checking import check_clean

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

SIZES = Sizes(65_536, 2_000, 200, 800)


def seal(config: StoreConfig) -> Sealed:
    return seal_store(Disk(), config, SealOptions())


def scrubbed(config: StoreConfig) -> Scrubbed:
    return scrub(Disk(), config, ScrubOptions())


@pytest.mark.parametrize("crashed", [False, True])
def test_apache_reads_and_writes_a_sealed_store(tmp_path: Path, crashed: bool) -> None:
    root = tmp_path / "store"
    config = settings(root, SIZES)
    with MessageStore.open(config) as store:
        for number in range(500):
            assert store.put(message(f"{number}" * 300, KEYS=f"key{number}")).ok
    assert len(seal(config).made) > 3
    seals = stores.snapshot(root / "seals")
    log = {path.name: stores.digest(path) for path in (root / "commitlog").iterdir()}
    if crashed:
        (root / "abort").touch()
    opened = apache.read(root, SIZES)
    assert opened.exit == apache.Exit.OPENED, opened.stderr
    assert len(opened.messages) == 500
    assert stores.snapshot(root / "seals") == seals
    sealed = sealed_offsets(Disk(), str(root / "seals"))
    assert {name: stores.digest(root / "commitlog" / name) for name in log if int(name) in sealed} == {
        name: digest for name, digest in log.items() if int(name) in sealed
    }
    assert not scrubbed(config).wrong
    assert seal(config).made == []
    written = apache.append(root, "T", 0, 1000, SIZES)
    assert written.exit == apache.Exit.OPENED
    assert not scrubbed(config).wrong
    more = seal(config)
    assert more.clean
    assert more.made
    assert not more.refreshed
    assert scrubbed(config).sealed == len(sealed) + len(more.made)
    assert not scrubbed(config).wrong
    check_clean(root, config)


def test_segments_that_apache_deletes_leave_seals_that_the_next_run_removes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = settings(root, SIZES)
    with MessageStore.open(config) as store:
        for number in range(500):
            assert store.put(message(f"{number}" * 100)).ok
    seal(config)
    files = sorted((root / "commitlog").iterdir())
    for path in files[:2]:
        os.utime(path, (1, 1))
    ran = apache.clean(root, SIZES, rounds=1, manually=True, settings={"deleteCommitLogFilesInterval": 0})
    assert ran.exit == apache.Exit.OPENED, ran.stderr
    assert not files[0].exists()
    assert not scrubbed(config).wrong
    assert 0 in seal(config).removed
    assert not scrubbed(config).wrong
