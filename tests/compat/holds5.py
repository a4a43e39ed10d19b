"""Stores opened by RocketMQ 5's own message store, and asked which messages they give: as `batch.holds` for 4.9.8."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .apache import Exit, Line, Offsets, Opened
from .starts5 import Job, outcomes

APART = ("enableControllerMode", "storePathRootDir")
"""The message store is opened without a controller, which would tell it how far its log is confirmed."""
TIMER = "timer"
"""The line of what its timer makes of the store, where that has a timer log."""


@dataclass(frozen=True)
class Asked:
    """A store, its settings, and what is asked for: physical offsets, and (topic, key)."""

    store: Path
    settings: Mapping[str, object]
    places: Sequence[int]
    keys: Sequence[tuple[str, str]]


def run(release: str, asked: Sequence[Asked]) -> list[Opened]:
    """What each gave, in the order given."""
    jobs = [_job(one) for one in asked]
    found = outcomes(release, jobs)
    return [_opened(found[str(one.store)]) for one in asked]


def _job(one: Asked) -> Job:
    file = one.store.with_suffix(".wanted")
    lines = [f"place\t{place}" for place in one.places] + [f"key\t{topic}\t{key}" for topic, key in one.keys]
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    settings = {name: _text(value) for name, value in one.settings.items() if name not in APART}
    return Job(one.store, settings, queue_types(one.store), file)


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def queue_types(store: Path) -> dict[str, str]:
    """The topics whose queues have another type, by topics.json or else its copy, as a broker takes them."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            table = json.loads((store / "config" / name).read_text(encoding="utf-8"))["topicConfigTable"]
            named = {topic: one.get("attributes", {}).get("queue.type") for topic, one in table.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        return {topic: kind for topic, kind in named.items() if kind is not None}
    return {}


def _opened(said: Line) -> Opened:
    lines: list[Line] = [*said.get("holds", ())]
    if "places" in said:
        lines += [{"type": "places", "offsets": said["places"]}, {"type": "keys", "offsets": said["keys"]}]
    timer, code = said.get("timer"), said["exit"]
    if timer is not None:
        lines.append({"type": TIMER, **timer})
    if timer is not None and not timer["loaded"]:
        code = Exit.NOT_LOADED  # its broker does not start
    opened = Opened.of(code, lines, "")
    opened.error = said.get("error")
    if "max" in said:
        opened.final = Offsets(said["min"], said["max"])
    return opened
