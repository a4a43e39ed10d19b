"""A sound config/ beside a store that has none: as a broker would have written it."""

from __future__ import annotations

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
