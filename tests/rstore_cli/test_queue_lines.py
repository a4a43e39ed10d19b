"""Many messages of a queue shown at once: what `get` prints without, to the last byte, on stdout and stderr."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("numba")

from engine.config import StoreConfig
from engine.format.queue_unit import UNIT_SIZE
from engine.log import unit_runs
from engine.read_store import ReadStore
from rstore_cli import queue_lines
from tests.conftest import Store
from tests.rstore_cli.conftest import Cli, Ran
from tests.support.wide import examples, sample

FEW = 1 << 40


def both(cli: Cli, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> tuple[Ran, int]:
    """What is printed, the same both ways; and how many messages were shown at once."""
    shown: list[int] = []
    show_sound = queue_lines.show_sound
    ran: list[Ran] = []
    for many in (FEW, 1):
        with monkeypatch.context() as patch:
            patch.setattr(queue_lines, "MANY", many)
            patch.setattr(queue_lines, "show_sound", lambda *args: shown.append(show_sound(*args)) or shown[-1])
            ran.append(cli(*words, "--json"))
    assert ran[1] == ran[0]
    return ran[0], sum(shown)


def queues_of(store: Path) -> list[tuple[str, int]]:
    with ReadStore(StoreConfig(store_path_root_dir=store)) as reader:
        return [(queue.topic, queue.queue_id) for queue in reader.queues()]


@pytest.mark.wide
@pytest.mark.parametrize(("first", "name"), [*enumerate(("clean-small", "crashed-small", "lmq", "transient-ext"))])
def test_sound_stores(first: int, name: str, fixture_store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_runs, "RUN_BYTES", 5000)
    store = fixture_store(name)
    at_once = 0
    every = 1 if name == "transient-ext" else 3  # it has few sound units
    for topic, queue in sample(queues_of(store)[:12], every, first):
        for words in (("--count", "100000"), ("--count", "7"), ("3", "--count", "11"), ("9999",)):
            ran, shown = both(cli, monkeypatch, "--store", store, "get", topic, str(queue), *words)
            at_once += shown
            assert shown in (0, len(ran.lines))
    assert at_once > 20


@pytest.mark.wide
@pytest.mark.leaves
@pytest.mark.parametrize("seed", range(examples(40)))
def test_damaged_stores(seed: int, fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(unit_runs, "RUN_BYTES", chance.choice((1, 3000, 1 << 20)))
    monkeypatch.setattr(unit_runs, "_NEAR", chance.choice((0, 200, 1 << 16)))
    store = fixture_copy(chance.choice(("clean-small", "lmq")))
    topic, queue = chance.choice(queues_of(store))
    damage_units(chance, store / "consumequeue" / topic / str(queue))
    damage_log(chance, store)
    for words in (("--count", "100000"), ("--count", "9"), ("5", "--count", "50")):
        both(cli, monkeypatch, "--store", store, "get", topic, str(queue), *words)


def damage_units(chance: random.Random, directory: Path) -> None:
    """Some units point elsewhere, or name another size."""
    for path in sorted(directory.iterdir()):
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(3)):
            at = chance.randrange(min(len(data) // UNIT_SIZE, 60)) * UNIT_SIZE
            other = chance.randrange(min(len(data) // UNIT_SIZE, 60)) * UNIT_SIZE
            match chance.randrange(4):
                case 0:
                    data[at : at + UNIT_SIZE] = data[other : other + UNIT_SIZE]
                case 1:
                    data[at + 7] ^= 1 << chance.randrange(8)
                case 2:
                    data[at + 11] ^= 1 << chance.randrange(8)
                case _:
                    data[at : at + UNIT_SIZE] = chance.randbytes(UNIT_SIZE)
        path.write_bytes(data)


def damage_log(chance: random.Random, store: Path) -> None:
    """A byte is another one, a piece is zeros or another piece, a file is missing."""
    files = sorted((store / "commitlog").iterdir())
    for _ in range(chance.randrange(4)):
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        at, size = chance.randrange(len(data)), chance.choice((1, 1, 100, 3000))
        other = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + size] = bytes(len(data[at : at + size]))
            case _:
                piece = data[other : other + size]
                data[at : at + len(piece)] = piece
        path.write_bytes(bytes(data[: path.stat().st_size]).ljust(path.stat().st_size, b"\0"))
    if len(files) > 2 and chance.random() < 0.15:
        chance.choice(files[:-1]).unlink()
