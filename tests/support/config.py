"""A sound config/ beside a store that has none: as a broker would have written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.format import fastjson


def write_config(store: Path) -> None:
    """Each topic of the queues with as many queues as it has, and empty tables beside; files that are there stay."""
    topics: dict[str, dict[str, Any]] = {}
    for topic in sorted((store / "consumequeue").iterdir()):
        queues = [int(queue.name) for queue in topic.iterdir() if queue.name.isdecimal()] if topic.is_dir() else []
        if queues:
            count = max(queues) + 1
            topics[topic.name] = {
                "topicName": topic.name,
                "readQueueNums": count,
                "writeQueueNums": count,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
    version = {"counter": 1, "timestamp": 1_700_000_000_000}
    tables: dict[str, dict[str, Any]] = {
        "topics.json": {"dataVersion": version, "topicConfigTable": topics},
        "subscriptionGroup.json": {"dataVersion": version, "subscriptionGroupTable": {}},
        "consumerOffset.json": {"offsetTable": {}},
        "delayOffset.json": {"offsetTable": {}},
    }
    (store / "config").mkdir(exist_ok=True)
    for name, value in tables.items():
        if not (store / "config" / name).exists():
            (store / "config" / name).write_text(fastjson.dumps(value), encoding="utf-8")


def config_of(name: str, text: str) -> Callable[[Path], None]:
    """Makes a config/ with nothing else in it."""

    def make(store: Path) -> None:
        (store / "config").mkdir()
        (store / "config" / name).write_text(text)

    return make


def without_a_table(store: Path) -> None:
    """A sound config/, of which one file is missing."""
    write_config(store)
    (store / "config" / "delayOffset.json").unlink()


def with_a_hidden_topic(store: Path) -> None:
    """A sound config/, with a topic that nobody may read."""
    write_config(store)
    path = store / "config" / "topics.json"
    path.write_text(path.read_text().replace('"perm":6', '"perm":2', 1))
