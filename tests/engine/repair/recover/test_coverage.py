"""Units that are lost or wrong before recovery's start are found by the units around them alone.

A store of many small segments is made, some of its units are destroyed at random (zeroed, garbled, pointed elsewhere,
whole files removed), and a normal recovery, which reads the last three segments only, must bring back every byte.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format import sysflag
from engine.format.message import Message
from engine.format.queue_unit import UNIT_SIZE
from engine.repair.recover import planner
from engine.repair.recover.apply import apply
from engine.repair.recover.log_end import NORMAL_FILES
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.support import stores
from tests.support.wide import sample

FILE = 8192
KINDS = (sysflag.TRANSACTION_NONE,) * 6 + (
    sysflag.TRANSACTION_PREPARED,
    sysflag.TRANSACTION_COMMIT,
    sysflag.TRANSACTION_ROLLBACK,
)

KNOWN = ("log-accepted", "record-suspect", "unit-witness", "index-witness")


def settings(root: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root).with_changes(
        mapped_file_size_commit_log=FILE,
        mapped_file_size_consume_queue=20 * UNIT_SIZE,
        max_hash_slot_num=50,
        max_index_num=200,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    rng = random.Random(5)
    with MessageStore.open(settings(root)) as store:
        for i in range(600):
            topic = rng.choice(["A", "A", "A", "B", "Rare"])
            message = Message(topic, rng.randbytes(rng.randrange(200)), rng.randrange(3), {"KEYS": f"k{i}"})
            assert store.put(Message(**{**fields(message), "sys_flag": rng.choice(KINDS)})).ok
    assert len(list((root / "commitlog").iterdir())) > 3 * NORMAL_FILES
    return root


def fields(message: Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in ("topic", "body", "queue_id", "properties")}


def queues(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in (root / "consumequeue").rglob("*") if p.is_file()}


def destroy(root: Path, rng: random.Random) -> None:
    files = sorted(p for p in (root / "consumequeue").rglob("*") if p.is_file())
    for _ in range(rng.randrange(1, 6)):
        path = rng.choice(files)
        if not path.exists():
            continue
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data) // UNIT_SIZE) * UNIT_SIZE
        kind = rng.randrange(5)
        if kind == 0:
            path.unlink()
            continue
        if kind == 1:
            data[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
        elif kind == 2:
            data[at : at + 12] = rng.randbytes(12)
        elif kind == 3:  # a few bytes too low, or of another size
            data[at + rng.choice((7, 11))] ^= 1 << rng.randrange(5)
        else:
            data[at:] = bytes(len(data) - at)
        path.write_bytes(data)


@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(60), 3))
def test_every_byte_comes_back(made: Path, tmp_path: Path, seed: int) -> None:
    root = stores.copy(made, tmp_path / "store")
    before = queues(root)
    destroy(root, random.Random(seed))
    plan = plan_recover(Disk(), settings(root))
    assert plan.refusal is None
    apply(Disk(), plan)
    assert queues(root) == before
    assert not plan_recover(Disk(), settings(root)).changed


def test_records_that_units_are_held_against_are_read_in_the_order_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many queues a disk must not seek for each of them."""
    root = tmp_path / "store"
    with MessageStore.open(settings(root)) as store:
        for i in range(500):
            assert store.put(Message(f"T{i * 7 % 40}", b"x" * 100, i % 3)).ok
    read: list[int] = []
    units_at = planner.Planner._units_at

    def noted(self: planner.Planner, offset: int) -> tuple[int, list[tuple[int, int]]] | None:
        read.append(offset)
        return units_at(self, offset)

    monkeypatch.setattr(planner.Planner, "_units_at", noted)
    plan = plan_recover(Disk(), settings(root))
    assert not plan.changed
    assert len(read) > 100
    assert read == sorted(read)


@pytest.mark.leaves("record-displaced")
def test_the_part_before_is_not_read_when_the_units_agree(made: Path, tmp_path: Path) -> None:
    """Only a damaged record would tell: the log before the start is destroyed, and recovery doesn't notice."""
    root = stores.copy(made, tmp_path / "store")
    first = min((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[200] ^= 0xFF
    first.write_bytes(data)
    plan = plan_recover(Disk(), settings(root))
    assert plan.refusal is None
    assert not plan.log.damage_before


@pytest.mark.leaves("index-witness", "record-suspect")
@pytest.mark.parametrize("seed", range(12))
def test_damage_that_a_cut_went_on_around_is_known_to_the_next_run(made: Path, tmp_path: Path, seed: int) -> None:
    """A queue is gone, and bytes are inserted in a segment before: the first run sees the damage in the holes that the
    lost queue leaves, the next one where it begins.
    """
    rng = random.Random(seed)
    root = stores.copy(made, tmp_path / "store")
    first = min((root / "commitlog").iterdir())
    data = first.read_bytes()
    at = rng.randrange(len(data) // 4, len(data) * 3 // 4)
    first.write_bytes((data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:])[: len(data)])
    shutil.rmtree(root / "consumequeue" / rng.choice(["A", "B", "Rare"]) / str(rng.randrange(3)))
    plan = plan_recover(Disk(), settings(root), cut=True)
    assert plan.log.damage_before
    apply(Disk(), plan)
    again = plan_recover(Disk(), settings(root))
    assert again.refusal is None
    assert not again.changed
