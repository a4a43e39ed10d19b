"""Healing from Apache's broker while it runs: Apache then starts on the healed store, and serves every message."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from engine.client.remote_broker import RemoteBroker
from engine.config import of_store
from engine.heal.peer import PeerSource
from engine.repair.change import Ending
from tests.compat import real_broker, toolchain
from tests.compat.replicas import consume, produce
from tests.compat.test_backup import SETTINGS, whole_log
from tests.engine.heal.healing import heal
from tests.engine.opening import assert_sound
from tests.support import stores

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

SEGMENT = 4194304


def test_a_running_broker_of_apaches_as_source(tmp_path: Path) -> None:
    try:
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    master = tmp_path / "master"
    with real_broker.name_server(tmp_path / "names") as names:
        with real_broker.broker(master, names, SETTINGS) as broker:
            sent = produce(broker.broker, "Heal", 50_000, name="first")
        store = stores.copy(master, tmp_path / "store")
        truth = whole_log(store)
        files = sorted((store / "commitlog").iterdir())
        assert len(truth.rstrip(b"\0")) > 2 * SEGMENT, "more than two segments"
        files[1].unlink()
        draw = Random(4)
        with files[0].open("r+b") as file:
            for _ in range(20):
                file.seek(draw.randrange(SEGMENT // 4096) * 4096)
                file.write(bytes(4096))
        with real_broker.broker(master, names, SETTINGS) as broker:
            source = PeerSource(RemoteBroker(broker.broker))
            outcome = heal(store, source)
            assert outcome.ending is Ending.APPLIED
            assert not outcome.plan.left
        assert whole_log(store).rstrip(b"\0") == truth.rstrip(b"\0")
        assert_sound(of_store(store))
        with real_broker.broker(store, names, SETTINGS) as broker:
            assert consume(broker.broker, "Heal") == sent.bodies
            assert produce(broker.broker, "Heal", 10, name="after").codes == {0}
