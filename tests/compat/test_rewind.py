"""A slave takes over from a killed master of Apache's; that one goes back to where they diverged, and follows it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.broker.ha.replicate import ReplicateOptions, replicate
from engine.client.remote_broker import RemoteBroker
from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import Message, decode
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.change import Ending, carry_out
from engine.repair.recover.change import RecoverChange
from engine.repair.replay.plan import ReplayRequest
from engine.repair.truncate.change import TruncateChange
from engine.replay import ReplayChange
from engine.rewind.change import RewindChange
from engine.rewind.promote_change import PromoteChange
from engine.store import MessageStore
from tests.compat import real_broker, served, toolchain
from tests.compat.replicas import consume, log_bytes, log_end, produce, until
from tests.compat.test_replication import COMMON, FILE, SLAVE, config, end_of
from tests.engine.opening import assert_sound
from tests.support.wide import sample

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    """Apache's name server."""
    try:
        toolchain.apache_broker()
        with real_broker.name_server(tmp_path / "names") as address:
            yield address
    except toolchain.Missing as missing:
        pytest.skip(str(missing))


def replayed(root: Path, into: Path) -> set[bytes]:
    """The bodies that the last repair saved, put into a store of their own."""
    assert carry_out(ReplayChange(ReplayRequest(None, into)), Disk(), config(root)).ending is Ending.APPLIED
    bodies = set()
    with MessageStore.open(config(into)) as store:
        for queue_id in range(4):
            at = 0
            while at < store.max_offset("Load", queue_id):
                result = store.get("Load", queue_id, at)
                bodies |= {decode(record).body for record in result.messages}
                at = result.next_begin_offset
    return bodies


@pytest.mark.parametrize("whose", ["apache", "rstore"])
def test_an_old_master_of_apaches_rejoins(names: str, tmp_path: Path, whose: str) -> None:
    """Behind a master of Apache's, and of ours: as rstore's slave, then as Apache's. What only it had is put back."""
    old, new = tmp_path / "old", tmp_path / "new"
    with real_broker.broker(old, names, COMMON) as broker:
        common = produce(broker.broker, "Load", 1200, size=4000, name="common")
        replicate(StoreConfig(store_path_root_dir=new), ReplicateOptions(broker.broker, until_caught_up=True), _quiet)
        only_old = produce(broker.broker, "Load", 1000, size=4000, name="old")
        broker.kill()
    conf = tmp_path / "slave.conf"
    conf.write_text(f"{SLAVE}haMasterAddress={broker.ha}\n")
    promoted = carry_out(PromoteChange(service=broker.ha, conf=str(conf)), Disk(), config(new))
    assert (promoted.ending, promoted.plan.old.answers) == (Ending.APPLIED, False)
    assert promoted.plan.end > common.last
    with ExitStack() as running:
        if whose == "apache":
            master = running.enter_context(real_broker.broker(new, names, conf.read_text()))
        else:
            port = str(real_broker.free_port(4))  # Apache's slave asks for topics on the VIP port, two below
            master = running.enter_context(  # type: ignore[assignment]
                served.serve(new, conf.read_text(), "--namesrv", names, "--port", port)
            )
        # Clients go on: they find it by the name server, and it takes and gives messages.
        command = [sys.executable, "-m", "rstore_cli.app", "send", "Load", "--namesrv", names, "--body", "after"]
        until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, 60)
        until(lambda: len(consume(master.broker, "Load")) > len(common.bodies), 60)  # dispatched after it is answered
        assert consume(master.broker, "Load") == common.bodies | {b"after"}
        only_new = produce(master.broker, "Load", 600, size=4000, name="new")
        done = carry_out(RewindChange(RemoteBroker(master.broker)), Disk(), config(old))
        assert done.ending is Ending.APPLIED
        assert done.plan.divergence is not None
        assert done.plan.divergence.common > common.last
        assert done.plan.messages == len(only_old.bodies)
        assert_sound(config(old))
        assert replayed(old, tmp_path / "put-back") == only_old.bodies
        copy = shutil.copytree(old, tmp_path / "copy")
        replicate(config(copy), ReplicateOptions(master.broker, until_caught_up=True), _quiet)
        end = only_new.last + 1
        assert log_bytes(copy, 0, end) == log_bytes(new, 0, end)
        with real_broker.broker(old, names, f"{SLAVE}haMasterAddress={master.ha}\n") as slave:
            bodies = common.bodies | only_new.bodies | {b"after"}
            until(lambda: log_end(slave.broker) > only_new.last, 60)
            until(lambda: len(consume(slave.broker, "Load")) == len(bodies), 60)
            assert consume(slave.broker, "Load") == bodies
        assert log_bytes(old, 0, end) == log_bytes(new, 0, end)
    for root in (old, copy):
        assert_sound(config(root))


@pytest.mark.wide
def test_partings_from_one_master_of_apaches(names: str, tmp_path: Path) -> None:
    """Old masters that diverged at any record of it, also at its end, each with messages of its own: ten of them, a
    hundred in a wide run.
    """
    new = tmp_path / "new"
    with real_broker.broker(new, names, COMMON) as master:
        until(lambda: produce(master.broker, "Load", 1500, size=4000, name="new").last > 2 * FILE, 120)
        end = end_of(new)
        # The broker replaces the files of its config every few seconds: they may go while they are copied.
        copy = shutil.copytree(new, tmp_path / "copy", ignore=shutil.ignore_patterns("lock", "config"))
        assert carry_out(RecoverChange(keep=False), Disk(), config(copy)).ending is Ending.APPLIED
        with ClosedLog(Disk(), survey(Disk(), config(copy)).log) as log:
            batches = [one for one in Scanner(log).scan(0) if isinstance(one, RecordBatch)]
        starts = [batch.offset(i) for batch in batches for i in range(len(batch))]
        for seed in sample(range(100), 10):
            rng = random.Random(f"parting {seed}")
            at = rng.choice([*starts[1:], end])
            old, put_back = tmp_path / f"old-{seed}", tmp_path / f"put-back-{seed}"
            shutil.copytree(copy, old)
            if at < end:
                cut = carry_out(TruncateChange(to_offset=at, agreed=True, keep=False), Disk(), config(old))
                assert cut.ending is Ending.APPLIED
            sizes = [rng.randrange(1, 9000) for _ in range(rng.randrange(1, 200))]
            own = {b"%d of %d: " % (i, seed) + rng.randbytes(size) for i, size in enumerate(sizes)}
            with MessageStore.open(config(old)) as store:
                for body in sorted(own):
                    assert store.put(Message("Load", body, rng.randrange(4)), wait=False).append
            done = carry_out(RewindChange(RemoteBroker(master.broker)), Disk(), config(old))
            assert (done.ending, done.plan.messages) == (Ending.APPLIED, len(own)), seed
            assert replayed(old, put_back) == own
            replicate(config(old), ReplicateOptions(master.broker, until_caught_up=True), _quiet)
            assert log_bytes(old, 0, end) == log_bytes(new, 0, end), seed
            assert_sound(config(old))
            for place in (old, put_back):
                shutil.rmtree(place)


def _quiet(_: object) -> None:
    pass
