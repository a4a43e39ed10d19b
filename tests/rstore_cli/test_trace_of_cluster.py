"""`trace`: when delayed messages are due by their broker's own levels; which brokers were not asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import StoreConfig
from tests.engine.broker.client import SMALL
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.daemons import daemons, until_served
from tests.rstore_cli.test_copy_away import Clusters, clusters
from tests.rstore_cli.test_tail_and_trace import rows_of, until
from tests.support.checking import check_clean

__all__ = ["clusters"]

HOUR_MS = 3_600_000


@pytest.mark.leaves("unit-delivery-other")  # to who does not know the store's own messageDelayLevel
def test_the_levels_are_those_of_the_broker(cli: Cli, tmp_path: Path) -> None:
    with daemons(tmp_path) as thread:
        names = thread.names_of("a")
        thread.start("z", names=names, message_delay_level="7m 1h")
        assert cli("admin", "topic", "create", "Late", "--broker", "z", "--namesrv", names, "--yes").code == 0
        until_served(cli, "Late", names)
        words = ("--namesrv", names, "--body", "x", "--keys", "k", "--timeout", "60", "--json")
        sent = cli("send", "Late", *words, "--delay-level", "2").json["msgId"]
        conf = tmp_path / "levels.conf"
        conf.write_text("messageDelayLevel=7m 1h\n")
        traced = ("trace", "Late", sent)
        in_cluster, in_store = ("--namesrv", names), ("--store", str(thread.store("z")), "-c", str(conf))
        for place in (in_cluster, in_store):
            until(lambda place=place: rows_of(cli(*traced, *place, "--json")) != [])  # type: ignore[misc]
            (row,) = rows_of(cli(*traced, *place, "--json"))
            assert row["event"] == "delayed"
            assert int(str(row["due"])) - int(str(row["time"])) == HOUR_MS
            assert ", due " in cli(*traced, *place).out
        assert cli(*traced, *in_cluster).err == "note: not asked: broker a: topic Late is not served there\n"
        thread.stop("z")
        thread.start("z", names=names, message_delay_level="7m 1h")  # at another address than the message has
        until(lambda: rows_of(cli(*traced, *in_cluster, "--json")) != [])
        ran = cli(*traced, *in_cluster)
        assert ", due " not in ran.out
        assert "when delayed messages are due is not known: no messageDelayLevel from broker 127.0.0.1:" in ran.err
        store = thread.store("z")
    check_clean(store, StoreConfig(store_path_root_dir=store, message_delay_level="7m 1h").with_changes(**SMALL))


def test_a_broker_without_a_master_is_named(cli: Cli, clusters: Clusters) -> None:
    names = clusters.first
    words = ("--namesrv", names, "--cluster", "DefaultCluster", "--queues", "1", "--yes")
    assert cli("admin", "topic", "create", "T", *words).code == 0
    assert cli("send", "T", "--namesrv", names, "--body", "x", "--keys", "k", "--timeout", "60").code == 0
    clusters.start_a_slave()
    clusters.daemons.stop("c")
    clusters.until_registered("a", slaves=1)
    ran = cli("trace", "T", "k", "--namesrv", names)
    assert ran.err.startswith("note: not asked: broker c: no master of it is registered\n"), ran
