"""The ledger of a recovery: which queue offsets went, came back or changed, and which groups stand too high."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.files.disk import Disk
from engine.format.message import decode
from engine.log.derive import TopicQueue
from engine.repair.recover.apply import apply
from engine.repair.recover.ledger import Ledger, ledger_of
from engine.repair.recover.queue_plan import Renumbered
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.engine.repair.test_rules import damage, messages, put, settings


def ledger(root: Path, **choice: Any) -> Ledger:
    return ledger_of(Disk(), plan_recover(Disk(), settings(root), **choice))


def lines(root: Path, **choice: Any) -> dict[TopicQueue, Any]:
    return {line.queue: line for line in ledger(root, **choice).queues}


def test_a_sound_store_has_an_empty_one(tmp_path: Path) -> None:
    put(tmp_path, 20)
    assert ledger(tmp_path) == Ledger((), (), ())


@pytest.mark.leaves("log-damage")
def test_a_cut_names_the_offsets_that_go(tmp_path: Path) -> None:
    places = put(tmp_path, 40)  # queues 0 and 1 in turn
    damage(tmp_path, places[30] + 95, b"\xff")
    found = lines(tmp_path, cut=True)
    assert {queue.queue_id: line.gone for queue, line in found.items()} == {0: ((15, 20),), 1: ((15, 20),)}
    assert {queue.queue_id: line.after[0] for queue, line in found.items()} == {0: 4, 1: 5}  # one is the damaged
    assert not any(line.repeated or line.rebuilt for line in found.values())


@pytest.mark.leaves("log-damage")
def test_a_bridge_names_the_offsets_that_are_lost(tmp_path: Path) -> None:
    places = put(tmp_path, 40)
    damage(tmp_path, places[31] + 95, b"\xff")
    found = lines(tmp_path, bridge=True)
    assert {(queue.queue_id, line.repeated) for queue, line in found.items()} == {(1, ((15, 16),))}
    assert not any(line.gone or line.after[0] for line in found.values())


@pytest.mark.leaves("unit-missing")
def test_rebuilt_queues_are_named(tmp_path: Path) -> None:
    put(tmp_path, 40)
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    (line,) = ledger(tmp_path).queues
    assert (line.queue, line.rebuilt) == (TopicQueue("T", 1), ((0, 20),))
    assert line.to_json() == {
        "topic": "T",
        "queueId": 1,
        "lost": [],
        "repeated": [],
        "rebuilt": [[0, 20]],
        "renumbered": [],
        "recordsLost": 0,
        "bytesLost": 0,
    }


def test_a_record_with_a_wrong_queue_offset_is_renumbered(tmp_path: Path) -> None:
    places = put(tmp_path, 40)
    damage(tmp_path, places[20] + 20 + 7, bytes([10 ^ 2]))  # queueOffset 10 becomes 8, which another record has
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "0")
    found = lines(tmp_path)[TopicQueue("T", 0)]
    assert found.renumbered == (Renumbered(places[20], 8, 10),)
    apply(Disk(), plan_recover(Disk(), settings(tmp_path)))
    with MessageStore.open(settings(tmp_path)) as store:
        assert decode(store.get("T", 0, 10).messages[0]).physical_offset == places[20]


@pytest.mark.leaves("config-bad", "config-missing", "log-damage")
def test_groups_above_the_end_get_a_command(tmp_path: Path) -> None:
    places = put(tmp_path, 40)
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    table = {"T@group one": {"0": 20, "1": 3}, "T@fine": {"0": 15, "1": 0}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    damage(tmp_path, places[30] + 95, b"\xff")
    (above,) = ledger(tmp_path, cut=True).above
    assert (above.group, above.queue, above.offset, above.max_offset) == ("group one", TopicQueue("T", 0), 20, 15)
    assert above.command == "rstore offsets set 'group one' T 0 15"
    (config / "consumerOffset.json").write_text("{")
    assert ledger(tmp_path, cut=True).problems


def test_no_message_is_named_lost_that_is_read(tmp_path: Path) -> None:
    """The spans of a bridged store are just those whose message isn't read under its own offset."""
    places = put(tmp_path, 200)
    before = messages(tmp_path)
    for i in (5, 6, 90, 91, 92, 150):
        damage(tmp_path, places[i] + 95, b"\xff\xff")
    found = lines(tmp_path, bridge=True)
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))
    after = messages(tmp_path)
    lost = {(q.queue_id, at) for q, line in found.items() for start, end in line.repeated for at in range(start, end)}
    assert lost == {place for place in before if after.get(place) != before[place]}
    assert len(lost) == 6
