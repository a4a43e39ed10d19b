"""Damage of stores with batch queues, by seed, and the judgement of what a recovery makes of each."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from tests.support import batch_stores, stores
from tests.support.batch_stores import FILE_SIZE, FILE_UNITS, SEGMENT, UNIT, Written
from tests.support.checking import check_clean

HEADER = 88
"""Bytes of a record before its body."""
WHOLE_UNITS = {"expire", "expire_files_too", "remove_file", "tear", "grow", "empty_last", "remove_queue", "after_end"}
"""Damage that leaves each unit as it was, at its place, or none of it."""


@dataclass
class Truth:
    """What the damage left. Physical offsets.

    `lost`: of records that are damaged; `end`: after the last record; `begin`: of the first segment. `only_valid`:
    units of expired records may be missing, and the queue's first number is free.
    """

    written: Written
    lost: set[int] = field(default_factory=set)
    end: int = 1 << 62
    begin: int = 0
    touched: list[str] = field(default_factory=list)


Damage = Callable[[random.Random, Truth], None]


def config(root: Path) -> StoreConfig:
    """The settings of such a store."""
    given = StoreConfig(store_path_root_dir=root, other={"mapperFileSizeBatchConsumeQueue": str(FILE_SIZE)})
    return given.with_changes(
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50,
        max_index_num=400,
    )


def queue_files(truth: Truth) -> list[Path]:
    return sorted(path for path in (truth.written.root / "batchconsumequeue").rglob("0*") if path.is_file())


def flip(chance: random.Random, truth: Truth) -> None:
    for _ in range(chance.randint(1, 6)):
        path = chance.choice(queue_files(truth))
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def zeros(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth))
    data = bytearray(path.read_bytes())
    at, length = chance.randrange(len(data)), chance.randint(1, 3 * UNIT.size)
    data[at : at + length] = bytes(len(data[at : at + length]))
    path.write_bytes(data)


def noise(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth))
    data = bytearray(path.read_bytes())
    at, length = chance.randrange(len(data)), chance.randint(1, 2 * UNIT.size)
    data[at : at + length] = chance.randbytes(len(data[at : at + length]))
    path.write_bytes(data)


def remove_file(chance: random.Random, truth: Truth) -> None:
    chance.choice(queue_files(truth)).unlink()


def tear(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth))
    os.truncate(path, chance.choice((0, 1, UNIT.size, chance.randrange(FILE_SIZE), FILE_SIZE - 1)))


def grow(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth))
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randint(1, FILE_SIZE)))


def empty_last(chance: random.Random, truth: Truth) -> None:
    path = chance.choice([max(path.parent.glob("0*")) for path in queue_files(truth)])
    path.with_name(f"{int(path.name) + FILE_SIZE * chance.choice((1, 1, 2)):020}").write_bytes(
        bytes(chance.choice((0, 0, FILE_SIZE)))
    )


def rename(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth))
    other = chance.choice((FILE_SIZE, 7 * FILE_SIZE, 10**12 * FILE_SIZE, int(path.name) + UNIT.size))
    path.rename(path.with_name(f"{other:020}"))


def swap(chance: random.Random, truth: Truth) -> None:
    one, other = chance.choice(queue_files(truth)), chance.choice(queue_files(truth))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def swap_queues(chance: random.Random, truth: Truth) -> None:
    base = truth.written.root / "batchconsumequeue"
    one, other = base / "B/0", chance.choice((base / "B/1", base / "Solo/0"))
    if one.exists() and other.exists():
        one.rename(base / "aside")
        other.rename(one)
        (base / "aside").rename(other)


def remove_queue(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth)).parent
    shutil.rmtree(chance.choice((path, path.parent, path.parents[1])))


def after_end(chance: random.Random, truth: Truth) -> None:
    path = chance.choice([max(one for one in path.parent.glob("0*") if one.is_file()) for path in queue_files(truth)])
    data = path.read_bytes().rstrip(b"\0")
    more = -(-len(data) // UNIT.size) * UNIT.size
    unit = UNIT.pack(1 << 40, 100, 0, 0, chance.randrange(1000), 2, -1, 0)
    path.write_bytes((data.ljust(more, b"\0") + unit * chance.randint(1, 3)).ljust(FILE_SIZE, b"\0")[:FILE_SIZE])


def strays(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth)).parent
    (path / "x.tmp").write_bytes(b"1")
    (path / f"{FILE_SIZE * 40:020}").mkdir(exist_ok=True)


def shift_units(chance: random.Random, truth: Truth) -> None:
    path = chance.choice(queue_files(truth))
    data = path.read_bytes()
    at = chance.randrange(FILE_UNITS) * UNIT.size
    if chance.random() < 0.5:
        data = data[:at] + data[at + UNIT.size :]
    else:
        data = data[:at] + data[at : at + UNIT.size] + data[at:]
    path.write_bytes(data[:FILE_SIZE].ljust(FILE_SIZE, b"\0"))


def copy_units(chance: random.Random, truth: Truth) -> None:
    one, other = chance.choice(queue_files(truth)), chance.choice(queue_files(truth))
    many = chance.randint(1, FILE_UNITS) * UNIT.size
    other.write_bytes(one.read_bytes()[:many] + other.read_bytes()[many:])


QUEUE_DAMAGE: tuple[Damage, ...] = (
    flip, flip, zeros, noise, remove_file, tear, tear, grow, empty_last, rename, swap, swap_queues, remove_queue,
    after_end, strays, shift_units, copy_units,
)  # fmt: skip


def segments(truth: Truth) -> list[Path]:
    return sorted((truth.written.root / "commitlog").iterdir())


def cut_tail(chance: random.Random, truth: Truth) -> None:
    """The log ends in a record's header, with zeros after it."""
    puts = truth.written.puts
    put = chance.choice(puts[len(puts) // 2 :])
    truth.end = put.physical
    offset = put.physical - put.physical % SEGMENT
    for path in segments(truth):
        if int(path.name) > offset:
            path.unlink()
    path = truth.written.root / "commitlog" / f"{offset:020}"
    at = put.physical - offset + chance.randrange(HEADER)
    path.write_bytes(path.read_bytes()[:at].ljust(SEGMENT, b"\0"))
    (truth.written.root / "abort").write_bytes(b"")


def damage_bodies(chance: random.Random, truth: Truth) -> None:
    for put in chance.sample(truth.written.puts[:-1], chance.randint(1, 4)):
        offset = put.physical - put.physical % SEGMENT
        path = truth.written.root / "commitlog" / f"{offset:020}"
        data = bytearray(path.read_bytes())
        data[put.physical - offset + 88] ^= 0x55
        path.write_bytes(data)
        truth.lost.add(put.physical)


def expire(chance: random.Random, truth: Truth) -> None:
    paths = segments(truth)
    for path in paths[: chance.randint(1, max(1, len(paths) - 1))]:
        if path != paths[-1]:
            path.unlink()
            truth.begin = int(path.name) + SEGMENT


def expire_files_too(chance: random.Random, truth: Truth) -> None:
    expire(chance, truth)
    for directory in {path.parent for path in queue_files(truth)}:
        for path in sorted(directory.iterdir())[:-1]:
            units = path.read_bytes()
            if UNIT.unpack_from(units, FILE_SIZE - UNIT.size)[0] >= truth.begin:
                break
            path.unlink()


def headers(chance: random.Random, truth: Truth) -> None:
    """A bit of queueId or queueOffset of one record, in the middle of its queue."""
    queues = [[put for put in truth.written.puts if (put.topic, put.queue) == one] for one in truth.written.queues]
    mine = chance.choice([puts for puts in queues if len(puts) > 2])
    put = chance.choice(mine[1:-1])
    offset = put.physical - put.physical % SEGMENT
    path = truth.written.root / "commitlog" / f"{offset:020}"
    data = bytearray(path.read_bytes())
    start, length = chance.choice(((12, 4), (20, 8)))
    data[put.physical - offset + start + chance.randrange(length)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def damage(root: Path, seed: int) -> Truth:
    """A store, damaged."""
    chance = random.Random(seed)
    truth = Truth(batch_stores.write(root, seed % 50, chance.choice((40, 160, 160))))
    apply(Disk(), plan_recover(Disk(), config(root)))
    shutil.rmtree(root / "salvage")
    kind = chance.choice(("queues", "queues", "queues", "log", "expired", "header"))
    some: list[Damage] = []
    if kind == "log":
        some.append(chance.choice((cut_tail, damage_bodies)))
    elif kind == "expired":
        some.append(chance.choice((expire, expire_files_too)))
    elif kind == "header":
        some.append(headers)
    if kind != "header" and (kind == "queues" or chance.random() < 0.6):
        some += chance.choices(QUEUE_DAMAGE, k=chance.choice((1, 1, 1, 2, 3)))
    for one in some:
        if one in QUEUE_DAMAGE and not queue_files(truth):
            continue
        truth.touched.append(one.__name__)
        one(chance, truth)
    if chance.random() < 0.5:
        (root / "abort").write_bytes(b"")
    return truth


def judge(root: Path, seed: int) -> None:
    """Damage a store, recover it, compare each batch queue with the truth, recover again, take it back."""
    truth = damage(root, seed)
    note = f"{seed}: {truth.touched}"
    before = files(root)
    plan = plan_recover(Disk(), config(root))
    bridge = plan.refusal is not None
    if bridge:
        assert truth.lost, (note, plan.refusal)
        plan = plan_recover(Disk(), config(root), bridge=True)
    assert plan.refusal is None, (note, plan.refusal)
    applied = apply(Disk(), plan)
    compare(truth, note, bridged=bridge)
    check_clean(root, config(root))
    again = plan_recover(Disk(), config(root))
    assert not again.would_change, (note, again.problems, [q.queue for q in again.every_queue if q.changed])
    if applied.salvage is not None:
        undo(Disk(), plan_undo(Disk(), config(root)))
        assert files(root) == before, note


def compare(truth: Truth, note: str, *, bridged: bool) -> None:
    """Each queue has the units of the records that are left, behind those of expired ones."""
    for queue in truth.written.queues:
        first, units = batch_stores.held(truth.written.root, queue)
        live = [unit for unit in units if truth.begin <= UNIT.unpack(unit)[0]]
        expired = units[: len(units) - len(live)]
        wanted = [
            unit
            for unit in truth.written.units(*queue, truth.begin)
            if UNIT.unpack(unit)[0] < truth.end and UNIT.unpack(unit)[0] not in truth.lost
        ]
        kept = [unit for unit in live if bridged or UNIT.unpack(unit)[0] not in truth.lost]
        assert kept == wanted, (note, queue, [UNIT.unpack(u) for u in kept], [UNIT.unpack(u) for u in wanted])
        assert units[len(expired) :] == live, (note, queue)
        old = truth.written.units(*queue)
        old = old[: len(old) - len(truth.written.units(*queue, truth.begin))]
        if WHOLE_UNITS.issuperset(truth.touched):  # else what is left of one may be any
            assert [unit for unit in old if unit in expired] == expired, (note, queue)
        if not truth.begin:
            assert first == 0, (note, queue, first)


def files(root: Path) -> dict[str, str]:
    """Every file (with a digest) and directory, but for what repairs saved, and the lock."""
    return {path: what for path, what in stores.contents(root).items() if path.split("/")[0] not in ("salvage", "lock")}
