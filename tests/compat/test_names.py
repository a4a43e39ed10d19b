"""Name services both ways: Apache's broker registers at ours, and our broker at Apache's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.format import fastjson
from engine.wire.codes import RequestCode
from tests.compat import real_broker, toolchain
from tests.compat.served import mqadmin, run_scenario, serve
from tests.engine.broker.client import Client
from tests.engine.opening import assert_sound

pytestmark = pytest.mark.interop

MANY = 2000


@pytest.fixture(autouse=True, scope="module")
def _tools() -> None:
    try:
        toolchain.clients()
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))


def asked(names: str, code: int, **ext: str) -> Any:
    """What a name server says, as JSON; None: nothing."""

    async def run() -> Any:
        client = await Client.to(names)
        answer = await client.ask(code, ext)
        client.writer.close()
        return fastjson.loads(bytes(answer.body).decode()) if answer.code == 0 and len(answer.body) else None

    return asyncio.run(run())


def brokers(names: str) -> dict[str, str]:
    """Addresses of masters by their names."""
    found = asked(names, RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]
    return {name: one["brokerAddrs"]["0"] for name, one in found.items()}


def slave_of(names: str, broker: str) -> str | None:
    """The address of a broker's first slave."""
    found = asked(names, RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]
    address: str | None = found[broker]["brokerAddrs"].get("1")
    return address


def perms(names: str, topic: str) -> dict[str, int]:
    """Who serves a topic, and how."""
    found = asked(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic) or {"queueDatas": []}
    return {one["brokerName"]: one["perm"] for one in found["queueDatas"]}


def until(true: Callable[[], bool]) -> None:
    """Registrations follow a change; a name server that is slow to answer, or is being started, is asked again."""
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError, EOFError):
            if true():
                return
        assert time.monotonic() < end
        time.sleep(0.05)


def test_apaches_broker_registers_with_us(tmp_path: Path) -> None:
    """Clients find topics of both brokers through our name service, and use both; it goes when it stops."""
    with serve(tmp_path / "ours", "brokerName=ours\n") as served:
        names = served.names
        with real_broker.broker(tmp_path / "real", names, "brokerName=theirs\n") as real:
            until(lambda: brokers(names) == {"ours": served.broker, "theirs": real.broker})
            mqadmin(tmp_path, names, "updateTopic", "-c", "DefaultCluster", "-t", "Cluster", "-r", "4", "-w", "4")
            until(lambda: perms(names, "Cluster") == {"ours": 6, "theirs": 6})
            found = run_scenario(names, "cluster", MANY)
            assert (found["seen"], found["doubled"]) == (found["sent"], 0)
            status = mqadmin(tmp_path, names, "topicStatus", "-t", "Cluster")
            for name in ("ours", "theirs"):
                assert sum(int(line.split()[3]) for line in status.splitlines() if line.startswith(name + " ")) > 0
            mqadmin(tmp_path, names, "updateTopic", "-b", real.broker, "-t", "Only", "-r", "3", "-w", "3", "-o", "true")
            until(lambda: perms(names, "Only") == {"theirs": 6})
            assert "theirs" in mqadmin(tmp_path, names, "wipeWritePerm", "-b", "theirs", "-n", names)
            assert perms(names, "SELF_TEST_TOPIC")["ours"] == 6
        until(lambda: brokers(names) == {"ours": served.broker})
        until(lambda: perms(names, "Only") == {})
    assert '"theirs:3"' in (tmp_path / "ours" / "config" / "kvConfig.json").read_text()
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "ours"))


ACL = "accounts:\n  - {accessKey: operator, secretKey: 87654321, admin: true}\n"


@pytest.mark.parametrize("allow", ["127.0.0.1", "10.9.9.9"])
def test_a_guarded_name_service_takes_brokers_from_allowed_addresses(tmp_path: Path, allow: str) -> None:
    """Apache's broker and a slave of ours, neither of which signs; refused, their logs name the setting."""
    (tmp_path / "plain_acl.yml").write_text(ACL)
    guarded = ("--acl", str(tmp_path / "plain_acl.yml"))
    is_allowed = allow == "127.0.0.1"
    with serve(tmp_path / "ours", f"brokerName=ours\nnamesAllow={allow}\n", *guarded) as served:
        until(lambda: brokers(served.names) == {"ours": served.broker})
        with real_broker.broker(tmp_path / "real", served.names, "brokerName=theirs\n") as real:
            wanted = {"ours": served.broker, "theirs": real.broker} if is_allowed else {"ours": served.broker}
            logs = [tmp_path / "real-home" / "broker.log"]
            until(lambda: is_allowed or any("namesAllow" in log.read_text("utf-8", "replace") for log in logs))
            until(lambda: brokers(served.names) == wanted)
            slave = "brokerName=ours\nbrokerRole=SLAVE\nbrokerId=1\n"
            with serve(tmp_path / "slave", slave, "--namesrv", served.names, "--master", served.broker) as second:
                log = tmp_path / "slave.log"
                until(lambda: is_allowed or "namesAllow" in log.read_text())
                until(lambda: slave_of(served.names, "ours") == (second.broker if is_allowed else None))
            assert ("namesAllow" in log.read_text()) is not is_allowed
        until(lambda: brokers(served.names) == {"ours": served.broker})


def test_apaches_broker_registers_compressed_and_is_killed(tmp_path: Path) -> None:
    settings = "brokerName=theirs\ncompressedRegister=true\nforceRegister=false\nregisterNameServerPeriod=10000\n"
    with serve(tmp_path / "ours", "brokerName=ours\n") as served:
        names = served.names
        with real_broker.broker(tmp_path / "real", names, settings) as real:
            until(lambda: brokers(names) == {"ours": served.broker, "theirs": real.broker})
            until(lambda: perms(names, "SELF_TEST_TOPIC") == {"ours": 6, "theirs": 6})
            asked(names, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="theirs")
            until(lambda: perms(names, "SELF_TEST_TOPIC") == {"ours": 6, "theirs": 4})
            real.kill()
            until(lambda: brokers(names) == {"ours": served.broker})


@pytest.mark.parametrize("compressed", ["false", "true"])
def test_we_register_with_apaches_name_server(tmp_path: Path, compressed: str) -> None:
    conf = f"brokerName=ours\ncompressedRegister={compressed}\n"
    with real_broker.name_server(tmp_path / "names") as names:
        with serve(tmp_path / "store", conf, "--namesrv", names) as served:
            until(lambda: brokers(names) == {"ours": served.broker})
            if compressed == "false":
                found = run_scenario(names, "cluster", MANY)
                assert (found["seen"], found["doubled"]) == (found["sent"], 0)
            said = mqadmin(tmp_path, names, "updateTopic", "-c", "DefaultCluster", "-t", "Made", "-r", "3", "-w", "3")
            assert "create topic to" in said
            until(lambda: perms(names, "Made") == {"ours": 6})
        until(lambda: brokers(names) == {})
    assert_sound(StoreConfig(store_path_root_dir=tmp_path / "store"))


def test_a_name_server_that_comes_back(tmp_path: Path) -> None:
    """It has forgotten us, and knows us again."""
    port = real_broker.free_port(1)
    with serve(tmp_path / "store", "brokerName=ours\n", "--namesrv", f"127.0.0.1:{port}") as served:
        for _ in range(2):
            with real_broker.name_server(tmp_path / "names", port=port) as names:
                until(lambda: brokers(names) == {"ours": served.broker})
