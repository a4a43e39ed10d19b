"""A slave's store becomes a master's: what is said of it, what is done to it, and when it is refused."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker_conf.properties import read_properties
from engine.config import BrokerRole
from engine.errors import InvalidArgument, Refused
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import fastjson
from engine.format.topic_rules import HALF_TOPIC
from engine.repair.change import Ending, carry_out, preview
from engine.rewind.conf_edit import plan_edit
from engine.rewind.promote_change import PromoteChange
from engine.store import MessageStore
from tests.engine.broker.ha.pair import Pair, until
from tests.engine.opening import assert_sound, message, small
from tests.engine.rewind.divergences import Diverged, served
from tests.engine.rewind.test_rewind import follows, replayed, rewind
from tests.support import stores

CONF = b"""# the slave of a-0
brokerName = a
brokerRole= SLAVE
brokerId:1
haMasterAddress=%s
namesrvAddr=192.0.2.1:9876;\\
  192.0.2.2:9876
"""
NOBODY = "127.0.0.1:1"


@pytest.fixture
def slave(tmp_path: Path) -> Path:
    """A closed store with messages."""
    with MessageStore.open(small(tmp_path / "slave")) as store:
        for i in range(60):
            assert store.put(message(b"%03d" % i, i % 3)).ok
    return tmp_path / "slave"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "broker.conf"
    path.parent.mkdir()
    path.write_bytes(CONF % NOBODY.encode())
    return path


def test_a_failover_and_the_way_back(tmp_path: Path) -> None:
    """The slave takes over what it has; what the old master had beyond is saved, and it follows."""
    pair = Pair(tmp_path)
    pair.put(300)
    client = pair.slave()
    until(lambda: client.state.end == pair.master.log.max_offset)
    end = client.state.end
    pair.close_slave()
    lost: dict[tuple[str, int], list[bytes]] = {}
    for i in range(40):  # acknowledged, and never sent to the slave
        assert pair.master.put(message(b"lost-%d" % i, i % 3)).ok
        lost.setdefault(("T", i % 3), []).append(b"lost-%d" % i)
    old_end = pair.master.log.max_offset
    pair.close()
    (tmp_path / "master").rename(tmp_path / "old")
    done = carry_out(PromoteChange(service=NOBODY), Disk(), small(tmp_path / "slave"))
    assert done.plan.end == end
    assert not done.plan.old.answers
    assert "brokerRole=ASYNC_MASTER and brokerId=0" in str(done.next)
    with served(tmp_path / "slave") as (store, port):
        for i in range(30):
            assert store.put(message(b"new-%d" % i, i % 3)).ok
        one = Diverged(tmp_path / "old", store, port, end, old_end, lost)
        back = rewind(one)
        assert (back.plan.divergence.common, back.plan.messages) == (end, 40)
        assert replayed(one, back.salvage, tmp_path / "put-back") == lost
        follows(one)


def test_an_old_master_that_answers(slave: Path) -> None:
    before = stores.snapshot(slave)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        change = PromoteChange(service=f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Refused, match="the old master answers"):
            preview(change, Disk(), small(slave))
        assert stores.snapshot(slave) == before
        forced = preview(replace(change, force=True), Disk(), small(slave))
        assert forced.plan.old.answers
        assert forced.plan.refusal is None
    assert not preview(change, Disk(), small(slave)).plan.old.answers


def test_lines_end_as_they_did(conf: Path) -> None:
    """A file of Windows, and one whose last line has no end."""
    wanted = {"brokerRole": "ASYNC_MASTER", "clusterName": "c"}
    for old, new in (
        (b"brokerRole=SLAVE\r\n# x\r\n", b"brokerRole=ASYNC_MASTER\r\n# x\r\nclusterName=c\r\n"),
        (b"# x\nbrokerRole=SLAVE", b"# x\nbrokerRole=ASYNC_MASTER\nclusterName=c\n"),
    ):
        conf.write_bytes(old)
        assert plan_edit(Disk(), str(conf), wanted).new == new


def test_the_configuration_is_changed_line_by_line(slave: Path, conf: Path) -> None:
    dry = preview(PromoteChange(conf=str(conf)), Disk(), small(slave))
    assert (dry.ending, dry.changes) == (Ending.PREVIEWED, True)
    assert dry.plan.conf is not None
    assert dry.plan.conf.changes == (("brokerRole", "SLAVE", "ASYNC_MASTER"), ("brokerId", "1", "0"))
    assert conf.read_bytes() == CONF % NOBODY.encode()
    os.chmod(conf, 0o640)
    done = carry_out(PromoteChange(conf=str(conf)), Disk(), small(slave))
    assert done.ending is Ending.APPLIED
    values = read_properties(CONF % NOBODY.encode()).values
    assert read_properties(conf.read_bytes()).values == values | {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
    assert conf.read_bytes().splitlines()[0] == b"# the slave of a-0"
    assert conf.stat().st_mode & 0o777 == 0o640
    kept = conf.with_name("broker.conf.before-promote")
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (CONF % NOBODY.encode(), 0o640)
    again = carry_out(PromoteChange(conf=str(conf)), Disk(), small(slave))
    assert (again.ending, again.plan.conf.changes if again.plan.conf else None) == (Ending.UNCHANGED, ())
    assert sorted(path.name for path in conf.parent.iterdir()) == ["broker.conf", "broker.conf.before-promote"]
    conf.write_bytes(b"brokerRole=SLAVE\n")  # a slave once more, and a master again
    carry_out(PromoteChange(conf=str(conf)), Disk(), small(slave))
    assert conf.with_name("broker.conf.before-promote.2").read_bytes() == b"brokerRole=SLAVE\n"
    assert conf.with_name("broker.conf.before-promote").read_bytes() == CONF % NOBODY.encode()
    with pytest.raises(InvalidArgument, match="no such configuration file"):
        preview(PromoteChange(conf=str(conf.parent / "other")), Disk(), small(slave))


@pytest.mark.leaves("config-missing")
def test_what_is_said_of_groups_and_deliveries(slave: Path) -> None:
    """Read and not read, beyond what came to the slave, delayed messages, half messages, the age of the tables."""
    with MessageStore.open(small(slave)) as store:
        for _ in range(5):
            assert store.put(message(DELAY="3")).ok
        for _ in range(2):
            assert store.put(message(topic=HALF_TOPIC)).ok
    config = slave / "config"
    config.mkdir(exist_ok=True)
    table = {
        "T@readers": {"0": 20, "1": 12, "2": 25},
        f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 1},
        "NeverCame@readers": {"0": 5},
    }
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    (config / "delayOffset.json").write_text('{"offsetTable":{"3":2}}')
    os.utime(config / "consumerOffset.json", (1_700_000_000, 1_700_000_000))
    done = carry_out(PromoteChange(), Disk(), small(slave))
    plan = done.plan
    assert [(one.group, one.unread, one.beyond) for one in plan.groups] == [("readers", 8, 1)]
    assert (dict(plan.delayed), plan.half) == ({3: 3}, 1)
    assert plan.tables_ms["consumerOffset.json"] == 1_700_000_000_000
    offsets = fastjson.loads((config / "consumerOffset.json").read_text())["offsetTable"]
    assert offsets["T@readers"] == {"0": 20, "1": 12, "2": 20}
    assert offsets["NeverCame@readers"] == {"0": 0}
    assert plan.old.address is None
    assert plan.to_json()["promote"]["groups"] == [{"group": "readers", "unread": 8, "beyond": 1}]


def test_a_slave_that_was_killed(slave: Path) -> None:
    """Its queues lack the log's end, the abort file is there: what was in no queue is counted, and gets there."""
    shutil.rmtree(slave / "consumequeue" / "T" / "1")
    (slave / "abort").touch()
    done = carry_out(PromoteChange(), Disk(), small(slave))
    assert (done.ending, done.plan.rebuilt) == (Ending.APPLIED, 20)
    assert_sound(small(slave))
    with MessageStore.open(small(slave, broker_role=BrokerRole.ASYNC_MASTER)) as store:
        assert store.max_offset("T", 1) == 20
        assert store.put(message()).ok


