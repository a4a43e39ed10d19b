"""Every page of twenty damaged stores: an answer or one sentence, no byte written, and a record's place found by its
bytes, wherever one looks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from engine.config import StoreConfig, of_store
from engine.console.options import ConsoleOptions
from engine.console.pages.store_log import BACK
from engine.files.disk import Disk
from engine.format.message import Message
from engine.inspect.dump.dump import dump_index, dump_log
from engine.store import MessageStore
from tests.support import stores
from tests.support.consoles import console, store_pages
from tests.support.counting import CountingDisk
from tests.support.wide import sample

Store = Callable[[str], Path]
SEEDS = 20
PLACES = 12


def damage(root: Path, seed: int) -> None:
    """One to three things that happen to files: bytes overwritten, a file cut, emptied, deleted, or made of noise."""
    chance = random.Random(f"console {seed}")
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    for path in chance.sample(files, chance.randint(1, 3)):
        size = path.stat().st_size
        match chance.randrange(5):
            case 0 if size > 8:
                with path.open("r+b") as file:
                    file.seek(chance.randrange(size - 8))
                    file.write(chance.randbytes(8))
            case 1 if size:
                with path.open("r+b") as file:
                    file.truncate(chance.randrange(size))
            case 2:
                path.write_bytes(b"")
            case 3:
                path.unlink()
            case _:
                path.write_bytes(chance.randbytes(min(size, 5000)))


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("seed", [*sample(range(0, SEEDS, 2), 2), *sample(range(1, SEEDS, 2), 2)])
def test_every_page_of_a_damaged_store_answers(seed: int, fixture_copy: Store) -> None:
    root = fixture_copy("crashed-small" if seed % 2 else "clean-small")
    damage(root, seed)
    before = stores.snapshot(root)
    config = replace(of_store(root, None), typed=("--store", str(root)))
    with console(ConsoleOptions(store=config)) as browser:
        for name in ("check", "verify-crc", "plan-start", "recover"):
            run = browser.run(name)
            assert run["answer"] is not None or run["error"], name
            assert "bug in rstore" not in str(run["hint"]), run
        for path, answer in store_pages(browser).items():
            assert answer.status < 500, (path, answer.words)
            assert "Traceback" not in answer.text
    assert stores.snapshot(root) == before


def test_records_are_found_from_any_offset(fixture_store: Store) -> None:
    """From the middle of a record on, what is shown begins with the next one, as the chain from the start has it."""
    root = fixture_store("clean-small")
    with console(ConsoleOptions(store=of_store(root, None))) as browser:
        chain: list[int] = []
        at = 0
        while len(chain) < 300:
            shown = browser.json(f"/store/log/records?from={at}")
            chain += [one["physicalOffset"] for one in shown["rows"]]
            if shown["end"] == at or not shown["more"]:
                break
            at = shown["end"]
        chance = random.Random(7)
        for _ in range(PLACES * 4):
            wanted = chance.randrange(chain[-2])
            first = browser.json(f"/store/log/records?from={wanted}")["rows"][0]["physicalOffset"]
            assert first == next(one for one in chain if one >= wanted)


def test_a_part_of_the_log_is_read_and_no_more(tmp_path: Path) -> None:
    """Also where damage is looked at, in the middle of a segment of 64 MiB: less than a page may read."""
    root = tmp_path / "store"
    config = StoreConfig(store_path_root_dir=root).with_changes(mapped_file_size_commit_log=64 << 20)
    with MessageStore.open(config) as store:
        put = [store.put(Message("T", b"x" * 40_000, number % 4)).append for number in range(1280)]
    places = [one.physical_offset for one in put if one is not None]
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        at = places[1000]
        file.seek(at + 4)
        file.write(b"\xff" * 4)
        file.flush()
        disk = CountingDisk()
        rows = list(islice(dump_log(disk, config, start=at, end=at + (1 << 20), back=BACK), 8))
        assert rows[0].kind == "damage"
        assert rows[0].offset == at
        assert sum(disk.read.values()) < 8 << 20
        file.seek(at + 4)
        file.write(b"\xda\xa3\x20\xa7")


def test_entries_of_the_index_begin_where_they_are_asked_for(fixture_store: Store) -> None:
    root = fixture_store("crashed-small")
    with console(ConsoleOptions(store=of_store(root, None))) as browser:
        name = browser.json("/store/index")["files"][0]["file"]
        every = [one for one in dump_index(Disk(), of_store(root, None), file=name) if isinstance(one, dict)]
        for number in (1, 2, 100, len(every) - 3, len(every) + 1):
            entries = browser.json(f"/store/index?file={name}&from={number}")["entries"]
            assert entries == every[number - 1 : number + 99]
