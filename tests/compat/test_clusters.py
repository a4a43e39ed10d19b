"""The clusters of fixtures/deploy, started for real: Apache's broker-a with our slave, our broker-b with Apache's."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.client.connection import RemotingClient
from engine.wire.codes import RequestCode
from tests.compat import real_broker, served, toolchain
from tests.compat.replicas import Produced, consume, produce, until
from tests.support.checking import check_clean

pytestmark = pytest.mark.interop

DEPLOY = Path(__file__).parents[2] / "fixtures" / "deploy"
CLUSTERS = ("2m-noslave", "2m-2s-async", "2m-2s-sync")
COUNT = 300
SMALL = (
    "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\nmaxHashSlotNum=500\nmaxIndexNum=2000\n"
    "slaveTimeout=60000\nsyncFlushTimeout=60000\n"
)
"""Small files, and slaves that may be slow on a busy machine: all other settings are the template's."""


def settings(template: Path, names: str, root: Path, port: int) -> str:
    """The template with the addresses, port and directories of this test."""
    given = {
        "namesrvAddr": names, "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "listenPort": port,
        "storePathRootDir": root, "storePathCommitLog": root / "commitlog",
    }  # fmt: skip
    text = template.read_text(encoding="utf-8")
    for key, value in given.items():
        text, found = re.subn(rf"^{key}=.*$", f"{key}={value}", text, flags=re.MULTILINE)
        assert found == 1, key
    return text + SMALL


def members(names: str) -> dict[str, dict[str, str]]:
    """By broker, the addresses of its master ("0") and slaves that a name server knows."""

    async def ask() -> dict[str, dict[str, str]]:
        async with await RemotingClient.connect(names) as client:
            answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        # fastjson writes the ids of brokers without quotes
        text = re.sub(r"([{,])(\d+):", r'\1"\2":', bytes(answer.body).decode())
        return {name: one["brokerAddrs"] for name, one in json.loads(text).get("brokerAddrTable", {}).items()}

    return asyncio.run(ask())


def synced(broker: str, topic: str) -> Produced:
    """What a sync master takes once its slave is there."""
    until(lambda: produce(broker, f"{topic}Probe", 1).codes == {0}, 60, "no slave came")
    return produce(broker, topic, COUNT)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_of_both(cluster: str, tmp_path: Path) -> None:
    try:
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    templates = {path.stem.removeprefix("broker-"): path for path in sorted((DEPLOY / cluster).iterdir())}
    ports = {name: real_broker.free_port(4) for name in templates}
    ours = real_broker.free_port(1)
    with ExitStack() as stack:
        apaches = stack.enter_context(real_broker.name_server(tmp_path / "names"))
        names = f"{apaches};127.0.0.1:{ours}"
        running: dict[str, real_broker.RealBroker | served.Served] = {}
        for name in sorted(templates, key=lambda one: (one != "b", one)):  # b has the second name server
            root = tmp_path / name
            said = settings(templates[name], names, root, ports[name])
            if name in ("b", "a-s"):
                options = ("--port", str(ports[name]), *(("--names-port", str(ours)) if name == "b" else ()))
                running[name] = stack.enter_context(served.serve(root, said, *options))
            else:
                running[name] = stack.enter_context(real_broker.broker(root, names, said, port=ports[name]))
        wanted = {"broker-a": {"0"}, "broker-b": {"0"}}
        if "a-s" in templates:
            wanted = {"broker-a": {"0", "1"}, "broker-b": {"0", "1"}}
        for server in names.split(";"):
            until(lambda server=server: {k: set(v) for k, v in members(server).items()} == wanted, 60, server)
        for name in ("a", "b"):
            topic = f"Topic{name.upper()}"
            sync = cluster == "2m-2s-sync"
            produced = synced(running[name].broker, topic) if sync else produce(running[name].broker, topic, COUNT)
            assert produced.codes == {0}
            assert len(produced.bodies) == COUNT
            until(lambda p=produced, n=name, t=topic: consume(running[n].broker, t) == p.bodies, 60, name)
            if f"{name}-s" in running:
                slave = running[f"{name}-s"].broker
                until(lambda p=produced, s=slave, t=topic: consume(s, t) == p.bodies, 60, f"{name}-s")
    for name in templates:
        check_clean(tmp_path / name)
