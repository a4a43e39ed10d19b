"""Stores whose commit log files are swapped, renamed, copied, cut short, made longer: by a seed, with what they hold.

The truth is independent of the engine: the records that were written, by place; and which of them some file in the
commit log's directories still holds, byte for byte, at their position in a segment.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.message import Message
from engine.format.names import segment_offset
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.support.logs import build

SIZE = 8192
FAR = 5 << 40
BODY = 88
"""Where a record's body begins, behind its length."""


@dataclass
class Made:
    """A store that was whole, and the records that were written: physical offset → (queue, queue offset, bytes)."""

    root: Path
    directories: tuple[Path, ...]
    records: dict[int, tuple[int, int, bytes]]
    done: list[str] = field(default_factory=list)

    @property
    def config(self) -> StoreConfig:
        """Its settings."""
        return settings(self.root, several=len(self.directories) > 1)

    @property
    def files(self) -> list[Path]:
        """What is in the commit log's directories."""
        return sorted(path for directory in self.directories for path in directory.iterdir() if path.is_file())

    def copy(self, to: Path) -> Made:
        """Another one, to change."""
        shutil.copytree(self.root, to)
        directories = tuple(to / directory.relative_to(self.root) for directory in self.directories)
        return Made(to, directories, self.records)

    def held(self) -> dict[int, list[Path]]:
        """Which records are in a file of the log's directories, at their position in it."""
        found: dict[int, list[Path]] = {}
        content = {path: path.read_bytes() for path in self.files}
        for offset, (_, _, record) in self.records.items():
            at = offset % SIZE
            holders = [path for path, data in content.items() if data[at : at + len(record)] == record]
            if holders:
                found[offset] = holders
        return found


def settings(root: Path, *, several: bool = False) -> StoreConfig:
    """Small files."""
    paths = ",".join(str(root / name) for name in ("commitlog", "more")) if several else None
    return StoreConfig(store_path_root_dir=root, store_path_commit_log=paths).with_changes(
        mapped_file_size_commit_log=SIZE,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=40,
        max_index_num=160,
    )


def make(
    root: Path, *, first: int = 0, several: bool = False, segments: int = 6, seed: int = 0, body: int = 300
) -> Made:
    """A store of so many segments, the last one not full; bodies are of 20 to `body` bytes."""
    rng = Random(seed)
    some = [
        Message(
            "T", rng.randbytes(rng.randrange(20, body)), queue_id=i % 3, properties={"KEYS": f"key{i}", "TAGS": "a"}
        )
        for i in range(segments * SIZE // (body // 2 + 150))
    ]
    built = build(some, SIZE, first)
    root.mkdir()
    directories = tuple(root / name for name in (("commitlog", "more") if several else ("commitlog",)))
    for directory in directories:
        directory.mkdir()
    for number, (offset, data) in enumerate(sorted(built.log.files.items())):
        (directories[number % len(directories)] / f"{offset:020d}").write_bytes(data)
    counts: dict[int, int] = {}
    records = {}
    for offset, record, put in zip(built.offsets, built.records, some, strict=True):
        number = counts.get(put.queue_id, 0)
        counts[put.queue_id] = number + 1
        records[offset] = (put.queue_id, number, record)
    made = Made(root, directories, records)
    disk = Disk(mapped=False)
    apply(disk, plan_recover(disk, made.config), keep=False)
    return made


def swap_names(one: Path, two: Path) -> None:
    """Two files change names."""
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def add_shifted(directory: Path, lost: int = 1000) -> None:
    """A file whose records can't be of this log: it lost its first bytes, so no segment begins where they say."""
    data = min(path for path in directory.iterdir() if path.name.isdigit()).read_bytes()
    (directory / "shifted").write_bytes(data[lost:])


# --- damage -----------------------------------------------------------------------------------------------------------


def swap(made: Made, rng: Random) -> None:
    """Two files change names."""
    one, two = rng.sample(made.files, 2)
    swap_names(one, two)
    made.done.append(f"swap {one.name} {two.name}")


def turn(made: Made, rng: Random) -> None:
    """Three files change names in a circle."""
    some = rng.sample(made.files, 3)
    for path in some:
        path.rename(made.root / f"aside-{path.name}")
    for path, to in zip(some, [*some[1:], some[0]], strict=True):
        (made.root / f"aside-{path.name}").rename(to)
    made.done.append(f"turn {[path.name for path in some]}")


def odd_name(name: str, rng: Random) -> str:
    """As an rsync or a hand names it."""
    number = segment_offset(name) or 0
    return rng.choice(
        [f".{name}.Xy12ab", f"{name}.bak", f"{name}~", name[1:], f"{number + 100:020d}", "data", f"{name}.filepart"]
    )


def rename(made: Made, rng: Random) -> None:
    """A file gets an odd name."""
    one = rng.choice(made.files)
    to = one.with_name(odd_name(one.name, rng))
    if not to.exists():
        one.rename(to)
        made.done.append(f"rename {one.name} {to.name}")


def elsewhere(made: Made, rng: Random) -> None:
    """A file gets the name of a segment that is not there (a wrong one)."""
    one = rng.choice(made.files)
    number = segment_offset(one.name)
    if number is not None:
        to = one.with_name(f"{number + SIZE * rng.choice([3, 20, 200]):020d}")
        if not any((directory / to.name).exists() for directory in made.directories):
            one.rename(to)
            made.done.append(f"elsewhere {one.name} {to.name}")


def twice(made: Made, rng: Random) -> None:
    """A file is there a second time."""
    one = rng.choice(made.files)
    to = one.with_name(odd_name(one.name, rng))
    if rng.random() < 0.3:
        to = one.with_name(f"{SIZE * rng.randrange(30) + FAR:020d}")
    if not to.exists():
        shutil.copy2(one, to)
        made.done.append(f"twice {one.name} {to.name}")


def shorter(made: Made, rng: Random) -> None:
    """A copy that was interrupted."""
    one = rng.choice(made.files)
    size = rng.choice([0, 1, 4096, rng.randrange(one.stat().st_size + 1)])
    os.truncate(one, min(size, one.stat().st_size))
    made.done.append(f"shorter {one.name} {size}")


def longer(made: Made, rng: Random) -> None:
    """More behind the end: zeros, or anything."""
    one = rng.choice(made.files)
    more = rng.choice([bytes(rng.randrange(1, 9000)), rng.randbytes(rng.randrange(1, 9000))])
    with one.open("ab") as file:
        file.write(more)
    made.done.append(f"longer {one.name} {len(more)} {'data' if any(more) else 'zeros'}")


def flip(made: Made, rng: Random) -> None:
    """A bit of a message's body is another one."""
    held = made.held()
    if held:
        offset = rng.choice(sorted(held))
        one = rng.choice(held[offset])
        data = bytearray(one.read_bytes())
        data[offset % SIZE + BODY + rng.randrange(20)] ^= 1 << rng.randrange(8)
        one.write_bytes(data)
        made.done.append(f"flip {one.name} {offset}")


DAMAGES = (swap, turn, rename, elsewhere, twice, shorter, longer)


def damage(made: Made, seed: int) -> None:
    """One to three damages to the files of the log, and a flipped bit at times."""
    rng = Random(seed)
    for _ in range(rng.randrange(1, 4)):
        rng.choice(DAMAGES)(made, rng)
    if rng.random() < 0.3:
        flip(made, rng)
