"""The daemon seals and scrubs beside its clients: what changes is in its log and metrics, and nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.seals.directory import sealed_offsets
from tests.engine.broker.client import SMALL, Client, daemon
from tests.engine.opening import assert_sound
from tests.engine.seals.stores_sealed import scrubbed, segments, write

BODY = bytes(range(256)) * 400


def config(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SMALL)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def fill(client: Client, root: Path, files: int) -> None:
    """Send until the log has so many segments."""
    while len(segments(root)) < files:
        assert (await client.put("T", BODY)).code == 0


@pytest.mark.leaves
def test_segments_are_sealed_as_they_are_complete_and_what_changes_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    process: subprocess.Popen[bytes] | None = None

    async def run() -> None:
        async with daemon(root, scrub_period_ms=1, seals=True, metrics_port=0) as found:
            client = await Client.to(found.listening.broker)
            await fill(client, root, 4)
            scrubbing = found._scrubbing
            assert scrubbing is not None
            await until(lambda: scrubbing._child.process is not None)
            nonlocal process
            process = scrubbing._child.process
            await until(lambda: scrubbing.sealed_segments >= 2)
            await until(lambda: scrubbing.oldest_ms > 0)
            before = segments(root)[0].read_bytes()
            write(segments(root)[0], 5000, b"rot")
            await until(lambda: scrubbing.pages > 0)
            write(segments(root)[0], 0, before)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert sealed_offsets(Disk(), str(root / "seals"))[:2] == [int(path.name) for path in segments(root)[:2]]
    assert process is not None
    assert process.poll() is not None, "it has outlived the daemon"
    told = [one for one in caplog.records if one.message == "the log is not as it was sealed"]
    assert told
    assert (told[0].segment, told[0].offset, told[0].bytes) == (0, 4096, 4096)  # type: ignore[attr-defined]
    assert_sound(config(root))
    assert not scrubbed(root, keep_state=False).wrong


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def run() -> None:
        async with daemon(root) as found:
            await fill(await Client.to(found.listening.broker), root, 3)
            assert found._scrubbing is not None
            assert not found._scrubbing.is_on

    asyncio.run(run())
    assert not (root / "seals").exists()
