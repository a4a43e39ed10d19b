"""RocketMQ 5.5.0's gRPC proxy in front of ours, in cluster mode, with the Java and the Node.js client of RocketMQ 5."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.wire.codes import RequestCode
from tests.compat import served, toolchain
from tests.compat.real_broker import NO_TLS, OPENED, free_port
from tests.engine.broker.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SETTINGS = """
brokerName=broker-a
transactionCheckInterval=1000
transactionTimeOut=5000
recallMessageEnable=true
"""
KINDS = {"Simple": "NORMAL", "Push": "NORMAL", "Delay": "DELAY", "Recall": "DELAY", "Transaction": "TRANSACTION"}
JAVA = KINDS | {"Fifo": "FIFO", "FifoPush": "FIFO"}
NODE = {f"Node{name}": kind for name, kind in (KINDS | {"FifoPush": "FIFO"}).items()}
START_S, CLIENTS_S = 120, 240
BOTH = {
    "delay": "[d/1] in time",
    "recall": "[stays/1] true",
    "transaction": "[ask/1, commit/1] asked true",
}
BY_JAVA = BOTH | {
    "simple": "[s0/1, s1/1, s2/1, s3/1] [number] Optional[tag]1 again [s3/2]",
    "push": "[fail2/1, fail2/2, p0/1, p1/1, p3/1]",
    "fifo": "[f0/1, then 0, f0/2, f1/1, f2/1]",
    "fifoPush": "[o0/1, fail1/1, fail1/2, o2/1, o3/1]",
    "wrongType": "IllegalArgumentException",
}
BY_NODE = BOTH | {
    "simple": "[s0/1, s1/1, s2/1, s3/1] number tag again [s3/2]",
    "push": "[fail1/1, fail1/2, p0/1, p2/1, p3/1]",
    "fifoPush": "[p0/1, fail1/1, p2/1, p3/1]",  # with Apache's broker, too: it does not try again
}


async def _prepare(address: str) -> None:
    """Topics of each kind, and their groups."""
    client = await Client.to(address)
    for name, kind in (JAVA | NODE).items():
        topic = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": f"+message.type={kind}",
        }  # fmt: skip
        fields = {key: str(value) for key, value in topic.items()}
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
        group = json.dumps({"groupName": f"G-{name}", "consumeMessageOrderly": kind == "FIFO"}).encode()
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code == 0


@contextmanager
def _proxy(home: Path, names: str, class_path: str) -> Iterator[str]:
    """A proxy in cluster mode; where its clients find it."""
    home.mkdir()
    port, out = free_port(1), home / "proxy.out"
    said = {
        "rocketMQClusterName": "DefaultCluster", "proxyMode": "CLUSTER", "namesrvAddr": names, "grpcServerPort": port,
        "remotingListenPort": free_port(1), "localServeAddr": "127.0.0.1", "transactionHeartbeatPeriodSecond": 1,
        "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
    }  # fmt: skip
    (home / "proxy.json").write_text(json.dumps(said))
    options = [*OPENED, NO_TLS, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-Xmx512m", "-cp", class_path]
    main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(home / "proxy.json"), "-n", names, "-pm", "cluster"]
    with out.open("wb") as file:
        process = subprocess.Popen(
            [str(toolchain.java()), *toolchain.BRIEF, *options, *main], cwd=home, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        until = time.monotonic() + START_S
        while "startup successfully" not in (text := out.read_text()):
            assert process.poll() is None, text[-4000:]
            assert time.monotonic() < until, text[-4000:]
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _told(client: subprocess.Popen[str]) -> dict[str, str]:
    """What a client saw, by what it did."""
    out, errors = client.communicate(timeout=CLIENTS_S)
    told = dict(line.split(" ", 1) for line in out.splitlines())
    assert told, errors[-4000:]
    return told


def test_clients_of_rocketmq_5_by_way_of_the_proxy(tmp_path: Path) -> None:
    try:
        proxy, java, node = toolchain.proxy5(), toolchain.grpc_clients(), toolchain.node_clients5()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    home = {**os.environ, "HOME": str(tmp_path)}
    program = [str(toolchain.java()), *toolchain.BRIEF, f"-Duser.home={tmp_path}", "-cp", java, "io.rstore.grpc.Probe"]
    with served.serve(tmp_path / "store", SETTINGS) as mine:
        asyncio.run(_prepare(mine.broker))
        with _proxy(tmp_path / "proxy", mine.names, proxy) as endpoints:
            clients = [
                subprocess.Popen(
                    [*words, endpoints], env=home, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                for words in (program, node)
            ]
            try:
                by_java, by_node = map(_told, clients)
            finally:
                for client in clients:
                    client.kill()
    assert by_java == BY_JAVA
    assert by_node == BY_NODE
