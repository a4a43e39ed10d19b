"""Fixtures whose messages were stored over hours: store times rewritten (no CRC covers them), and what must follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.format.record import store_timestamp_position
from tests.support import fixtures

HOUR = 3_600_000
START = 1_700_000_000_000 // HOUR * HOUR + HOUR // 2
"""Store time of the first record (ms): half past an hour."""
STEP = 7 * 60_000
"""Ms from one record to the next: the messages of a fixture are those of some days."""


def records(name: str) -> list[dict[str, Any]]:
    """The records of a fixture in log order, with the store time that `age` gives them ("time", ms)."""
    found = [line for line in fixtures.dump(name) if line["type"] == "log"]
    return [{**record, "time": START + i * STEP} for i, record in enumerate(found)]


def age(store: Path, name: str) -> None:
    """Give the records of a copy of a fixture their new store times."""
    size = fixtures.manifest(name)["settings"]["mappedFileSizeCommitLog"]
    for record in records(name):
        at = record["physicalOffset"]
        with (store / "commitlog" / f"{at // size * size:020d}").open("r+b") as file:
            file.seek(at % size + store_timestamp_position(record["sysFlag"]))
            file.write(record["time"].to_bytes(8, "big"))


def units(name: str) -> list[dict[str, Any]]:
    """What Apache reads by queue: "topic", "queueId", "offset", "physicalOffset", "size", "time" (that of `age`)."""
    times = {record["physicalOffset"]: record["time"] for record in records(name)}
    return [
        {
            "topic": line["cqTopic"],
            "queueId": line["cqQueueId"],
            "offset": line["cqOffset"],
            "physicalOffset": line["cqPhyOffset"],
            "size": line["cqSize"],
            "time": times[line["cqPhyOffset"]],
        }
        for line in fixtures.dump(name)
        if line["type"] == "msg"
    ]
