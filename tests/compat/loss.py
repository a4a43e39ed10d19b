"""What is lost of a damaged store: counted against the undamaged one, for rstore and for Apache in the same way.

Sound is a record that has the same bytes in the damaged copy as in the undamaged store, whatever lies around it. What
Apache read from the undamaged store says where each sound message has to be found: at which offset of which queue
(in each, where it was dispatched to several), by which keys, at which place of the log. One that isn't found is lost.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import StoreConfig
from engine.errors import FormatError
from engine.format import properties, sysflag
from engine.format.message import decode
from engine.read_store import ReadStore
from tests.engine.repair import corpus
from tests.support import golden, stores
from tests.support.whole_files import WholeFiles

from . import corpora, fixtures
from .apache import Line, Opened

MOST = 64
"""What a query gives at most (maxMsgsNumBatch); no key of the corpora has more messages."""

Key = tuple[str, str]
InQueue = tuple[str, int, int, int]
"""Topic, queue id, queue offset, physical offset."""


@dataclass
class Truth:
    """What Apache read from an undamaged store."""

    records: dict[int, Line]
    """Every record, prepared and rolled back ones, too, by physical offset."""
    in_queues: frozenset[InQueue]

    @classmethod
    def of(cls, case: Line) -> Truth:
        """Of the store that a case starts from."""
        lines = golden.dump(case["base"]) if corpora.is_golden(case) else list(fixtures.dump(case["base"]))
        queued = {
            (
                line.get("cqTopic", line["topic"]),
                line.get("cqQueueId", line["queueId"]),
                line.get("cqOffset", line["queueOffset"]),
                line["physicalOffset"],
            )
            for line in lines
            if line["type"] == "msg"
        }
        return cls({line["physicalOffset"]: line for line in lines if line["type"] == "log"}, frozenset(queued))

    @cached_property
    def keys(self) -> dict[Key, frozenset[int]]:
        """The physical offsets of the messages with each key that the index has."""
        found: dict[Key, set[int]] = defaultdict(set)
        for offset, line in self.records.items():
            if sysflag.is_indexed(line["sysFlag"]):
                for key in {line["uniqKey"], *properties.key_words(line["keys"])} - {None}:
                    found[line["topic"], key].add(offset)
        assert max(map(len, found.values())) <= MOST
        return {key: frozenset(offsets) for key, offsets in found.items()}

    def wanted(self) -> Line:
        """Places and keys to ask for, as Holds.java takes them."""
        return {"places": sorted(self.records), "keys": sorted(self.keys)}

    def sound(self, base: Path, damaged: Path) -> frozenset[int]:
        """The physical offsets of the records that the damage didn't touch."""
        whole = set()
        for path in (base / "commitlog").iterdir():
            start, there = int(path.name), damaged / "commitlog" / path.name
            if not there.is_file():
                continue
            before, after = np.fromfile(path, np.uint8), np.fromfile(there, np.uint8)
            common = min(before.size, after.size)
            other = np.flatnonzero(before[:common] != after[:common])
            for offset, line in self.records.items():
                begin = offset - start
                end = begin + line["size"]
                if begin >= 0 and end <= common and np.searchsorted(other, begin) == np.searchsorted(other, end):
                    whole.add(offset)
        return frozenset(whole)


