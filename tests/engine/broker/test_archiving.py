"""The daemon archives what its retention is to delete: nothing goes that is not held, and nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.backup.archive.job import ArchiveAccess
from engine.broker.serve import Daemon
from engine.config import StoreConfig
from engine.daemon import daemon_of
from engine.errors import FormatError, Refused
from engine.files.disk import Disk
from engine.format.message import StoredMessage
from engine.read_store import ReadStore
from engine.repair.change import preview
from engine.repair.expire.change import ExpireChange
from tests.engine.backup import archives, repositories
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.broker.test_scrubbing import BODY, fill, until
from tests.engine.opening import assert_sound
from tests.engine.seals.stores_sealed import segments


def config(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SMALL, file_reserved_time=0)


async def in_thread(work: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def a_round(found: Daemon) -> None:
    await in_thread(lambda: found._store.clean.clean(by_hand=True))


def told(caplog: pytest.LogCaptureFixture, message: str) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.message == message]


def test_what_a_snapshot_holds_is_archived_and_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "store"
    repository = repositories.new(tmp_path / "repository", None)
    access = ArchiveAccess(str(tmp_path / "repository"), "a")
    every: dict[str, list[StoredMessage | FormatError]] = {}
    process: subprocess.Popen[bytes] | None = None

    async def run() -> None:
        async with daemon(root, config=config(root), archive=access, metrics_port=0) as found:
            archiving = found._archiving
            archiving._again_s = 0.05
            client = await Client.to(found.listening.broker)
            while len(found._store.log.files.files) < 3:  # of a fourth, made ahead, nothing is written
                assert (await client.put("T", BODY)).code == 0
            await in_thread(found._store.wait_dispatched)
            await a_round(found)
            await until(lambda: bool(archiving.waits_for))
            assert segments(root)[0].name == "0" * 20
            assert archiving.waiting == 2
            state = archiving.to_json()
            assert state is not None
            assert "no snapshot of store 'a' has it" in state["waitsFor"]
            with pytest.raises(Refused, match="only segments that its archive holds"):
                await in_thread(lambda: preview(ExpireChange(archives.NOW, daemon_of(root)), Disk(), config(root)))

            await in_thread(found._store.flush)
            with ReadStore(config(root)) as reader:
                every.update(archives.messages(reader))
            await in_thread(lambda: repositories.back_up(repository, config(root)))
            while archiving.archived < 2:  # as rounds come: every ten seconds
                await a_round(found)
                await asyncio.sleep(0.01)
            assert segments(root)[0].name != "0" * 20
            assert archiving.to_json() == {
                "repository": access.location, "archived": 2, "waiting": 0, "waitsFor": None, "error": None
            }  # fmt: skip
            nonlocal process
            process = archiving._child.process

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    (waits,) = told(caplog, "segments wait for the archive and stay")
    assert waits.run == f"rstore backup create --repo {access.location} --name a"  # type: ignore[attr-defined]
    assert len(told(caplog, "segment archived")) == 2
    assert process is not None
    assert process.poll() is not None, "it has outlived the daemon"
    with archives.opened(repository, config(root)) as reader:
        assert archives.messages(reader) == every
        assert reader.archived_below == 2 << 22
    assert_sound(config(root))


def test_a_repository_that_is_away_keeps_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once; retention goes on when it is there again; who reads and writes notices nothing."""
    root, place = tmp_path / "store", tmp_path / "repository"
    repository = repositories.new(place, None)

    async def run() -> None:
        async with daemon(root, config=config(root), archive=ArchiveAccess(str(place), "a")) as found:
            archiving = found._archiving
            archiving._again_s = 0.05
            client = await Client.to(found.listening.broker)
            await fill(client, root, 3)
            await in_thread(found._store.wait_dispatched)
            await in_thread(lambda: repositories.back_up(repository, config(root)))
            place.rename(tmp_path / "away")
            await a_round(found)
            await until(lambda: bool(archiving.error))
            first = archiving._child.process
            await a_round(found)
            await until(lambda: archiving._child.process is not first)
            assert segments(root)[0].name == "0" * 20
            (tmp_path / "away").rename(place)
            while not archiving.archived:
                await a_round(found)
                await asyncio.sleep(0.01)
            assert archiving.error == ""

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert len(told(caplog, "archiving failed; will retry")) == 1
    assert len(told(caplog, "the archive can be used again")) == 1
    assert_sound(config(root))
