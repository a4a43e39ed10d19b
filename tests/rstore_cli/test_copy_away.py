"""`copy` where a broker has no master: what is left out is told, and copied by a later run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.client.admin.session import AdminSession
from engine.client.client import ClientConfig, ClusterClient
from engine.client.messages import OutgoingMessage
from engine.copying.groups import AwayQueue, carry_groups
from engine.copying.progress import load
from engine.files.disk import Disk
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.daemons import DaemonThread, daemons
from tests.rstore_cli.test_copy import PATIENCE_S, commit, number, offsets_of, read, send


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    """A cluster of the brokers a and c, and one of b."""
    with daemons(tmp_path) as made:
        first, second = made.names_of("a"), made.names_of("b")
        ha = made.start("c", names=first).ha
        assert ha is not None
        yield Clusters(made, first, second, ha)


@dataclass(frozen=True)
class Clusters:
    """The two, by name servers of the first and the second. `ha`: where slaves of c find it at first."""

    daemons: DaemonThread
    first: str
    second: str
    ha: str

    def start_a_slave(self) -> None:
        """Of c, named d."""
        words = {"brokerName": "c", "brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": self.ha}
        self.daemons.start("d", words, names=self.first)
        self.until_registered("a", "c", slaves=1)

    def until_registered(self, *masters: str, slaves: int = 0) -> None:
        """Wait until the first cluster is so."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            brokers = self._brokers()
            there = sorted(name for name, broker_id in brokers if broker_id == 0)
            if (there, len(brokers) - len(there)) == (sorted(masters), slaves):
                return
            assert time.monotonic() < deadline, brokers
            time.sleep(0.05)

    def _brokers(self) -> list[tuple[str, int]]:
        async def run() -> list[tuple[str, int]]:
            async with ClusterClient(ClientConfig((self.first,))) as client:
                return [(one.name, one.broker_id) for one in (await AdminSession(client).clusters()).brokers]

        return asyncio.run(run())


def messages(begin: int, end: int) -> list[OutgoingMessage]:
    return [OutgoingMessage("T", b"x", properties={"n": str(i)}) for i in range(begin, end)]


def spread(cli: Cli, names: str) -> None:
    """Topic T with one queue on each broker."""
    words = ("--namesrv", names, "--queues", "1", "--cluster", "DefaultCluster", "--yes")
    assert cli("admin", "topic", "create", "T", *words).code == 0


def test_a_source_broker_without_a_master_is_left_out_and_told(cli: Cli, clusters: Clusters, tmp_path: Path) -> None:
    here, there = clusters.first, clusters.second
    spread(cli, here)
    send(here, messages(0, 10) + messages(10, 60))
    commit(here, "G", "T", {0: 3})
    words = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map")
    whole = cli(*words, "--yes", "--json")
    assert (whole.code, whole.json["away"], whole.json["copied"]) == (0, [], 60), whole.err
    send(here, messages(60, 120))
    clusters.start_a_slave()
    before = len(read(there, "T"))
    clusters.daemons.stop("c")
    for slaves in (1, 0):  # a slave of it is known; only the map knows of it
        clusters.until_registered("a", slaves=slaves)
        planned = cli(*words, "--dry-run")
        text = "! left out: messages and consumer offsets of 1 queue of the source's broker c: no master of it"
        assert (planned.code, text in planned.err) == (1, True), planned
        done = cli(*words, "--yes", "--json")
        assert (done.code, done.json["done"]) == (1, True), done.err
        assert done.json["away"] == [{"broker": "c", "queues": [{"topic": "T", "queueId": 0}]}]
        assert "run the same command again when its master is back" in cli(*words, "--yes").err
        if slaves:
            clusters.daemons.stop("d")
    assert before < len(read(there, "T")) < 120
    clusters.daemons.start("c", names=here)
    clusters.until_registered("a", "c")
    last = cli(*words, "--yes", "--json")
    assert (last.code, last.json["away"], last.json["offsetsAway"]) == (0, [], []), last.err
    assert Counter(map(number, read(there, "T"))) == Counter(range(120))
    offsets = offsets_of(there, "G", "T")
    assert sorted(filter(None, offsets.values())) == [3, 3]


def test_a_target_broker_without_a_master(cli: Cli, clusters: Clusters, tmp_path: Path) -> None:
    """A slave would take the offset of a group, and lose it."""
    there, here = clusters.first, clusters.second
    spread(cli, there)
    words = ("--namesrv", here, "--queues", "2", "--yes")
    assert cli("admin", "topic", "create", "T", *words).code == 0
    send(here, messages(0, 40))
    copied = ("copy", "--from", here, "--to", there, "--progress", tmp_path / "map", "--yes")
    assert cli(*copied).code == 0
    commit(here, "G", "T", {0: 3, 1: 4})
    clusters.start_a_slave()
    clusters.daemons.stop("c")
    clusters.until_registered("a", slaves=1)
    progress = load(Disk(), tmp_path / "map")
    assert progress is not None
    queues = list(progress.queues.values())

    async def run() -> tuple[list[str], list[AwayQueue]]:
        async with ClusterClient(ClientConfig((here,))) as source, ClusterClient(ClientConfig((there,))) as target:
            made = await carry_groups(source, target, queues)
            return [row.target.broker for row in made.carried], made.away

    carried, away = asyncio.run(run())
    assert (carried, [(one.side, one.queue.broker) for one in away]) == (["a"], [("target", "c")])
    refused = cli(*copied)
    assert (refused.code, "broker c of the target" in refused.err) == (5, True), refused.err
