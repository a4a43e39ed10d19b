"""What RocketMQ 5 keeps beside log, queues and index, once a store is repaired: timer messages and epochs.

A timer message waits when its record is there and no copy of it, as the timer delivers them, was ever written. Each
that waits has to be delivered, once; one whose copy was damaged may be delivered again. Which are, says the model of a
broker's start (tests/support/timer_model.py), or that release's own timer (beside.py). Of the epochs that a store had,
each that begins before the log end stays.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.timer_model import Model

from . import own
from .bases import Base, Facts
from .own import Record
from .truth import Held

TOPIC = "rmq_sys_wheel_timer"
EPOCHS = ("epochFileCheckpoint", "epochFileCheckpoint.bak")
FILES = ("timerlog", "timerwheel")


class _Timer(Model):
    """The model, on what the proof's own reader read of the log and of the timer's queue."""

    def __init__(self, base: Base, store: Path, held: Held) -> None:
        super().__init__(store, int(base.settings["mappedFileSizeTimerLog"]), written_until(base.facts))
        self._size, self._held = base.segment, held

    def log(self, offset: int, size: int) -> bytes:
        start = offset // self._size * self._size
        return self._held.log.get(start, b"")[offset - start : offset - start + size]

    def queue(self) -> list[tuple[int, int]]:
        units = self._held.units.get((TOPIC, 0), {})
        return [
            (units[at].offset, units[at].size) if at in units else (-1, 0) for at in range(max(units, default=-1) + 1)
        ]


def is_fresh(base: Base) -> bool:
    """Whether a broker that starts now has not passed over what was due meanwhile: it begins at most 7 days back."""
    return time.time() * 1000 - written_until(base.facts) < 6 * 24 * 3600 * 1000


def written_until(facts: Facts) -> int:
    """A minute after the last record was stored (ms): the time at which a start is thought of."""
    return max(record.store_time for _, record in facts.records.values()) + 60_000


def wrong(base: Base, facts: Facts, damaged: Path, store: Path, held: Held) -> list[str]:
    """What of these parts is lost, or wrong, in a repaired store: a sentence each."""
    return [*_timers(base, facts, damaged, store, held), *_epochs(damaged, store, held)]


def has_timers(base: Base) -> bool:
    """Whether a broker kept a timer log in it."""
    return any((base.store / name).exists() for name in FILES)


def waiting(base: Base, facts: Facts, held: Held) -> tuple[Counter[str], Counter[str]]:
    """How often each timer message of the log, by its KEYS, is delivered: at least, and at most."""
    must, may = Counter[str](), Counter[str]()
    for offset, (data, record) in facts.records.items():
        start = offset // base.segment * base.segment
        there = held.log.get(start, b"").startswith(data, offset - start)
        named = own.properties_of(record)
        if record.topic == TOPIC.encode():
            may[named["KEYS"]] += 1
            must[named["KEYS"]] += there
        elif "TIMER_DEQUEUE_MS" in named:
            may[named["KEYS"]] -= there
            must[named["KEYS"]] -= 1
    return +must, +may


def _timers(base: Base, facts: Facts, damaged: Path, store: Path, held: Held) -> list[str]:
    if not has_timers(base):
        return []
    timer = _Timer(base, store, held)
    got = timer.delivers()
    told = ["the timer goes in a circle"] if timer.hangs else []
    return told + other_than(base, facts, held, got, all_gone=all_gone(damaged))


def all_gone(damaged: Path) -> bool:
    """Whether no file of the timer is left: then a broker delivers all again. Nothing tells such a store from one of
    rstore's own daemon, which has no such files, so a repair leaves it so.
    """
    return not any((damaged / name).exists() for name in (*FILES, "config/timercheck"))


def other_than(base: Base, facts: Facts, held: Held, got: Counter[str], *, all_gone: bool = False) -> list[str]:
    """How what is delivered differs from what waits by a log: a sentence each."""
    must, may = waiting(base, facts, held)
    if all_gone:
        may = got
    told = []
    for what, which in (("not delivered", must - got), ("delivered again", got - may)):
        if which:
            told.append(f"{which.total()} timer messages {what}: {', '.join(sorted(which)[:4])}")
    return told


def by_timer(facts: Facts, held: Held, places: Sequence[int], queue_offset: int) -> Counter[str]:
    """What a timer delivers, by KEYS, that has these records in its wheel and reads its queue on from an offset."""
    units = held.units.get((TOPIC, 0), {})
    every = [*places, *(unit.offset for at, unit in units.items() if at >= queue_offset)]
    return Counter(
        own.properties_of(facts.records[place][1])["KEYS"] if _is_timer(facts, place) else "none" for place in every
    )


def _is_timer(facts: Facts, place: int) -> bool:
    return place in facts.records and facts.records[place][1].topic == TOPIC.encode()


def epochs(store: Path) -> list[tuple[int, int]] | None:
    """(epoch, first offset) of the first of the two files that is sound; None: there is none.

    Source: CheckpointFile.
    """
    for name in EPOCHS:
        lines = own.content(store / name).decode("latin-1").split("\n")
        entries = "".join(line + "\n" for line in lines[2:] if line)
        if len(lines) > 2 and lines[1] == str(zlib.crc32(entries.encode("latin-1")) & 0x7FFFFFFF):
            return [(int(epoch), int(at)) for epoch, _, at in (line.partition("-") for line in entries.split())]
    return None


def _epochs(damaged: Path, store: Path, held: Held) -> list[str]:
    before, after = epochs(damaged), epochs(store)
    if after is None:
        return [] if before is None else ["no file of epochs is sound any more"]
    ahead = [f"epoch {epoch} begins at {at}, after the log end {held.end}" for epoch, at in after if at > held.end]
    gone = sorted(set(before or ()) - set(after))
    return ahead + [f"epoch {epoch} at {at} is gone" for epoch, at in gone if at < held.end]


def record_with_crc(record: Record) -> bool:
    """Whether a property CRC ends its properties."""
    return record.told != record.properties
