"""Our client against Apache's brokers of 4.9.8, 5.3.3 and 5.5.0, and our own: every feature, one run, one table.

The brokers run side by side, and so does a feature: what it waits for it waits for once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.client.client import ClientConfig, ClusterClient
from tests.compat import real_broker, served, toolchain
from tests.compat.client_features import FEATURES, Feature, Peer, until_registered

pytestmark = pytest.mark.interop

PEERS = ("4.9.8", "5.3.3", "5.5.0", "rstore")
SETTINGS = f"{served.SETTINGS}waitTimeMillsInSendQueue=60000\n"
"""They refuse no send because the machine is busy."""
_AT_ONCE = 2
"""Brokers that are started at a time: of Java's each takes a core for seconds."""


@dataclass(slots=True)
class Peers:
    """Those that run, and why others do not; what came of each feature: None, or why it failed."""

    running: dict[str, Peer] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    _outcomes: dict[str, dict[str, BaseException | None]] = field(default_factory=dict)

    def outcome(self, words: str, peer: str) -> BaseException | None:
        """Of a feature, which is run against all peers when one is asked for."""
        if words not in self._outcomes:
            ended = asyncio.run(_run(FEATURES[words], list(self.running.values())))
            self._outcomes[words] = dict(zip(self.running, ended, strict=True))
        return self._outcomes[words][peer]


async def _run(feature: Feature, peers: list[Peer]) -> list[BaseException | None]:
    async def one(peer: Peer) -> None:
        async with ClusterClient(ClientConfig((peer.names,))) as client:
            await feature(client, peer)

    return await asyncio.gather(*map(one, peers), return_exceptions=True)


def _start(stack: ExitStack, name: str, directory: Path) -> Peer:
    root = directory / "store"
    root.mkdir(parents=True)
    if name == "rstore":
        return Peer(name, stack.enter_context(served.serve(root, SETTINGS)).names, root, directory, toolchain.clients())
    is_old = name.startswith("4.")
    apache = toolchain.apache_broker() if is_old else toolchain.apache_broker5(name)
    names = stack.enter_context(real_broker.name_server(directory / "names", apache=apache))
    broker = stack.enter_context(real_broker.broker(root, names, SETTINGS, apache=apache))
    if not is_old:
        stack.callback(broker.kill)  # its end takes 17 s
    until_registered(ClusterClient(ClientConfig((names,))))
    return Peer(name, names, root, directory, toolchain.clients() if is_old else toolchain.clients5(name))


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    base = tmp_path_factory.mktemp("peers")
    made = Peers()
    stacks = {name: ExitStack() for name in PEERS}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for name, starting in [(name, pool.submit(_start, stacks[name], name, base / name)) for name in PEERS]:
                try:
                    made.running[name] = starting.result()
                except toolchain.Missing as missing:
                    made.missing[name] = str(missing)
            yield made
        finally:
            with ThreadPoolExecutor(len(PEERS)) as enders:  # they wait most of the time
                for ending in [enders.submit(stack.close) for stack in stacks.values()]:
                    ending.result()


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("feature", FEATURES)
def test_feature(peers: Peers, feature: str, peer: str, record_property: pytest.RecordProperty) -> None:
    if peer in peers.missing:
        pytest.skip(peers.missing[peer])
    record_property("feature", [feature, peer])
    outcome = peers.outcome(feature, peer)
    if outcome is not None:
        raise outcome
