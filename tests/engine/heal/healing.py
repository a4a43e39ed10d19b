"""Damage of a log by a seed, with the undamaged log as the truth; and heals of it.

Where records lie is read here, from the bytes: damage that a CRC shows is put into bodies and heads, and whatever else
is damaged is damaged by whole pages, so that the record that holds it shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

from engine.config import of_store
from engine.files.disk import Disk
from engine.heal.change import HealChange
from engine.heal.plan import HealPlan
from engine.heal.sources import HealSource, RepositorySource, StoreSource
from engine.repair.change import Ending, Outcome, carry_out
from engine.repair.salvage.undo import plan_undo, undo
from tests.engine.backup.repositories import SECRET, Repository, back_up, new
from tests.support import stores

SIZE = 131072
_MAGIC = b"\xda\xa3\x20\xa7"
KINDS = ("body", "head", "page", "zeros", "missing", "short")


def log_of(store: Path) -> dict[str, bytes]:
    """The files of the log that hold anything."""
    held = {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
    return {name: data for name, data in held.items() if data.strip(b"\0")}


def records_of(store: Path) -> list[tuple[int, int, int]]:
    """Physical offset, bytes, and bytes of the body of each record, in log order."""
    return [(offset, size, body) for offset, size, _, body in _records_of(store)]


def _records_of(store: Path) -> list[tuple[int, int, int, int]]:
    """The same, with the place of the body in the record: either host may be of 16 bytes instead of 4."""
    records = []
    for path in sorted((store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while data[at + 4 : at + 8] == _MAGIC:
            size, flags = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 36 : at + 40], "big")
            body = 88 + 12 * (bool(flags & 0x10) + bool(flags & 0x20))
            records.append((int(path.name) + at, size, body, int.from_bytes(data[at + body - 4 : at + body], "big")))
            at += size
    return records


def write(store: Path, offset: int, data: bytes) -> None:
    """Bytes of the log, as far as its file goes."""
    path = store / "commitlog" / f"{offset // SIZE * SIZE:020d}"
    if not path.exists():
        return
    room = path.stat().st_size - offset % SIZE
    with path.open("r+b") as file:
        file.seek(offset % SIZE)
        file.write(data[: max(0, room)])


def hurt(store: Path, records: list[tuple[int, int, int, int]], draw: Random, kind: str) -> None:
    """One damage, with sound records before and after it: of the last records none is touched."""
    offset, size, begin, body = draw.choice(records[1:-30])
    place = store / "commitlog" / f"{offset // SIZE * SIZE:020d}"
    if kind == "body" and body:
        at = offset + begin + draw.randrange(body)
        write(store, at, draw.randbytes(1) + b"\xff" * draw.randrange(3))
    elif kind == "head":
        write(store, offset + draw.choice((0, 4, 28)), draw.randbytes(4))
    elif kind in ("page", "zeros"):
        page = offset // 4096 * 4096
        write(store, page, draw.randbytes(4096) if kind == "page" else bytes(4096))
    elif kind == "missing" and SIZE <= offset < records[-30][0] // SIZE * SIZE and place.exists():
        place.unlink()
    elif kind == "short" and offset < records[-30][0] // SIZE * SIZE and place.exists():
        os.truncate(place, offset % SIZE + draw.randrange(size))


def bridge(store: Path) -> None:
    """`rstore recover --bridge`."""
    from engine.repair.recover.change import RecoverChange

    carry_out(RecoverChange(bridge=True), Disk(), of_store(store))


def recovered(store: Path) -> Path:
    """The store, after a plain recovery."""
    from engine.repair.recover.change import RecoverChange

    carry_out(RecoverChange(), Disk(), of_store(store))
    return store


def heal(store: Path, *sources: HealSource | Path | Repository, disk: Disk | None = None) -> Outcome[HealPlan]:
    """`rstore heal -y` from stores, repositories, or what else is given."""
    opened = tuple(as_source(one, store) for one in sources)
    try:
        return carry_out(HealChange(opened), disk or Disk(), of_store(store))
    finally:
        for one in opened:
            one.close()


def as_source(one: HealSource | Path | Repository, healed: Path) -> HealSource:
    if isinstance(one, Path):
        return StoreSource(Disk(), str(one), str(healed))
    return RepositorySource(one) if isinstance(one, Repository) else one


def take_back(store: Path) -> None:
    """`rstore undo`."""
    undo(Disk(), plan_undo(Disk(), of_store(store)))


def assert_healed(outcome: Outcome[HealPlan], store: Path, truth: dict[str, bytes]) -> None:
    """All of it was written, and the log is the undamaged one."""
    assert outcome.ending is Ending.APPLIED
    assert not outcome.plan.left, [one.why for one in outcome.plan.left]
    assert log_of(store) == truth


def repository(place: Path, store: Path, secret: bytes | None = SECRET) -> Repository:
    """A repository with a snapshot of a store."""
    made = new(place, secret)
    back_up(made, store)
    return made


def damaged(store: Path, to: Path, draw: Random, kinds: Iterable[str]) -> Path:
    """A damaged copy of a store."""
    records = _records_of(store)
    copy = stores.copy(store, to)
    for kind in kinds:
        hurt(copy, records, draw, kind)
    return copy
