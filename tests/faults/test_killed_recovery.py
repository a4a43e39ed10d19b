"""Recovery is killed at each of its steps, and between them: run again, it ends as if nothing had happened.
In `make test` each case is killed at a third of them, by turns.

"As if" means the same bytes of log and queues, the same entries of the index, the same marks; and every byte that
went lies in one of the salvage directories (or in quarantine).
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.format import names
from engine.inspect.store.survey import survey
from engine.log import index_file, index_service
from engine.log.index_file import IndexFile
from engine.log.index_reader import ClosedIndexFile
from engine.log.kernels.index import Linker
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.support import fixtures, mutate, stores
from tests.support.wide import sample

BETWEEN = 4
"""Kills between two steps, for each case."""

CASES = {
    "nothing-but-a-crash": ["f001"],
    "torn-tail": ["f003"],
    "torn-inner-file": ["f006"],
    "cut-in-the-middle": ["f018"],
    "mended-offset": ["f010"],
    "queues-lost": ["f024"],
    "unit-past-the-end": ["f027"],
    "index-file-lost": ["f028"],
    "index-header-lost": ["f029"],
    "strays": ["f031", "f045"],
    "early-damage": ["f053"],
    "trap": ["f057"],
    "closed-cut": ["f074"],
    "ext": ["f098"],
    "lmq-torn": ["f105"],
    "all-at-once": ["f006", "f010", "f023", "f029", "f046", "f031"],
}
LIKE_LOG = (names.COMMITLOG, names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT)
ALL = {case["id"]: case for case in corpus.fixture_cases()}


@dataclass(frozen=True)
class End:
    """What a store holds in the end."""

    files: dict[str, str]
    entries: list[tuple[int, int]]
    abort: bool
    set_aside: frozenset[str]


def end_of(root: Path, case: corpus.Case) -> End:
    extended = case["base"] == "transient-ext"
    files = {
        str(path.relative_to(root)): stores.digest(path)
        for directory in (LIKE_LOG[:1] if extended else LIKE_LOG)
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }
    if extended:
        files |= units_of(root, case)
    found = survey(Disk(mapped=False), corpus.config(root, case))
    entries: list[tuple[int, int]] = []
    for index in found.index:
        with ClosedIndexFile(Disk(mapped=False), index.path, found.index_layout) as file:
            assert file.verify().fault is None
            rows = file.entries(1, file.entry_count) if file.entry_count else []
            entries += [(int(row["key_hash"]), int(row["physical_offset"])) for row in rows]
    quarantine = root / names.QUARANTINE
    # A kill can leave an empty file, which is set aside, too.
    aside = (path for path in quarantine.rglob("*") if path.is_file() and path.stat().st_size)
    return End(
        files, entries, (root / "abort").exists(), frozenset(str(path.relative_to(quarantine)) for path in aside)
    )


def units_of(root: Path, case: corpus.Case) -> dict[str, str]:
    """The units with what their extension says: a killed run leaves units there that nobody refers to."""
    found = {}
    with ReadStore(corpus.config(root, case)) as store:
        for name in store.queues():
            queue = store.find_queue(*name)
            assert queue is not None
            for offset in range(queue.min_offset, queue.max_offset):
                unit = queue.get(offset)
                assert unit is not None
                further = queue.ext_unit(unit.tags_code)
                assert further is not None
                place = f"{unit.physical_offset} {unit.size}"
                found[f"{name} {offset}"] = f"{place} {further.tags_code} {further.store_timestamp}"
    return found


def checkpoint(root: Path) -> bytes:
    path = root / names.CHECKPOINT
    return path.read_bytes() if path.exists() else b""


def damaged(name: str, fixture_copy: Store) -> tuple[corpus.Case, Path]:
    """A store with the damage of all of a case's parts."""
    first = ALL[CASES[name][0]]
    root = fixture_copy(first["base"])
    for one in CASES[name]:
        assert ALL[one]["base"] == first["base"]
        mutate.apply(root, ALL[one]["ops"])
    return first, root


def recover(root: Path, case: corpus.Case, arm: Callable[[FaultyDisk], object] = lambda _: None) -> FaultyDisk:
    disk = FaultyDisk(None)
    plan = plan_recover(disk, corpus.config(root, case), cut=True)
    assert disk.changes_seen == 0
    arm(disk)
    apply(disk, plan)
    return disk


