"""What the daemon tells over HTTP, to who watches and to commands: on a daemon that real requests have gone through."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.broker.serve import Daemon
from engine.broker.watch import health, metrics
from engine.broker.watch.metrics import METRICS
from engine.config import StoreConfig
from engine.errors import StorageError
from engine.files import local_socket
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Operation
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.services import clean
from engine.wire.codes import RequestCode
from tests.engine.broker.client import SMALL, Client, daemon, pull_fields, send_fields
from tests.engine.opening import assert_sound

Samples = dict[tuple[str, tuple[str, ...]], float]


def config(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(**SMALL)


def served(root: Path, work: Callable[[Daemon, Client], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with daemon(root, metrics_port=0, **settings) as found:
            await work(found, await Client.to(found.listening.broker))

    asyncio.run(run())
    assert not (root / "rstore.sock").exists()
    assert_sound(config(root))


async def get(found: Daemon, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{found.listening.metrics}{path}") as answer:
        return answer.status, await (answer.json() if answer.content_type == "application/json" else answer.text())


async def control(root: Path, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connector = aiohttp.UnixConnector(str(root / "rstore.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, f"http://daemon{path}", json=body) as answer,
    ):
        return answer.status, await answer.json()


async def scrape(found: Daemon) -> Samples:
    status, text = await get(found, "/metrics")
    assert status == 200
    return {
        (one.name, tuple(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_metrics_say_what_has_happened(tmp_path: Path) -> None:
    async def work(found: Daemon, client: Client) -> None:
        began = time.monotonic()
        for i in range(5):
            await client.put("T", b"%d" % i)
        await client.put("Late", b"x", 0, "DELAY\x0118")  # two hours: it waits still when all is counted
        await client.until_there("T", 5)
        await client.until_there("SCHEDULE_TOPIC_XXXX", 0)
        assert (await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0))).code == 0
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3",
        })  # fmt: skip
        client.send(RequestCode.PULL_MESSAGE, pull_fields("T", 5, wait_ms=60_000))
        await client.put("Tx", b"half", 0, "TRAN_MSG\x01true\x02PGROUP\x01PG")
        assert (await client.ask(9999)).code == 3
        await client.until_there("RMQ_SYS_TRANS_HALF_TOPIC", 1)
        assert await asyncio.to_thread(found.broker.store.wait_dispatched)  # its place, too, is told of
        told = {"maxOffset": found.broker.store.log.max_offset - 10, "lagMs": 5000}
        assert await control(tmp_path / "s", "POST", "/backup", told) == (200, {})
        status, said = await control(tmp_path / "s", "POST", "/backup", {"maxOffset": 1, "lagMs": -1})
        assert (status, said["error"]["code"]) == (500, "usage")
        seen = await scrape(found)
        assert 5 <= seen["rstore_backup_lag_seconds", ()] < 60
        assert seen["rstore_backup_lag_bytes", ()] == 10
        assert seen["rstore_put_messages_total", ("T",)] == 5
        assert seen["rstore_put_bytes_total", ("T",)] > 5 * 90
        assert seen["rstore_get_messages_total", ("T",)] == 5
        assert seen["rstore_gets_missed_total", ()] >= 1
        assert seen["rstore_consumer_lag", ("G", "T")] == 2
        assert seen["rstore_answers_total", ("SEND_MESSAGE_V2", "SUCCESS")] == 7
        assert seen["rstore_answers_total", ("OTHER", "REQUEST_CODE_NOT_SUPPORTED")] == 1
        assert seen["rstore_connections", ("broker",)] == 1
        assert seen["rstore_held_pulls", ()] == 1
        assert seen["rstore_schedule_waiting", ("18",)] == 1
        assert seen["rstore_transactions_waiting", ()] == 1
        assert seen["rstore_put_seconds_count", ()] == 7
        assert seen["rstore_put_seconds_bucket", ("+Inf",)] == 7
        buckets = [value for (name, _), value in seen.items() if name == "rstore_put_seconds_bucket"]
        assert buckets == sorted(buckets)
        assert 0 < seen["rstore_put_seconds_sum", ()] < time.monotonic() - began
        log = found.broker.store.log
        assert seen["rstore_log_max_offset", ()] == seen["rstore_log_dispatched_offset", ()] == log.max_offset
        assert 0 < seen["rstore_disk_used_ratio", ("CL",)] <= 1
        assert seen["rstore_writeable", ()] == 1
        assert seen["process_open_fds", ()] > 5
        assert seen["process_resident_memory_bytes", ()] > 10 << 20
        assert seen["rstore_process_maps", ()] > 10
        families = {name for name, _ in seen}
        for one in METRICS:
            suffix = {"counter": "_total", "histogram": "_count", "gauge": ""}[one.kind]
            assert one.labels or one.name + suffix in families, one.name

    served(tmp_path / "s", work)


def test_topics_beyond_the_limit_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LABELS", 2)

    async def work(found: Daemon, client: Client) -> None:
        for topic, count in (("A", 1), ("B", 5), ("C", 3), ("D", 2)):
            for _ in range(count):
                await client.put(topic, b"x")
        seen = await scrape(found)
        counts = {labels[0]: value for (name, labels), value in seen.items() if name == "rstore_put_messages_total"}
        assert counts == {"B": 5, "C": 3, "(others)": 3}

    served(tmp_path / "s", work)


def test_what_is_refused_is_counted(tmp_path: Path) -> None:
    async def work(found: Daemon, client: Client) -> None:
        await client.put("T", b"x")
        await client.until_there("T", 1)
        held = client.send(RequestCode.PULL_MESSAGE, pull_fields("T", 1, wait_ms=60_000))
        second = await client.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 1, wait_ms=60_000))
        assert second.code == 19  # at once: only one may wait
        garbage = await Client.to(found.listening.broker)
        garbage.writer.write(bytes(64))
        assert await garbage.closed()
        other = await Client.to(found.listening.broker)
        await other.put("T", b"y")
        assert (await client.answer(held)).code == 0
        assert await (await Client.to(found.listening.broker)).closed()
        seen = await scrape(found)
        assert seen["rstore_pulls_not_held_total", ()] == 1
        assert seen["rstore_connections_cut_total", ("frame",)] == 1
        assert seen["rstore_connections_refused_total", ("broker",)] == 1

    served(tmp_path / "s", work, held_pulls=1, connections=2)


def test_well_and_ready(tmp_path: Path) -> None:
    async def work(found: Daemon, client: Client) -> None:
        del client
        assert await get(found, "/health") == (200, {"healthy": True, "reasons": []})
        assert await get(found, "/ready") == (200, {"ready": True})
        status, listed = await get(found, "/")  # the address that serve prints
        assert status == 200
        assert [line.split()[0] for line in listed.splitlines()] == ["/", "/metrics", "/health", "/ready"]
        for path in ("/metrics", "/health", "/ready"):
            assert (await get(found, path))[0] == 200
        assert (await get(found, "/status"))[0] == 404  # nothing but numbers on the port

    served(tmp_path / "s", work)


@pytest.mark.leaves("not-closed")
def test_a_full_disk_and_a_failed_flush_are_not_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Full(FaultyDisk):
        percent = 50

        def usage(self, path: str) -> Usage:
            return Usage(100 << 30, self.percent << 30, (100 - self.percent) << 30)

    async def run() -> None:
        disk = Full(None, mapped=False)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk) as found:
            client, store = await Client.to(found.listening.broker), found.broker.store
            assert store.clean.running  # retention and disk guard are the daemon's services
            disk.percent = 100
            store.clean.look()
            status, said = await get(found, "/health")
            assert (status, [one["code"] for one in said["reasons"]]) == (503, ["disk-full"])
            refused = await client.put("T", b"x")
            assert (refused.code, (refused.remark or "")[:25]) == (14, "service not available now")
            disk.percent = 50
            store.clean.look()
            assert (await get(found, "/health"))[0] == 200
            assert (await client.put("T", b"x")).code == 0
            disk.fail_when(lambda doing: doing.operation is Operation.SYNC and "commitlog" in doing.path, errno.EIO)
            await client.put("T", b"not on disk yet")  # what came before may have been flushed meanwhile
            with pytest.raises(StorageError):
                store.flush()
            status, said = await get(found, "/health")
            assert (status, [one["code"] for one in said["reasons"]]) == (503, ["not-writeable"])
            found.health.tick()
            assert "unhealthy" in caplog.messages
            disk.heal()

    with pytest.raises(StorageError):
        asyncio.run(run())


def test_no_room_for_the_next_file_of_the_log_is_not_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is used for less than the guard's 90 %, and has no room for another segment."""

    class Small(FaultyDisk):
        usable = 3 << 20

        def usage(self, path: str) -> Usage:
            return Usage(16 << 20, 12 << 20, self.usable)

    async def run() -> None:
        disk = Small(None, mapped=False)
        async with daemon(tmp_path / "s", metrics_port=0, disk=disk) as found:
            client = await Client.to(found.listening.broker)
            assert (await client.put("T", b"x")).code == 0
            disk.fail_when(lambda doing: doing.operation is Operation.ALLOCATE and "commitlog" in doing.path)
            codes: list[int] = []
            while 14 not in codes and len(codes) < 20:
                codes.append((await client.put("T", bytes(1 << 20))).code)
            assert codes[-1] == 14
            status, said = await get(found, "/health")
            assert (status, [one["code"] for one in said["reasons"]]) == (503, ["disk-full"])
            assert "no space left on device" in said["reasons"][0]["message"]
            found.health.tick()
            assert "unhealthy" in caplog.messages
            disk.heal()
            disk.usable = 5 << 20  # seen at once, not by the next put: who is unhealthy may be sent nothing
            assert (await get(found, "/health"))[0] == 200
            assert (await client.put("T", b"x")).code == 0

    asyncio.run(run())
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**SMALL))


