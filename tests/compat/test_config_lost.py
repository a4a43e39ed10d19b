"""Files of config/ lost beside a store that Apache's broker wrote: rebuilt by us, the broker serves every message.

And what its broker makes of broken ones, which recover and plan-start say before: engine.inspect.check.config_start.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import fastjson
from engine.inspect.check.config_start import config_start
from engine.repair.config.apply import apply
from engine.repair.config.plan import plan_rebuild
from engine.wire.codes import RequestCode
from tests.compat import real_broker, served, toolchain
from tests.engine.broker.client import Client, pull_fields, send_fields
from tests.support import stores
from tests.support.checking import check_clean

pytestmark = pytest.mark.interop

QUEUES, EACH, CONSUMED = 4, 5, 3
FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


def talk(address: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        await work(await Client.to(address))

    asyncio.run(run())


async def end_of(client: Client, topic: str) -> int:
    answer = await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return int(answer.fields["offset"])


async def until_end(client: Client, topic: str, end: int) -> None:
    async with asyncio.timeout(60):
        while await end_of(client, topic) < end:
            await asyncio.sleep(0.05)


async def fill(client: Client) -> None:
    """Messages of T, of which the group G has consumed some; delayed ones of D: one delivered, one that waits.

    It waits for two hours: the tests that copy the store take minutes, and some stand for the end of D's queue.
    """
    for queue_id in range(QUEUES):
        for i in range(EACH):
            sent = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", queue_id), b"%d" % i)
            assert sent.code == 0, sent
    await client.heartbeat("G", "T")
    assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))).code == 0
    said = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(CONSUMED)}
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, said)).code == 0
    for level, unique in (("1", "a"), ("18", "b")):
        delayed = send_fields("D", 0, f"DELAY\x01{level}\x02UNIQ_KEY\x01{unique}")
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, delayed, b"later")).code == 0
    await until_end(client, "D", 1)


async def read_all(client: Client) -> None:
    """Every message is served, none is delivered a second time, and the group stands where it stood, or before."""
    for queue_id in range(QUEUES):
        at, count = 0, 0
        while at < EACH:
            got = await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", at, queue_id=queue_id))
            assert got.code == 0, (queue_id, got.code, got.remark)
            count += int(got.fields["nextBeginOffset"]) - at
            at = int(got.fields["nextBeginOffset"])
        assert count == EACH
    assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields("D", 0))).code == 0
    later = send_fields("D", 0, "DELAY\x011\x02UNIQ_KEY\x01c")
    assert (await client.ask(RequestCode.SEND_MESSAGE_V2, later, b"last")).code == 0
    await until_end(client, "D", 2)  # what would come a second time would come before
    assert await end_of(client, "D") == 2


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("apache") / "store"
    root.mkdir()
    try:
        with real_broker.serve(root) as found:
            talk(found.broker, fill)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    return stores.copy(written, tmp_path / "store")


def lose(store: Path, *names: str) -> None:
    for name in names:
        for path in (store / "config").glob(f"{name}*"):
            path.unlink()


@pytest.mark.parametrize("lost", [*((name,) for name in FILES), FILES], ids="+".join)
def test_a_lost_file_is_rebuilt(lost: tuple[str, ...], store: Path) -> None:
    lose(store, *lost)
    config = StoreConfig(store_path_root_dir=store)
    plan = plan_rebuild(Disk(), config)
    assert plan.changed == (lost != ("consumerOffset.json",))
    if plan.changed:
        apply(Disk(), plan)
    offsets = store / "config" / "consumerOffset.json"
    if offsets.name in lost:
        assert not offsets.exists()  # no message was sent back: nothing tells of G
    else:
        assert fastjson.loads(offsets.read_text())["offsetTable"]["T@G"]["0"] == CONSUMED
    assert fastjson.loads((store / "config" / "delayOffset.json").read_text())["offsetTable"]["1"] == 1
    check_clean(store)
    ours = stores.copy(store, store.parent / "ours")
    with real_broker.serve(store) as found:
        talk(found.broker, read_all)
    with served.serve(ours) as mine:
        talk(mine.broker, read_all)


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_with_a_broken_bak_stops_the_broker(name: str, store: Path) -> None:
    for suffix in ("", ".bak"):
        (store / "config" / f"{name}{suffix}").write_text("{")
    found = config_start(Disk(), StoreConfig(store_path_root_dir=store), str(store))
    assert found.stops or found.stops_late
    tried = stores.copy(store, store.parent / "tried")
    with pytest.raises(AssertionError), real_broker.serve(tried):
        pass
    left = (tried / "config" / name).read_text()
    assert left == "{" if name != "consumerOffset.json" else '"offsetTable":{}' in "".join(left.split())
    apply(Disk(), plan_rebuild(Disk(), StoreConfig(store_path_root_dir=store)))
    with real_broker.serve(store) as started:
        talk(started.broker, read_all)


def test_broken_files_without_a_bak_are_started_without(store: Path) -> None:
    for name in FILES:
        lose(store, name)
        (store / "config" / name).write_text("{")
    found = config_start(Disk(), StoreConfig(store_path_root_dir=store), str(store))
    assert len(found.without) == len(FILES)
    lost = stores.copy(store, store.parent / "lost")

    async def refused(client: Client) -> None:
        assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))).code == 17  # TOPIC_NOT_EXIST

    with real_broker.serve(lost) as started:
        talk(started.broker, refused)
    shutil.rmtree(lost)
    apply(Disk(), plan_rebuild(Disk(), StoreConfig(store_path_root_dir=store)))
    with real_broker.serve(store) as started:
        talk(started.broker, read_all)
