"""The power is cut under a daemon whose clients send: whatever pages were not synced, what was acknowledged is there.

The cut is as in test_power_cut.py; here it may fall into the tables of config/, too. After it a daemon starts on the
copy, knows every topic that it has acknowledged messages of, and gives them to a consumer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.files.faults import FaultyDisk
from engine.files.operations import Doing
from engine.format import properties
from engine.format.message import decode
from engine.read_store import ReadStore
from engine.wire.codes import RequestCode
from tests.engine.broker.client import Client, daemon, pull_fields
from tests.engine.opening import assert_sound
from tests.faults.ledger import settings
from tests.faults.test_power_cut import repair

CLIENTS = 8
SENDS = 40
CUTS = 6


@dataclass(frozen=True)
class Sent:
    """An acknowledged message."""

    topic: str
    key: str
    kind: str
    physical_offset: int

    @property
    def end(self) -> int:
        return self.physical_offset + 91  # at least: the fixed part of a record


@dataclass(frozen=True)
class Cut:
    root: Path
    acknowledged: tuple[Sent, ...]


@dataclass
class Cutting:
    """Copies made just before certain changes, whichever thread makes them."""

    disk: FaultyDisk
    into: Path
    rng: random.Random
    acknowledged: list[Sent] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def cut(self) -> None:
        acknowledged = tuple(self.acknowledged)
        root = self.into / f"cut{next(self._numbers)}"
        self.disk.crash_copy(str(root), self.rng, "random", torn=self.rng.random() < 0.5)
        self.cuts.append(Cut(root, acknowledged))


class CuttingDisk(FaultyDisk):
    """See Cutting."""

    def __init__(self, root: Path, into: Path, rng: random.Random, at: set[int]) -> None:
        super().__init__(str(root))
        self.cutting = Cutting(self, into, rng)
        self._cuts = at

    def begin(self, doing: Doing):
        with self._model_lock:
            if self.changes_seen in self._cuts:
                self._cuts.discard(self.changes_seen)
                self.cutting.cut()
            return super().begin(doing)


async def send(address: str, number: int, cutting: Cutting) -> None:
    client = await Client.to(address)
    for turn in range(SENDS):
        key = f"k{number}-{turn}"
        topic, kind = f"Topic{(number + turn) % 3}", ("plain", "plain", "delayed", "half")[turn % 4]
        said = {"UNIQ_KEY": key, "KEYS": key}
        said |= {"DELAY": "1"} if kind == "delayed" else {"TRAN_MSG": "true", "PGROUP": "P"} if kind == "half" else {}
        answer = await client.put(topic, b"x" * (turn * 40), turn % 2, properties.join(said))
        assert answer.code == 0, answer
        cutting.acknowledged.append(Sent(topic, key, kind, int(answer.fields["msgId"][-16:], 16)))
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": f"G{number}", "topic": topic, "queueId": "0", "commitOffset": str(turn)},
        )
    client.writer.close()


async def consumed(address: str, topics: set[str]) -> set[str]:
    """The keys that a consumer gets."""
    client, found = await Client.to(address), set()
    for topic in topics:
        for queue_id in range(2):
            at, code = 0, 0
            while code == 0:
                answer = await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, at, queue_id=queue_id))
                code, records, place = answer.code, bytes(answer.body), 0
                assert code in (0, 19), answer
                at = int(answer.fields["nextBeginOffset"])
                while place < len(records):
                    message = decode(records, place)
                    place += message.total_size
                    found.add(message.properties.get("KEYS", ""))  # one that nobody was told of may lack its own
    client.writer.close()
    return found


@pytest.mark.leaves
@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_is_consumed_after_a_power_cut(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    root = tmp_path / "store"
    root.mkdir()
    disk = CuttingDisk(root, tmp_path, rng, {rng.randrange(10, 250) for _ in range(CUTS)})

    async def load() -> None:
        more = {"flush_offsets_ms": 20}
        async with daemon(root, disk=disk, config=settings(root), **more) as found:
            await asyncio.gather(*(send(found.listening.broker, one, disk.cutting) for one in range(CLIENTS)))
            disk.cutting.cut()

    async def look(cut: Cut) -> None:
        wanted = {one.key for one in cut.acknowledged if one.kind == "plain"}
        async with daemon(cut.root, config=settings(cut.root)) as found:
            topics = {one.topic for one in cut.acknowledged if one.kind == "plain"}
            assert not wanted - await consumed(found.listening.broker, topics)

    asyncio.run(load())
    assert len(disk.cutting.cuts) > 2, disk.changes_seen
    for cut in disk.cutting.cuts:
        repair(cut.root, cut)  # type: ignore[arg-type]
        with ReadStore(settings(cut.root)) as store:
            for one in cut.acknowledged:
                there = store.look_message(one.physical_offset)
                assert there is not None, one
                assert there.properties["KEYS"] == one.key
        asyncio.run(look(cut))
        assert_sound(settings(cut.root))