def test_retention_is_a_service_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(clean, "FIRST_ROUND_MS", 0)
    monkeypatch.setitem(SMALL, "clean_resource_interval", 20)
    monkeypatch.setitem(SMALL, "delete_when", ";".join(map(str, range(24))))
    monkeypatch.setitem(SMALL, "file_reserved_time", 0)

    async def work(found: Daemon, client: Client) -> None:
        for _ in range(9):
            assert (await client.ask(310, send_fields("T"), bytes(1 << 20))).code == 0
        while (await scrape(found))["rstore_files_expired_total", ("log",)] < 2:
            await asyncio.sleep(0.02)
        assert found.broker.store.log.min_offset == 8 << 20
        found.health.tick()
        assert "expired files deleted" in caplog.messages

    served(tmp_path / "s", work)


def test_what_stands_still_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with daemon(tmp_path / "s", metrics_port=0) as found:
            client, store = await Client.to(found.listening.broker), found.broker.store
            now = [time.monotonic()]
            monkeypatch.setattr(health, "monotonic", lambda: now[0])
            monkeypatch.setattr(type(store.dispatch), "wake", lambda self: None)  # nobody is told
            await client.put("T", b"x")
            for _ in range(3):
                found.health.tick()
                now[0] += health.STUCK_S
            assert [one.code for one in found.health.reasons] == ["dispatch-stuck", "flush-stuck"]
            monkeypatch.undo()
            assert store.flush_all(60_000)
            found.health.tick()
            assert found.health.reasons == ()

    asyncio.run(run())


