"""Flow control on a disk that is really slow: what is refused and how, that all else goes on, and that it ends."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from engine.broker.put import flow
from engine.broker.serve import Daemon
from engine.config import StoreConfig
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format import batch
from engine.format.hosts import Host
from engine.log.results import AppendResult, PutMessageStatus, PutResult
from engine.services.waiting import FlushFuture, Pending
from engine.wire.codes import RequestCode, ResponseCode
from tests.engine.broker.client import SMALL, Client, daemon, pull_fields, send_fields
from tests.engine.opening import assert_sound

APPENDED = AppendResult(0, 100, 0, 0, Host(bytes(4), 0), (0,))
BATCH = batch.encode([batch.BatchItem.of(b"one", {}), batch.BatchItem.of(b"two", {})])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "SLOW_MS", 20)


class SlowDisk(FaultyDisk):
    """Writes (or syncs) of the log take as long as `held`; `takes_s` the first of them."""

    def __init__(self, operation: Operation = Operation.WRITE) -> None:
        super().__init__(None, mapped=False)
        self._gate = threading.Event()
        self._gate.set()
        self.under_way = threading.Event()
        self._operation = operation
        self.takes_s = 0.0

    def begin(self, doing: Doing) -> Callable[[], None] | None:  # not under the model's lock: only the log is slow
        if doing.operation is self._operation and "commitlog" in doing.path:
            takes, self.takes_s = self.takes_s, 0.0
            self.under_way.set()
            time.sleep(takes)
            assert self._gate.wait(120)
        return super().begin(doing)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()


async def make_slow(disk: SlowDisk, client: Client, found: Daemon) -> None:
    """One put that takes long: from then on puts are moved to a worker thread."""
    disk.takes_s = (flow.SLOW_MS + 50) / 1000
    assert (await client.put("T", b"slow")).code == 0
    assert found.broker.flow.in_worker_thread


def sound(root: Path) -> None:
    assert_sound(StoreConfig(store_path_root_dir=root).with_changes(**SMALL))


def test_what_waits_for_too_long_is_refused_and_pulls_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SlowDisk()
        async with daemon(tmp_path / "s", disk=disk) as found:
            one, two = await Client.to(found.listening.broker), await Client.to(found.listening.broker)
            await make_slow(disk, one, found)
            await one.until_there("T", 1)
            with disk.held():
                disk.under_way.clear()
                sent = [one.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"0")]
                while not disk.under_way.is_set():
                    await asyncio.sleep(0.001)
                usual, found.broker.flow._wait_s = found.broker.flow._wait_s, 0.2  # only what waits behind it
                sent += [one.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"%d" % i) for i in range(1, 5)]
                sent.append(one.send(RequestCode.SEND_BATCH_MESSAGE, send_fields("T", m="true"), BATCH))
                answers = [await one.answer(opaque) for opaque in sent[1:]]
                assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_BUSY}
                for answer in answers:
                    remark = answer.remark or ""
                    assert remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period")
                    assert remark.rpartition(": ")[2].isdecimal()
                assert (await two.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))).code == 0
            found.broker.flow._wait_s = usual
            assert (await one.answer(sent[0])).code == 0  # it was under way
            assert (await one.put("T", b"and on")).fields["queueOffset"] == "2"
            assert found.broker.flow.refused == {"TIMEOUT_CLEAN_QUEUE": 5}

    asyncio.run(run())
    sound(tmp_path / "s")


def test_a_put_that_hangs_has_all_others_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SMALL, "os_page_cache_busy_time_out_mills", 50)

    async def run() -> None:
        disk = SlowDisk()
        async with daemon(tmp_path / "s", disk=disk, send_wait_ms=60_000) as found:
            client = await Client.to(found.listening.broker)
            await make_slow(disk, client, found)
            with disk.held():
                first = client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"hangs")
                waits = client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"waits")
                refused = (await client.answer(waits)).remark or ""
                assert refused.startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in")
                answer = await client.put("T", b"late")
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert answer.remark == "[REJECTREQUEST]system busy, start flow control for a while"
                back = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "G", "offset": "0"})
                assert (back.code, back.remark) == (answer.code, answer.remark)
            assert (await client.answer(first)).code == 0
            assert (await client.put("T", b"and on")).code == 0

    asyncio.run(run())
    sound(tmp_path / "s")


@pytest.mark.parametrize("sync", [False, True])
def test_more_than_may_wait(tmp_path: Path, sync: bool) -> None:
    async def run() -> None:
        disk = SlowDisk(Operation.SYNC if sync else Operation.WRITE)
        async with daemon(tmp_path / "s", disk=disk, sync=sync, send_queue=3, fast_failure=False) as found:
            client = await Client.to(found.listening.broker)
            await client.put("T", b"first")
            if not sync:
                await make_slow(disk, client, found)
            with disk.held():
                sent = [client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x") for _ in range(6)]
                for opaque in sent[4:]:
                    answer = await client.answer(opaque)
                    assert answer.code == ResponseCode.SYSTEM_BUSY
                    assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
            assert [(await client.answer(opaque)).code for opaque in sent[:3]] == [0, 0, 0]
            assert found.broker.flow.waiting == 0

    asyncio.run(run())
    sound(tmp_path / "s")


@contextmanager
def traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Memory is traced, and not for the tests behind this one."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


def test_sends_that_wait_for_a_flush_hold_no_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many, size = 50, 64 << 10  # all in one segment: while syncs are held, no other one can be made
    monkeypatch.setattr(flow, "SLOW_MS", 60_000)  # nothing is refused, however busy the machine is

    async def run() -> None:
        disk = SlowDisk(Operation.SYNC)
        async with daemon(tmp_path / "s", disk=disk, sync=True, send_wait_ms=60_000) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"first")).code == 0
            early = [client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), bytes(size)) for _ in range(8)]
            assert {(await client.answer(one)).code for one in early} == {0}  # what is loaded when it is used first
            with disk.held(), traced() as memory:
                before, _ = memory()
                sent = [client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), bytes(size)) for _ in range(many)]
                async with asyncio.timeout(60):
                    while found.broker.flow.waiting < many:
                        await asyncio.sleep(0.01)
                # Without maps dispatch reads the log by windows of up to 2 MiB. It has them as long as it runs.
                with suppress(TimeoutError):
                    async with asyncio.timeout(30):
                        while memory()[0] - before >= many * size / 4:
                            await asyncio.sleep(0.01)
                held = memory()[0] - before
                assert found.broker.flow.waiting == many
                assert held < many * size / 4
            assert {(await client.answer(one, 60)).code for one in sent} == {0}

    asyncio.run(run())
    sound(tmp_path / "s")


def test_it_ends_when_the_disk_is_quick_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "CALM_S", 0.1)

    async def run() -> None:
        disk = SlowDisk()
        async with daemon(tmp_path / "s", disk=disk) as found:
            client = await Client.to(found.listening.broker)
            await make_slow(disk, client, found)
            monkeypatch.setattr(flow, "SLOW_MS", 60_000)  # from now on no put is slow, however busy the machine is
            found.broker.flow.slow_ns = flow.SLOW_MS * 1_000_000
            count = 1
            while found.broker.flow.in_worker_thread:
                answer = await client.put("T", b"x")
                assert (answer.code, answer.fields["queueOffset"]) == (0, str(count))  # in order, none lost
                count += 1
            assert (await client.put("T", b"by the loop")).fields["queueOffset"] == str(count)
            assert found.broker.flow.slow_puts == 1

    asyncio.run(run())
    sound(tmp_path / "s")


def test_what_waits_is_refused_when_the_broker_stops(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SlowDisk()
        async with daemon(tmp_path / "s", disk=disk, send_wait_ms=60_000) as found:
            client = await Client.to(found.listening.broker)
            await make_slow(disk, client, found)
            hold = disk.held()
            hold.__enter__()
            sent = [client.send(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x") for _ in range(3)]
            while found.broker.flow.queued < 2:
                await asyncio.sleep(0.01)
            flow = found.broker.flow

            async def let_go() -> None:
                while not flow._closed:
                    await asyncio.sleep(0.001)
                hold.__exit__(None, None, None)

            letting_go = asyncio.create_task(let_go())
        await letting_go
        assert (await client.answer(sent[2])).code == ResponseCode.SYSTEM_BUSY

    asyncio.run(run())
    sound(tmp_path / "s")


def test_puts_that_wait_for_the_same_are_told_together(tmp_path: Path) -> None:
    """Joined, mixed, settled in between; one whose caller fails holds nobody up."""

    async def run() -> None:
        async with daemon(tmp_path / "s", sync=True) as found:
            flow = found.broker.flow
            faults: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["exception"]))
            one, two = FlushFuture(), FlushFuture()
            told: list[tuple[int, PutMessageStatus]] = []

            def wait(number: int, *futures: FlushFuture) -> None:
                def done(result: PutResult) -> None:
                    told.append((number, result.status))
                    if number == 1:
                        raise ValueError("mine")

                flow.wait_for(Pending(APPENDED, futures), done)

            for number, future in enumerate((one, one, two, one, two)):
                wait(number, future)
            wait(5, one, two)
            assert flow.waiting == 6
            one.settle(PutMessageStatus.PUT_OK)
            wait(6, one)  # settled, and nobody told yet
            await asyncio.sleep(0.01)
            wait(7, one)
            two.settle(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            await asyncio.sleep(0.01)
            ok, late = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            assert sorted(told) == [(number, late if number in (2, 4, 5) else ok) for number in range(8)]
            assert (flow.waiting, [str(fault) for fault in faults]) == (0, ["mine"])

    asyncio.run(run())
