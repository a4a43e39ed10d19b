"""Apache's own clients against `rstore serve`: each sends, consumes and counts; then the store is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from tests.compat import toolchain
from tests.compat.replicas import until
from tests.compat.served import SETTINGS, Served, mqadmin, run_client, run_scenario, serve
from tests.engine.opening import assert_sound

pytestmark = pytest.mark.interop

MANY = 10_000
FEW = 1_000
"""Where each message costs seconds of waiting, or a line on the wire of its own to three parties."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    try:
        toolchain.clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    root = tmp_path_factory.mktemp("served") / "store"
    # by default as many sends may wait as a scenario sends at once, and those beyond are refused
    with serve(root, SETTINGS + "sendThreadPoolQueueCapacity=100000\n") as served:
        yield served
    assert not (root / "abort").exists()
    assert_sound(StoreConfig(store_path_root_dir=root))


@pytest.mark.parametrize(
    ("scenario", "count", "expected"),
    [
        ("cluster", MANY, {"shared": True}),
        ("tags", MANY, {"unwanted": 0}),
        ("sql", MANY, {}),
        ("batch", MANY, {}),
        ("oneway", MANY, {"unanswered": 0}),
        ("orderly", MANY, {"sorted": True}),
        ("delayed", MANY, {"early": 0}),
        ("dead", FEW, {"tried": FEW}),
        ("transactions", MANY, {"rolledBack": 0}),
        ("request", FEW, {"ofAnother": 0}),
    ],
)
def test_nothing_is_lost_and_nothing_doubled(
    broker: Served, scenario: str, count: int, expected: dict[str, Any]
) -> None:
    found = run_scenario(broker.names, scenario, count)
    assert found["seen"] == found["sent"], found
    assert found["doubled"] == 0
    assert found.items() >= expected.items()
    assert found.get("checked", 0) < count * 5 // 6  # a third is unknown; of the rest, what an end was too late for


def test_a_broadcast_reaches_each(broker: Served) -> None:
    found = run_scenario(broker.names, "broadcast", MANY)
    assert (found["first"], found["second"], found["doubled"]) == (MANY, MANY, 0)


def test_client_go(broker: Served) -> None:
    try:
        program = toolchain.go_clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    found = run_client([str(program), broker.names, str(MANY)])
    assert found == {"sent": found["sent"], "seen": found["sent"], "doubled": 0, "unwanted": 0}


def test_ali_ons(broker: Served, tmp_path: Path) -> None:
    """It knows no default topic: what it uses is made before."""
    try:
        words = toolchain.node_clients()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    for topic in ("Node", "%RETRY%NodeConsumers"):
        mqadmin(tmp_path, broker.names, "updateTopic", "-b", broker.broker, "-t", topic, "-r", "4", "-w", "4")
    found = run_client([*words, broker.names, str(MANY)])
    assert found == {"sent": MANY // 2, "seen": MANY // 2, "doubled": 0, "unwanted": 0}


def test_mqadmin_finds_its_way(broker: Served, tmp_path: Path) -> None:
    def admin(*words: str) -> str:
        return mqadmin(tmp_path, broker.names, *words)

    assert "broker-a" in admin("clusterList")
    admin("updateTopic", "-b", broker.broker, "-t", "Administered", "-r", "3", "-w", "3")
    assert "Administered" in admin("topicList")
    route = admin("topicRoute", "-t", "Administered")
    assert '"readQueueNums":3' in route.replace(" ", "")
    status = admin("topicStatus", "-t", "Administered")
    assert status.count("broker-a") == 3
    sent = admin("sendMessage", "-t", "Administered", "-p", "hello", "-k", "key-1")
    assert "SEND_OK" in sent

    def found() -> int:
        lines = admin("queryMsgByKey", "-t", "Administered", "-k", "key-1").splitlines()
        return len([line for line in lines if line.strip()[:8].isalnum() and "#" not in line])

    until(lambda: found() >= 1, 120)  # it is in the index a moment after it is answered