def test_status_and_flush_at_the_socket(tmp_path: Path) -> None:
    async def work(found: Daemon, client: Client) -> None:
        root = tmp_path / "s"
        assert stat.S_IMODE((root / "rstore.sock").stat().st_mode) == 0o600
        await client.put("T", b"x")
        await client.until_there("T", 1)
        status, said = await control(root, "GET", "/status")
        assert status == 200
        assert said["pid"] == os.getpid()
        assert said["address"] == found.listening.broker
        assert said["topics"]["T"]["putMessages"] == 1
        assert said["connections"] == {"broker": 1, "names": 0}
        assert said["health"] == {"healthy": True, "reasons": []}
        end = found.broker.store.log.max_offset
        assert await control(root, "POST", "/flush") == (200, {"flushed": end, "dispatched": end, "complete": True})
        assert found.broker.store.log.flushed_where == end
        assert (await control(root, "GET", "/in-use"))[1] == {"inUse": 0}
        status, said = await control(root, "POST", "/expire", {"before": "x"})
        assert (status, said["error"]["code"], said["error"]["exit"]) == (500, "usage", 2)
        found_by = {one.code for one in doctor(Disk(), config(root)).findings}
        assert not {code for code in found_by if code.startswith("file-")}

    served(tmp_path / "s", work)


def test_a_stale_socket_is_replaced_and_a_long_path_is_possible(tmp_path: Path) -> None:
    root = tmp_path / ("long" * 30) / "s"
    root.mkdir(parents=True)
    path = str(root / "rstore.sock")
    local_socket.listen_at(path).close()  # as a killed daemon leaves it
    assert local_socket.connect_to(path, 1) is None

    async def work(found: Daemon, client: Client) -> None:
        del found, client
        asked = local_socket.connect_to(path, 5)
        assert asked is not None
        asked.close()

    served(root, work)
    assert local_socket.connect_to(path, 1) is None
    local_socket.listen_at(path).close()
    assert_sound(config(root))  # whatever a killed daemon leaves
    assert check(Disk(), config(root)).ok


def test_a_metrics_port_that_is_taken(tmp_path: Path) -> None:
    async def run() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            pytest.raises(StorageError, match=r"address already in use .*--metrics-port"),
        ):
            async with daemon(tmp_path / "s", metrics_port=taken.getsockname()[1]):
                pass
        assert not (tmp_path / "s" / "rstore.sock").exists()

    asyncio.run(run())


def test_a_planned_round_of_retention(tmp_path: Path) -> None:
    async def work(found: Daemon, client: Client) -> None:
        root = tmp_path / "s"
        for _ in range(6):
            assert (await client.ask(310, send_fields("T"), bytes(1 << 20))).code == 0
        await client.until_there("T", 6)
        files = sorted((root / "commitlog").iterdir())
        in_use = (await control(root, "GET", "/in-use"))[1]["inUse"]
        assert in_use == 4 << 20
        status, said = await control(root, "POST", "/expire", {"before": 1 << 40})  # never what is needed
        assert (status, said) == (200, {"logFilesRemoved": 1, "minOffset": 4 << 20})
        assert not files[0].exists()
        assert (await client.ask(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})).fields["offset"] != "0"

    served(tmp_path / "s", work)