def saved(root: Path, path: str, original: bytes) -> np.ndarray:
    """For each byte of a store file, whether a salvage directory has it as it was."""
    old = np.frombuffer(original, np.uint8)
    there = np.zeros(len(old), bool)
    for manifest in (root / names.SALVAGE).glob("*/manifest.json"):
        for piece in json.loads(manifest.read_text())["pieces"]:
            if piece["path"] == path and piece["file"] is not None:
                data = np.frombuffer((manifest.parent / piece["file"]).read_bytes(), np.uint8)
                at = slice(piece["offset"], piece["offset"] + len(data))
                there[at] |= data == old[at]
    return there


def check_nothing_is_lost(before: Path, root: Path) -> None:
    """Every byte that is not zero and not in its place any more was saved; every other file was set aside."""
    for path in sorted(before.rglob("*")):
        relative = str(path.relative_to(before))
        if not path.is_file() or path.relative_to(before).parts[0] not in (*LIKE_LOG, names.INDEX):
            continue
        if (root / names.QUARANTINE / relative).exists():
            continue
        original = path.read_bytes()
        now = (root / relative).read_bytes() if (root / relative).exists() else b""
        if now != original:
            old = np.frombuffer(original, np.uint8)
            new = np.frombuffer(now.ljust(len(original), b"\0")[: len(original)], np.uint8)
            gone = (old != new) & (old != 0)
            assert not (gone & ~saved(root, relative, original)).any(), relative


@pytest.mark.leaves
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "gathers"), [*((name, False) for name in CASES), ("index-file-lost", True), ("all-at-once", True)]
)
def test_killed_anywhere_and_run_again(
    name: str, gathers: bool, fixture_copy: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gathers`: slots of new index files are in memory until they are flushed, as where very many keys are put."""
    if gathers:
        monkeypatch.setattr(index_file, "_WORTH_GATHERING", 0)
        monkeypatch.setattr(index_file, "_FEW", 0)
        monkeypatch.setattr(index_service, "_FEW", 0)
        monkeypatch.setattr(IndexFile, "_linker_if_worth", lambda _: Linker())
    case, root = damaged(name, fixture_copy)
    whole = stores.copy(root, tmp_path / "whole")
    disk = recover(whole, case)
    expected = end_of(whole, case)
    check_nothing_is_lost(root, whole)

    kills: list[Callable[[FaultyDisk], object]] = []
    rng = random.Random(name)
    for step, count in Counter(disk.steps_seen).items():
        place = rng.randrange(1, count + 1)
        kills += [lambda disk, step=step, nth=place: disk.kill_at(step, nth)]
    changes = rng.sample(range(1, disk.changes_seen + 1), BETWEEN)
    kills += [lambda disk, nth=nth: disk.kill_before(nth) for nth in changes]
    kills = sample(kills, 12, list(CASES).index(name))
    last = disk.changes_seen
    kills.append(lambda disk: disk.kill_before(last))
    for number, arm in enumerate(kills):
        copy = stores.copy(root, tmp_path / f"killed-{number}")
        with pytest.raises(Killed):
            recover(copy, case, arm)
        recover(copy, case)
        assert end_of(copy, case) == expected
        # Killed after all else was done, it finds nothing to do, and an older checkpoint is as good.
        assert checkpoint(copy) in (checkpoint(whole), checkpoint(root))
        check_nothing_is_lost(root, copy)
        again = plan_recover(Disk(), corpus.config(copy, case))
        assert again.refusal is None
        assert not again.changed
        shutil.rmtree(copy)


@pytest.mark.leaves
def test_killed_again_and_again(fixture_copy: Store, tmp_path: Path) -> None:
    """Each try gets a little further than the one before."""
    case, root = damaged("all-at-once", fixture_copy)
    whole = stores.copy(root, tmp_path / "whole")
    recover(whole, case)
    copy = stores.copy(root, tmp_path / "copy")
    for tries in range(10, 400, 30):
        try:
            recover(copy, case, lambda disk, tries=tries: disk.kill_before(tries))
            break
        except Killed:
            pass
    else:
        recover(copy, case)
    assert end_of(copy, case) == end_of(whole, case)
    check_nothing_is_lost(root, copy)


def test_the_cases_are_there() -> None:
    assert set(fixtures.names()) >= {ALL[one]["base"] for parts in CASES.values() for one in parts}