@pytest.mark.leaves("config-missing")
def test_killed_before_each_change_and_run_again(slave: Path, conf: Path, tmp_path: Path) -> None:
    (slave / "config").mkdir(exist_ok=True)
    table = json.dumps({"offsetTable": {"T@g": {"0": 99}}})
    (slave / "config" / "consumerOffset.json").write_text(table)
    (slave / "abort").touch()
    whole = stores.copy(slave, tmp_path / "whole")
    counting = FaultyDisk(None)
    carry_out(PromoteChange(conf=str(conf)), counting, small(whole))
    expected = conf.read_bytes()
    assert counting.changes_seen >= 15
    kept = conf.with_name("broker.conf.before-promote")
    for number in range(1, counting.changes_seen + 1, 3):
        conf.write_bytes(CONF % NOBODY.encode())
        kept.unlink(missing_ok=True)
        root = stores.copy(slave, tmp_path / "again")
        disk = FaultyDisk(None)
        disk.kill_before(number)
        with pytest.raises(Killed):
            carry_out(PromoteChange(conf=str(conf)), disk, small(root))
        assert conf.read_bytes() in (CONF % NOBODY.encode(), expected)
        carry_out(PromoteChange(conf=str(conf)), Disk(), small(root))
        assert (conf.read_bytes(), kept.read_bytes()) == (expected, CONF % NOBODY.encode())
        assert_sound(small(root))
        offsets = fastjson.loads((root / "config" / "consumerOffset.json").read_text())["offsetTable"]
        assert offsets["T@g"]["0"] == 20
        shutil.rmtree(root)
    (slave / "abort").unlink()
    (slave / "config" / "consumerOffset.json").unlink()