class Truths:
    """The truth of each undamaged store, read once; and the files that ask Apache for it, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: dict[tuple[bool, str], Truth] = {}

    def of(self, case: Line) -> Truth:
        """Of the store that a case starts from."""
        key = corpora.is_golden(case), case["base"]
        if key not in self._found:
            self._found[key] = Truth.of(case)
        return self._found[key]

    def wanted(self, case: Line) -> Path:
        """The file of `Truth.wanted`."""
        file = self._root / f"{'golden' if corpora.is_golden(case) else 'fixture'}-{case['base']}.json"
        if not file.exists():
            file.write_text(json.dumps(self.of(case).wanted(), ensure_ascii=False), encoding="utf-8")
        return file


@dataclass
class Held:
    """The messages that a program gives out of a store."""

    in_queues: set[InQueue] = field(default_factory=set)
    places: set[int] = field(default_factory=set)
    keys: dict[Key, set[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Loss:
    """How many sound messages are not found by queue, by key, at their place; and in any of these ways.

    `moved` ones are found in their queue, but at another queue offset: no loss, though consumers miss or repeat some.
    """

    queue: int = 0
    moved: int = 0
    key: int = 0
    place: int = 0
    messages: int = 0

    def to_json(self) -> dict[str, int]:
        """By name."""
        return asdict(self)


def lost(truth: Truth, sound: frozenset[int], held: Held) -> Loss:
    """The sound messages that are not among those held."""
    anywhere = {(topic, queue_id, offset) for topic, queue_id, _, offset in held.in_queues}
    elsewhere = [one for one in truth.in_queues - held.in_queues if one[3] in sound]
    queue = {one[3] for one in elsewhere if (one[0], one[1], one[3]) not in anywhere}
    moved = {one[3] for one in elsewhere} - queue
    key = {
        offset
        for key, offsets in truth.keys.items()
        for offset in offsets & sound
        if offset not in held.keys.get(key, ())
    }
    place = sound - held.places
    return Loss(len(queue), len(moved), len(key), len(place), len(queue | key | place))


class Gives:
    """What rstore gives out of repaired stores; one with the log, queues, index and config of another is read once.

    An index file has the time of its making in its name: nothing but the order of these names counts.
    """

    def __init__(self) -> None:
        self._seen: dict[object, Held] = {}

    def of(self, config: StoreConfig, case: Line, truth: Truth) -> Held:
        """Out of the repaired store of a case."""
        there = sorted(stores.contents(config.store_path_root_dir).items())
        index = tuple(digest for path, digest in there if path.startswith("index/"))
        rest = tuple(one for one in there if one[0].startswith(("commitlog", "consumequeue", "config", "abort")))
        key = corpora.is_golden(case), case["base"], index, rest
        if key not in self._seen:
            self._seen[key] = held_by_us(config, truth)
        return self._seen[key]


def held_by_us(config: StoreConfig, truth: Truth) -> Held:
    """Reads a store through the engine: every queue from end to end, every key, every place."""
    held = Held()
    with ReadStore(config, WholeFiles()) as store:
        for queue in store.queues():
            at = store.min_offset(*queue)
            while at < store.max_offset(*queue):
                got = store.get(*queue, at, 1)
                at = max(got.next_begin_offset, at + 1)
                for record in got.messages:
                    with contextlib.suppress(FormatError):  # a damaged one: it isn't held
                        held.in_queues.add((*queue, at - 1, decode(record).physical_offset))
        for topic, key in truth.keys:
            found = store.query(topic, key, MOST).messages
            held.keys[topic, key] = {decode(record).physical_offset for record in found}
        for offset, line in truth.records.items():
            with contextlib.suppress(FormatError):
                message = store.look_message(offset)
                if message is not None and message.crc_ok and _same(message, line):
                    held.places.add(offset)
    return held


def _same(message: Any, line: Line) -> bool:
    found = message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.body_crc
    return found == tuple(line[name] for name in ("topic", "queueId", "queueOffset", "physicalOffset", "bodyCRC"))


def held_by_apache(opened: Opened, truth: Truth) -> Held:
    """From the lines of Holds.java; nothing when the store wasn't opened."""
    held = Held()
    for line in opened.of_type("holds"):
        for at, offset in zip(line["offsets"], line["places"], strict=True):
            held.in_queues.add((line["topic"], line["queueId"], at, offset))
    for line in opened.of_type("places"):
        held.places.update(line["offsets"])
    for line in opened.of_type("keys"):
        held.keys = {key: set(offsets) for key, offsets in zip(sorted(truth.keys), line["offsets"], strict=True)}
    return held


def recorded(case: Line, truth: Truth, sound: frozenset[int]) -> Loss | None:
    """What a case's recorded outcome says of Apache's loss: outside of its log, of its queues; None if not opened.

    Of its queues only the ends are recorded, of its index nothing: `queue` takes a message for lost when its queue
    offset is outside of these ends.
    """
    if case["exit"] != 0:
        return None
    low, high = case["final"]["minPhyOffset"], case["final"]["maxPhyOffset"]
    names = sorted(int(name) for name in case["commitlogFiles"] if name.isdigit())
    size = corpora.sizes(case).commitlog_file
    kept = {offset for offset in sound if low <= offset < high and offset // size * size in names}
    ends: Mapping[tuple[str, int], corpus.Outcome] = corpus.apache_queues(case)
    nothing = corpus.Outcome()
    queue = set()
    for topic, queue_id, at, offset in truth.in_queues:
        end = ends.get((topic, queue_id), nothing)
        if offset in sound and (offset not in kept or not end.min_offset <= at < end.max_offset):
            queue.add(offset)
    return Loss(len(queue), 0, 0, len(sound - kept), len(queue | (sound - kept)))
