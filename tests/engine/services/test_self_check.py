"""Apache's checkSelf: a segment that is gone below an open store is told, and files that don't follow each other."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.services import self_check
from engine.store import MessageStore
from tests.engine.broker.client import SMALL, Client, daemon, send_fields
from tests.engine.opening import assert_sound, message, small


def test_apaches_times() -> None:
    assert (self_check.FIRST_MS, self_check.EVERY_MS) == (60_000, 600_000)


def test_what_is_gone_is_told(tmp_path: Path) -> None:
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        assert not store.self_check.running  # it is a broker's
        for _ in range(250):
            store.put(message(b"x" * 1000))
        store.flush_all(60_000)
        assert store.self_check.look() == ()
        segment = tmp_path / "store" / "commitlog" / f"{65536:020d}"
        segment.rename(tmp_path / "aside")
        assert store.self_check.look() == (f"{segment} is missing while the store is open",)
        (tmp_path / "aside").rename(segment)
        assert store.self_check.look() == ()
        files = store.log.files
        whole = files.files
        files.files = (whole[0], *whole[2:])
        assert store.self_check.look() == ("gap in the log: no segment for 65536 to 131072",)
        files.files = whole
        (queue,) = store.queues.opened()
        mapped = queue._files.mapped
        whole = mapped.files
        mapped.files = (whole[0], *whole[2:])
        assert store.self_check.look() == ("gap in queue T/0: no file for 2000 to 4000",)
        mapped.files = whole
    assert_sound(config)


def test_the_daemon_looks_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(self_check, "FIRST_MS", 0)
    monkeypatch.setattr(self_check, "EVERY_MS", 5)

    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert (await client.ask(310, send_fields("T"), b"x")).code == 0
            (segment,) = (tmp_path / "s" / "commitlog").glob(f"{0:020d}")
            segment.rename(tmp_path / "aside")
            until = time.monotonic() + 60
            while not found.broker.store.self_check.problems and time.monotonic() < until:
                await asyncio.sleep(0.01)
            found.health.tick()
            (tmp_path / "aside").rename(segment)
            assert [getattr(one, "why", "") for one in caplog.records if one.msg == "unhealthy"] == [
                f"{segment} is missing while the store is open"
            ]
            while found.broker.store.self_check.problems and time.monotonic() < until:
                await asyncio.sleep(0.01)
            found.health.tick()
            assert "healthy again" in caplog.messages

    caplog.set_level("INFO")
    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))
