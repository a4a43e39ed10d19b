"""Timer messages: delivered at their time, over restarts and kills; refused, recalled and rolled as RocketMQ 5 does."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from engine.broker.put.timer_schedule import HEAP_MOST, TimerSchedule
from engine.broker.put.timer_timing import ROLL_MS, Timing, plain_event, timing_of
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import names, properties, timer_check
from engine.format.message import StoredMessage
from engine.format.numbers import LONG_MAX
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_truncate
from engine.wire.codes import RequestCode, ResponseCode
from engine.wire.command import RemotingCommand
from tests.engine.broker.client import SMALL, Client, daemon, send_fields
from tests.engine.opening import assert_sound

DAY_MS = 24 * 3600 * 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def props(**pairs: object) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())


def later(milliseconds: int) -> Callable[[], int]:
    return lambda: now_ms() + milliseconds


def messages(broker: Broker, topic: str) -> list[StoredMessage]:
    broker.store.wait_dispatched()
    queue = broker.store.find_queue(topic, 0)
    places = [] if queue is None else [queue.get(offset) for offset in range(queue.min_offset, queue.max_offset)]
    stored = [broker.store.look_message(unit.physical_offset) for unit in places if unit is not None]
    return [one for one in stored if one is not None]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


async def put(client: Client, body: bytes = b"x", topic: str = "T", **pairs: object) -> RemotingCommand:
    return await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, 0, props(**pairs)), body)


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_a_timer_message_comes_at_its_time_and_not_before(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            began = now_ms()
            value = {"TIMER_DELIVER_MS": began + 1234, "TIMER_DELAY_MS": 1234, "TIMER_DELAY_SEC": 1}[name]
            due = began + (1000 if name == "TIMER_DELAY_SEC" else 1234)
            answer = await put(client, b"timed", UNIQ_KEY="K1", KEYS="k", **{name: value})
            assert answer.code == 0
            assert answer.fields["queueId"] == "0"
            (waiting,) = messages(broker, names.TIMER_TOPIC)
            pairs = waiting.properties
            out = int(pairs["TIMER_OUT_MS"])
            assert out % 1000 == 0
            took = now_ms() - began  # a delay counts from when the broker has the message
            assert out - took < due <= out + 1000 + took
            assert (pairs["REAL_TOPIC"], pairs["REAL_QID"], pairs[name]) == ("T", "0", str(value))
            early = messages(broker, "T")
            assert not early or now_ms() >= due
            await until(lambda: broker.store.max_offset("T", 0) == 1 and broker.timers.waiting == 0)
            (given,) = messages(broker, "T")
            assert given.body == b"timed"
            assert given.store_timestamp >= due
            assert given.properties.keys() == {*pairs, "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
            assert broker.timers.lost == 0

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_what_is_no_timer_message_goes_to_its_topic_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            assert "recallHandle" not in (await put(client, TIMER_DELIVER_MS=now_ms() - 1)).fields
            assert (await put(client, TIMER_DELAY_SEC=5, TIMER_OUT_MS=1)).code == 0
            assert (await put(client, TIMER_DELAY_SEC=5, DELAY=1)).code == 0
            await until(lambda: broker.store.max_offset("T", 0) == 3)
            assert messages(broker, names.TIMER_TOPIC) == []
            assert "TIMER_DELAY_SEC" not in messages(broker, "T")[2].properties

    asyncio.run(run())


def test_timer_messages_are_refused_as_by_rocketmq_5(tmp_path: Path) -> None:
    illegal = (
        "timer message illegal, the delay time should not be bigger than the max delay 60000ms; or if set del msg, "
        "the delay time should be bigger than the current time"
    )

    async def run() -> None:
        async with daemon(tmp_path / "s", timer_most_s=60, timer_most_a_slot=1) as served:
            client = await Client.to(served.listening.broker)
            for wrong in (
                {"TIMER_DELAY_SEC": 61},
                {"TIMER_DELAY_MS": "soon"},
                {"TIMER_DELIVER_MS": 1 << 63},
                {"TIMER_DELIVER_MS": 1, "TIMER_DEL_UNIQKEY": "K"},
            ):
                answer = await put(client, **wrong)
                assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, illegal)
            at = now_ms() + 30_000
            for _ in range(2):
                assert (await put(client, TIMER_DELIVER_MS=at)).code == 0
            await until(lambda: served.broker.timers.waiting == 2)
            answer = await put(client, TIMER_DELIVER_MS=at)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert answer.remark.startswith("timer message is under flow control, max num limit is 2 or the current")
        async with daemon(tmp_path / "off", timer_messages=False) as served:
            client = await Client.to(served.listening.broker)
            answer = await put(client, TIMER_DELAY_SEC=1)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "accurate timer message is not enabled, timerWheelEnable is false"

    asyncio.run(run())


def test_each_is_delivered_once_over_a_restart(tmp_path: Path) -> None:
    """Those that came before are not given again, and none that waits is forgotten, whatever its order in the queue."""
    root = tmp_path / "s"

    async def begin() -> None:
        async with daemon(root) as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            far = now_ms() + 3_600_000
            for number in range(40):
                when = {"TIMER_DELAY_MS": 1} if number % 2 else {"TIMER_DELIVER_MS": far}
                assert (await put(client, b"%d" % number, **when)).code == 0
            await until(lambda: broker.store.max_offset("T", 0) == 20 and broker.timers.waiting == 20)

    async def finish() -> None:
        async with daemon(root) as served:
            broker = served.broker
            await until(lambda: broker.timers.waiting == 20)
            broker.now_ms = later(3_700_000)  # type: ignore[method-assign]
            await until(lambda: broker.store.max_offset("T", 0) == 40)
            assert {one.body for one in messages(broker, "T")} == {b"%d" % number for number in range(40)}
        async with daemon(root) as served:
            await until(lambda: served.broker.timers.progress.queue_offset == 40)
            assert served.broker.timers.waiting == 0
            assert served.broker.store.max_offset("T", 0) == 40

    asyncio.run(begin())
    check = timer_check.decode((root / "config" / names.TIMER_CHECK).read_bytes())
    assert check.last_timer_queue_offset == 0  # from there on a broker of RocketMQ 5 reads the queue
    asyncio.run(finish())


def test_none_is_lost_by_a_kill(tmp_path: Path) -> None:
    """The files as a kill leaves them: some were delivered, and nothing was noted of that."""
    root, killed = tmp_path / "s", tmp_path / "killed"

    async def begin() -> None:
        async with daemon(root) as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            far = now_ms() + 3_600_000
            for number in range(10):
                when = {"TIMER_DELAY_MS": 1} if number % 2 else {"TIMER_DELIVER_MS": far}
                assert (await put(client, b"%d" % number, **when)).code == 0
            await until(lambda: broker.store.max_offset("T", 0) == 5)
            broker.store.flush_all()
            shutil.copytree(root, killed, ignore=shutil.ignore_patterns("rstore.sock", "timer*"))

    async def finish() -> None:
        async with daemon(killed) as served:
            broker = served.broker
            broker.now_ms = later(3_700_000)  # type: ignore[method-assign]
            await until(lambda: broker.store.max_offset("T", 0) >= 10 and broker.timers.waiting == 0)
            assert {one.body for one in messages(broker, "T")} == {b"%d" % number for number in range(10)}

    asyncio.run(begin())
    asyncio.run(finish())


@pytest.mark.parametrize("lost", ["nothing", "the progress", "the end of the log"])
def test_a_log_that_was_cut_says_what_waits(tmp_path: Path, lost: str) -> None:
    """The progress is of a longer log, or gone: what the log has no copy of is delivered, and nothing else."""
    root, ends = tmp_path / "s", []

    async def begin() -> None:
        async with daemon(root) as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            for number, delay in enumerate((36_000_000, 50, 60, 3_600_000, 3_600_001)):
                assert (await put(client, b"%d" % number, TIMER_DELAY_MS=delay, UNIQ_KEY=f"K{number}")).code == 0
            await until(lambda: broker.timers.progress.queue_offset == 5 and broker.timers.waiting == 3)
            ends.append(broker.store.log.max_offset)
            broker.now_ms = later(3_610_000)  # type: ignore[method-assign]
            await until(lambda: broker.timers.waiting == 1)

    async def finish(repeated: set[bytes]) -> None:
        async with daemon(root) as served:
            broker = served.broker
            await until(lambda: broker.timers.progress.queue_offset == 5)
            broker.now_ms = later(3_620_000)  # type: ignore[method-assign]
            await until(lambda: broker.timers.waiting == 1)
            broker.store.wait_dispatched()
            bodies = [one.body for one in messages(broker, "T")]
            assert set(bodies) == {b"1", b"2", b"3", b"4"}
            assert {body for body in bodies if bodies.count(body) > 1} <= repeated

    asyncio.run(begin())
    if lost == "the progress":
        for path in (root / "config").glob("timer*"):
            path.unlink()
    elif lost == "the end of the log":
        config = StoreConfig(store_path_root_dir=root).with_changes(**SMALL)
        apply(Disk(), plan_truncate(Disk(), config, to_offset=ends[0]), command="truncate")
    asyncio.run(finish({b"3", b"4"} if lost == "the progress" else set()))


def test_a_store_without_timer_messages_gets_no_files_of_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s") as found:
            client = await Client.to(found.listening.broker)
            assert (await put(client)).code == 0
            await client.until_there("T", 1)

    asyncio.run(run())
    there = {path.name for path in (tmp_path / "s" / "config").iterdir()}
    assert not there & {names.TIMER_PROGRESS, names.TIMER_CHECK}


def test_a_message_that_deletes_another_takes_it_out_after_a_restart_too(tmp_path: Path) -> None:
    root = tmp_path / "s"

    async def begin() -> None:
        async with daemon(root) as served:
            client = await Client.to(served.listening.broker)
            at = now_ms() + 60_000
            for key in ("A", "B", "C"):
                assert (await put(client, key.encode(), UNIQ_KEY=key, TIMER_DELIVER_MS=at)).code == 0
            assert (await put(client, UNIQ_KEY="A", TIMER_DEL_UNIQKEY="T+A", TIMER_DELIVER_MS=at)).code == 0
            assert (await put(client, UNIQ_KEY="B", TIMER_DEL_UNIQKEY="B", TIMER_DELIVER_MS=at)).code == 0
            await until(lambda: served.broker.timers.waiting == 5)

    async def finish() -> None:
        async with daemon(root) as served:
            broker = served.broker
            await until(lambda: broker.timers.waiting == 5)
            broker.now_ms = later(62_000)  # type: ignore[method-assign]
            await until(lambda: broker.timers.waiting == 0)
            assert [one.body for one in messages(broker, "T")] == [b"C"]
            assert broker.timers.recalled == 2

    asyncio.run(begin())
    asyncio.run(finish())


def test_a_timer_message_is_recalled_by_its_handle(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", recall=True) as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            at = now_ms() + 60_000
            handles = {}
            for key in ("A", "B"):
                handles[key] = (await put(client, key.encode(), UNIQ_KEY=key, TIMER_DELIVER_MS=at)).fields[
                    "recallHandle"
                ]
            fields = {"topic": "T", "producerGroup": "PG", "recallHandle": handles["A"]}
            answer = await client.ask(RequestCode.RECALL_MESSAGE, fields)
            assert (answer.code, answer.fields) == (0, {"MSG_REGION": "DefaultRegion", "msgId": "A"})
            for changed, code, remark in (
                ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[None] not exist"),
                ({"recallHandle": "?"}, ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
                ({"topic": "TBW102"}, ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match"),
            ):
                answer = await client.ask(RequestCode.RECALL_MESSAGE, {**fields, **changed})
                assert (answer.code, answer.remark) == (code, remark)
            await until(lambda: broker.timers.waiting == 3)
            broker.now_ms = later(62_000)  # type: ignore[method-assign]
            await until(lambda: broker.timers.waiting == 0)
            assert [one.body for one in messages(broker, "T")] == [b"B"]
            answer = await client.ask(RequestCode.RECALL_MESSAGE, {**fields, "recallHandle": handles["B"]})
            assert (answer.code, answer.remark) == (
                ResponseCode.ILLEGAL_OPERATION,
                "recall failed, timestamp invalid",
            )
        async with daemon(tmp_path / "off") as served:
            client = await Client.to(served.listening.broker)
            answer = await client.ask(RequestCode.RECALL_MESSAGE, fields)
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden",
            )

    asyncio.run(run())


def test_what_is_due_in_days_is_put_into_the_queue_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", timer_most_s=10 * 24 * 3600) as served:
            client, broker = await Client.to(served.listening.broker), served.broker
            at = now_ms() + 5 * DAY_MS
            assert (await put(client, b"far", TIMER_DELIVER_MS=at)).code == 0
            await until(lambda: broker.timers.waiting == 1)
            broker.now_ms = later(2 * DAY_MS + 5000)  # type: ignore[method-assign]
            await until(lambda: broker.store.max_offset(names.TIMER_TOPIC, 0) >= 2)
            del broker.now_ms  # type: ignore[attr-defined]
            await until(lambda: broker.timers.waiting == 1 and broker.timers.schedule.under_way == 0)
            first, *rolled = messages(broker, names.TIMER_TOPIC)
            assert [one.properties["TIMER_ROLL_TIMES"] for one in rolled] == [str(n + 1) for n in range(len(rolled))]
            assert {one.properties["TIMER_OUT_MS"] for one in rolled} == {first.properties["TIMER_OUT_MS"]}
            assert {(one.properties["REAL_TOPIC"], one.body) for one in rolled} == {("T", b"far")}
            assert broker.store.max_offset("T", 0) == 0

    asyncio.run(run())


def test_when_a_message_is_due_needs_no_setting() -> None:
    out = {"TIMER_OUT_MS": "10000"}
    assert timing_of({}, 0) is None
    assert timing_of({"TIMER_OUT_MS": "x"}, 0) is None
    assert timing_of(out, 0) == Timing(10_000, 11_000, False)
    assert timing_of({**out, "TIMER_DELIVER_MS": "10300"}, 0) == Timing(10_000, 10_300, False)
    assert timing_of({**out, "TIMER_DELIVER_MS": "99999"}, 0) == Timing(10_000, 11_000, False)
    assert timing_of({**out, "TIMER_DELAY_MS": "5"}, 0) == Timing(10_000, 10_001, False)
    assert timing_of({**out, "TIMER_DELAY_SEC": "1"}, 9_250) == Timing(10_000, 10_250, False)
    assert timing_of({**out, "TIMER_DEL_UNIQKEY": "K", "TIMER_DELIVER_MS": "10001"}, 0) == Timing(10_000, 11_000, False)
    far = {"TIMER_OUT_MS": str(ROLL_MS)}
    assert timing_of(far, 0) == Timing(ROLL_MS, ROLL_MS // 2, True)
    assert timing_of({"TIMER_OUT_MS": str(2 * ROLL_MS)}, 7) == Timing(2 * ROLL_MS, ROLL_MS + 7, True)


def test_the_schedule_gives_each_message_at_its_time_in_order() -> None:
    rng = random.Random(5)
    schedule = TimerSchedule()
    entries = [(rng.randrange(1, 60_000), offset) for offset in range(3 * HEAP_MOST)]
    for due, offset in entries:
        schedule.add(due, offset)
    assert schedule.first_offset(99) == 0
    seen: list[tuple[int, int]] = []
    for now in range(0, 60_001, 250):
        while True:
            while schedule.open(now):
                pass
            entry = schedule.take(now)
            if entry is None:
                break
            assert entry[0] <= now
            if rng.random() < 0.01:
                schedule.again(entry[1])
                continue
            seen.append(entry)
            schedule.done(entry[1])
        assert schedule.first_due > now
    assert sorted(seen) == sorted(entries)
    assert [due // 1000 for due, _ in seen] == sorted(due // 1000 for due, _ in seen)
    assert schedule.count == 0
    assert schedule.first_offset(99) == 99


@pytest.mark.parametrize("asked", ["", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DEL_UNIQKEY"])
def test_the_times_of_many_messages_are_those_of_each(asked: str) -> None:
    told = 0
    for out in (0, 9_000, 10_000, ROLL_MS - 1, ROLL_MS, "x", -1, "+9000", "", LONG_MAX, "٣"):
        for value in (0, 1, 9_500, 10_000, 11_001, ROLL_MS, "x", -5, "1_0", " 7", "", LONG_MAX):
            for more in ({}, {"KEYS": "a b"}, {"TIMER_DELIVER_MS": "9400"}):
                pairs = {"A": "B", "TIMER_OUT_MS": str(out), **({asked: str(value)} if asked else {}), **more}
                text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
                event = plain_event(text.encode(), 700)
                timing = timing_of(properties.parse(text), 700)
                told += event is not None
                assert event is None or (timing is not None and not timing.rolls and timing.event == event)
    assert told or asked == "TIMER_DEL_UNIQKEY"
    assert plain_event(b"TIMER_DELAY_MS\x01300\x02TIMER_OUT_MS\x011000\x02", 900) == 1200
    assert plain_event(b"XTIMER_OUT_MS\x011000", 900) is None
