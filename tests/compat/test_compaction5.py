"""The copies of compacted topics against real 5.x brokers: these return what rstore shows, and start as it says."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.client.connection import RemotingClient
from engine.client.pulling import pull_fields
from engine.client.queues import MessageQueue
from engine.client.subscriptions import TopicSubscription
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import decode
from engine.format.record import total_size_at
from engine.inspect.check.check import check
from engine.inspect.store.compaction import CompactedQueue, compacted_rows, compaction_of
from engine.inspect.store.survey import survey
from engine.wire.codes import RequestCode, ResponseCode
from tests.compat import real_broker, starts5, toolchain
from tests.compat.generate5 import COMPACTED, SMALL
from tests.support import newer, stores
from tests.support.wide import WIDE

pytestmark = pytest.mark.interop
SETTINGS: dict[str, object] = {**SMALL, **COMPACTED, "compactionScheduleInternal": 3_600_000}
FIXTURES = {"5.3.3": "compaction-5.3.3", "5.5.0": "compaction"}
FIRST, SECOND = "00000000000000000000", "00000000000000030360"


def copies(root: Path) -> tuple[CompactedQueue, ...]:
    return compaction_of(Disk(), survey(Disk(), StoreConfig(store_path_root_dir=root))).queues


async def _records(address: str, queue_id: int) -> list[bytes]:
    """All that a consumer gets of a queue, as bytes."""
    records: list[bytes] = []
    offset = 0
    async with await RemotingClient.connect(address) as client:
        while True:
            wanted = TopicSubscription("C", "*", "TAG", (), 1)
            fields = pull_fields("G", MessageQueue("C", "broker-a", queue_id), offset, wanted)
            answer = await client.ask(RequestCode.PULL_MESSAGE, fields, timeout_s=20)
            if answer.code != ResponseCode.SUCCESS:
                return records
            data, at = bytes(answer.body), 0
            while at < len(data):
                size = total_size_at(data, at)
                records.append(data[at : at + size])
                at += size
            offset = int(answer.fields["nextBeginOffset"])


@pytest.mark.parametrize("version", FIXTURES if WIDE else ("5.5.0",))
def test_a_broker_returns_what_is_shown(version: str, tmp_path: Path) -> None:
    """Each record to the byte, at each offset of the queue that has one; nothing else."""
    try:
        apache = toolchain.apache_broker5(version)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root = newer.unpack(FIXTURES[version], tmp_path)
    shown = {}
    for queue in copies(root):
        rows = list(compacted_rows(Disk(), queue, max_message_size=1 << 22))
        assert all(row.reason is None for row in rows)
        for row in rows:
            if row.message is not None:
                assert row.queue_offset == row.message.queue_offset
                data = Path(row.path).read_bytes()[(at := row.offset - int(Path(row.path).name)) : at + row.length]
                assert decode(data) == row.message
                shown.setdefault(queue.queue.queue_id, []).append(data)
    settings = "".join(f"{key}={value}\n" for key, value in {**SETTINGS, "brokerName": "broker-a"}.items())
    with (
        real_broker.name_server(tmp_path / "names", apache=apache) as names,
        real_broker.broker(root, names, settings, apache=apache) as broker,
    ):
        got = {queue_id: asyncio.run(_records(broker.broker, queue_id)) for queue_id in (0, 1)}
    assert got == shown
    assert all(len(records) == 13 for records in got.values())


def _shorten(root: Path) -> None:
    file = root / "compaction" / "compactionLog" / "C" / "0" / FIRST
    file.write_bytes(file.read_bytes()[:5000])


def _left(root: Path) -> None:
    for kind in ("compactionLog", "compactionCq"):
        directory = root / "compaction" / kind / "C" / "0"
        shutil.copy(directory / FIRST, directory / f"{FIRST}.delete")


def _under_way(root: Path) -> None:
    for kind in ("compactionLog", "compactionCq"):
        directory = root / "compaction" / kind / "C" / "0"
        (directory / "compacting").mkdir()
        shutil.copy(directory / FIRST, directory / "compacting" / FIRST)


def _without(*parts: str) -> Callable[[Path], None]:
    def remove(root: Path) -> None:
        for part in parts:
            path = root / "compaction" / part
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


DAMAGE: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "sound": (lambda root: None, set()),
    "shorter": (_shorten, {"compaction-damage"}),
    "left": (_left, {"compaction-file"}),
    "no-units": (_without(f"compactionCq/C/0/{SECOND}"), {"compaction-damage"}),
    "no-units-before": (_without(f"compactionCq/C/0/{FIRST}"), {"compaction-file"}),
    "no-log": (_without(f"compactionLog/C/0/{SECOND}"), {"compaction-file"}),
    "under-way": (_under_way, {"compaction-left"}),
    "no-directory": (_without("compactionCq/C/0"), {"compaction-damage"}),
    "neither": (_without("compactionCq/C/0", "compactionLog/C/0"), set()),
    "positions": (
        lambda root: (
            [
                (root / "compaction" / name).write_text("{")
                for name in ("position-checkpoint", "position-checkpoint.bak")
            ]
            and None
        ),
        {"compaction-position"},
    ),
}


@pytest.mark.wide
@pytest.mark.leaves
@pytest.mark.parametrize("version", FIXTURES if WIDE else ("5.5.0",))
def test_a_broker_starts_where_check_says_so(version: str, tmp_path: Path) -> None:
    jobs = {}
    base = newer.unpack(FIXTURES[version], tmp_path)
    for name, (damage, codes) in DAMAGE.items():
        root = stores.copy(base, tmp_path / name)
        damage(root)
        result = check(Disk(), StoreConfig(store_path_root_dir=root))
        named = {one.code for one in result.findings if one.code.startswith("compaction-")}
        assert named == codes, name
        jobs[str(root)] = (name, "compaction-file" in codes)
    try:
        outcomes = starts5.outcomes(version, [starts5.Job(Path(root), SETTINGS, {}) for root in jobs])
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    assert {name: outcomes[root]["exit"] != 0 for root, (name, _) in jobs.items()} == dict(jobs.values())
    second = tmp_path / "no-units" / "compaction" / "compactionLog" / "C" / "0" / SECOND
    assert not second.exists()  # as check said
