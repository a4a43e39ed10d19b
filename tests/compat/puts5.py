"""Puts into the message store of RocketMQ 5, as `apache.write` into that of 4.9.8."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .apache import Line, Sizes
from .puts import properties_string
from .starts5 import java

LEVELS = 18
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def write(
    release: str, store: Path, made: Sequence[Line], sizes: Sizes, settings: Mapping[str, object] | None = None
) -> list[Line]:
    """Puts all in turn and closes the store; a result for each put."""
    given = {**sizes.settings(), **(settings or {})}
    pairs = ";".join(f"{name}={str(value).lower() if value is True else value}" for name, value in given.items())
    with tempfile.TemporaryDirectory(prefix="rstore-puts5-") as home:
        file = Path(home) / "puts"
        file.write_text("".join(json.dumps(as_a_broker_hands_on(put)) + "\n" for put in made), encoding="utf-8")
        words = java(release, Path(home), ["put", str(store), pairs, str(file)])
        ran = subprocess.run(words, capture_output=True, timeout=120, check=True)
    return [json.loads(line) for line in ran.stdout.decode().splitlines() if line.startswith("{")]


def as_a_broker_hands_on(put: Line) -> Line:
    """A delayed message as its store gets it: since 5.0 the broker (HookUtils#transformDelayLevelMessage) moves it to
    the topic of delayed messages, no longer CommitLog#asyncPutMessage.
    """
    level = min(put["delayTimeLevel"], LEVELS)
    if level <= 0 or put["kind"] == "batch":
        return put
    properties = put["properties"] | {
        "DELAY": str(level),
        "REAL_TOPIC": put["topic"],
        "REAL_QID": str(put["queueId"]),
    }
    moved = {"topic": SCHEDULE_TOPIC, "queueId": level - 1, "properties": properties}
    return put | moved | {"propertiesString": properties_string(properties)}
