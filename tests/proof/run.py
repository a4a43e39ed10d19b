"""The command of the proof: many damaged stores in worker processes, a line for each that fails, a report."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from . import bases, judge, kills, merge, report, shapes, store
from .bases import Base
from .beside import Beside
from .kills import Killed
from .store import Judged, Wanted

T = TypeVar("T")

MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Job:
    """What a worker needs. `places`: (name, top, store) of the unpacked bases."""

    wanted: Wanted
    places: tuple[tuple[str, Path, Path], ...]
    work: Path


def main(argv: Sequence[str]) -> int:
    """0 when every store came back whole, and every kill ended well."""
    given = _arguments(argv)
    modes = () if given.no_judge else tuple(given.modes)
    wanted = Wanted(given.seed, tuple(given.shapes), modes, given.damages)
    begin = time.perf_counter()
    if given.merge:
        merge.merge(given.merge, Path(given.output))
        return 0
    with scratch() as root:
        if given.keep is not None:
            return _keep(given, wanted, root)
        parts = [_stores(given, wanted, root)]
        for part, count, names in (
            ("expired", given.expired, bases.expired_names()),
            ("newer", given.newer, bases.newer_names()),
        ):
            if count:
                parts.append(_apart(given, wanted, root, part, count, names))
        parts.append(_kills(given, root))
        passed, failed = (sum(part[i] for part in parts) for i in range(2))
    print(f"{passed} passed, {failed} failed in {time.perf_counter() - begin:.0f}s", flush=True)
    return 1 if failed or not passed else 0


def _numbers(given: argparse.Namespace, count: int) -> Sequence[int]:
    return [given.only] if given.only is not None and count else range(given.first, given.first + count)


def _apart(
    given: argparse.Namespace, wanted: Wanted, root: Path, part: str, count: int, names: list[str]
) -> tuple[int, int]:
    """So many more stores, of these bases, with a report of their own; none of them is for Apache."""
    some = list(given.shapes) if given.shapes != list(shapes.SHAPES) else _shapes_of(names)
    of_them = {"stores": count, "bases": names, "shapes": some, "apache": 0, "opened": 0}
    apart = argparse.Namespace(**{**vars(given), **of_them, "output": str(Path(given.output) / part)})
    return _stores(apart, replace(wanted, shapes=tuple(some)), root)


def _stores(given: argparse.Namespace, wanted: Wanted, root: Path) -> tuple[int, int]:
    """The damaged stores: how many passed and failed."""
    found = []
    for one in judged_stores(wanted, _numbers(given, given.stores), given.bases, root, given.jobs):
        found.append(one)
        for line in report.lines(one, _again(given, one)):
            print(line, flush=True)
    if not found:
        return 0, 0
    _ask_apache(given, wanted, found, root)
    report.write(found, Path(given.output), wanted.seed)
    kinds = Counter(f"{mode} {kind}" for one in found for mode, kind in {(m, k) for m, k, _ in one.findings})
    if wanted.modes:
        print("; ".join(f"{kind}: {count}" for kind, count in kinds.most_common()) or "every store came back whole")
    print(report.apache_line(found))
    print(f"peak memory of a worker: {max(one.peak_mib for one in found)} MiB")
    failed = sum(1 for one in found if one.findings or one.differs or (one.refused and one.sound))
    return len(found) - failed, failed


def _kills(given: argparse.Namespace, root: Path) -> tuple[int, int]:
    """The campaign of kills: how many commands ended well and badly."""
    found = []
    numbers = _numbers(given, -(-given.kills // kills.EACH))
    for one in _pooled(Wanted(given.seed), numbers, given.bases, root, given.jobs, _killed):
        if one is not None:
            found.append(one)
            for line in report.kill_lines(one, given.seed):
                print(line, flush=True)
    if found:
        print("\n".join(report.write_kills(found, Path(given.output), given.seed)))
    failed = sum(1 for one in found if one.findings)
    return len(found) - failed, failed


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof", description="Seeded damaged stores, repaired and judged."
    )
    every = [*bases.names(), *bases.expired_names(), *bases.newer_names()]
    parser.add_argument("--stores", type=int, default=300, help="how many (300)")
    parser.add_argument("--expired", type=int, default=0, help="and how many of which the front has expired (0)")
    parser.add_argument("--newer", type=int, default=0, help="and how many of RocketMQ 5 (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first store's number")
    parser.add_argument("--only", type=int, metavar="N", help="only the store of this number")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="with --only: leave the damaged store there, judge nothing"
    )
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill commands N times, too (kills.py)")
    parser.add_argument("--apache", type=int, default=0, metavar="N", help="what Apache loses of the first N (Java)")
    parser.add_argument("--opened", type=int, default=0, metavar="N", help="Apache opens the first N repaired (Java)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--shapes", nargs="+", choices=list(shapes.EVERY), metavar="SHAPE", help="(those that the bases can have)"
    )
    parser.add_argument("--damages", type=int, default=4, choices=(1, 2, 3, 4), help="maximum damages of a store (4)")
    parser.add_argument(
        "--bases", nargs="+", choices=[*every, bases.ROCKETMQ5], default=bases.names(), metavar="BASE",
        help=f"(those of 4.9.8); {bases.ROCKETMQ5}: all of RocketMQ 5",
    )  # fmt: skip
    parser.add_argument("--modes", nargs="+", choices=list(judge.MODES), default=list(judge.MODES))
    parser.add_argument(
        "--no-judge", action="store_true", help="repair and judge nothing: only what Apache is asked for"
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="make one table of what runs of the same seed left in these, and nothing else",
    )
    parser.add_argument("--output", default="build", help="where proof.md and proof.json go")
    given = parser.parse_args(argv)
    if bases.ROCKETMQ5 in given.bases:
        given.bases = bases.newer_names()
    given.shapes = given.shapes or _shapes_of(given.bases)
    return given


def _shapes_of(names: Sequence[str]) -> list[str]:
    """Those that some of the bases can have."""
    if not set(names) & set(bases.newer_names()):
        return list(shapes.SHAPES)
    return [name for name in shapes.EVERY if name not in shapes.ONLY_OLD]


def _ask_apache(given: argparse.Namespace, wanted: Wanted, found: list[Judged], root: Path) -> None:
    """Fills in what Apache loses of the same stores, and what it reads otherwise of repaired ones."""
    by_number = {one.number: one for one in found}
    if not (given.apache or given.opened):
        return
    asked = Beside([bases.unpack(name, root / "apart") for name in given.bases], root / "asked")
    for number, theirs in asked.damaged(wanted, sorted(by_number)[: given.apache]):
        by_number[number].apache = theirs.to_json()
    for one in asked.repaired(wanted, sorted(by_number)[: given.opened]):
        found_one = by_number[one.number]
        found_one.opened, found_one.differs, found_one.refused = one.refused is None, one.differs, one.refused
        if one.differs or (one.refused and found_one.sound):
            said = f"opened by Apache: {one.differs}" if one.differs else f"not repaired: {one.refused}"
            print(f"FAILED store {one.number}: {said}\n    {_again(given, found_one)}", flush=True)


def _again(given: argparse.Namespace, one: Judged) -> str:
    """The command that makes a store again."""
    words = ["python -m tests.proof", f"--seed {given.seed}", f"--only {one.number}"]
    if given.damages != len(store.WEIGHTS):
        words.append(f"--damages {given.damages}")
    for name, every in (("shapes", _shapes_of(given.bases)), ("bases", bases.names())):
        if getattr(given, name) != every:
            words.append(f"--{name} {' '.join(getattr(given, name))}")
    return " ".join([*words, "--keep DIR"])


def _keep(given: argparse.Namespace, wanted: Wanted, root: Path) -> int:
    found = [bases.unpack(name, root) for name in given.bases]
    given.keep.mkdir(parents=True, exist_ok=True)
    case, done = store.damaged(wanted, given.only, found, given.keep / "store")
    conf = given.keep / "broker.conf"
    conf.write_text(case.base.conf(case.store), encoding="utf-8")
    shutil.rmtree(given.keep / "base", ignore_errors=True)
    judge.copy(case.base.store, given.keep / "base")
    print(f"{case.base.name}: {len(case.whole)} of {len(case.facts.records)} records are sound")
    for name, how in done:
        print(f"  {name}: {how}")
    print(f"rstore recover --dry-run --store {case.store} -c {conf}")
    return 0


@contextmanager
def scratch() -> Iterator[Path]:
    """A place for many small files: in memory where there is some."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 1 << 29
    with tempfile.TemporaryDirectory(prefix="rstore-proof-", dir=MEMORY if roomy else None) as place:
        yield Path(place)


def judged_stores(
    wanted: Wanted, numbers: Sequence[int], names: Sequence[str], root: Path, jobs: int
) -> Iterator[Judged]:
    """Judges the stores of these numbers, as they come."""
    return _pooled(wanted, numbers, names, root, jobs, _judge)


def _pooled(
    wanted: Wanted, numbers: Sequence[int], names: Sequence[str], root: Path, jobs: int, work: Callable[[int], T]
) -> Iterator[T]:
    if not numbers:
        return
    places = [(name, root / "bases" / name, bases.unpack(name, root / "bases").store) for name in names]
    job = Job(wanted, tuple(places), root / "work")
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(jobs, len(numbers)), _begin, (job,), maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(work, numbers)


class _Worker:
    job: Job
    found: tuple[Base, ...]


def _begin(job: Job) -> None:
    _Worker.job = job
    _Worker.found = tuple(bases.open_base(name, top, place) for name, top, place in job.places)


def _judge(number: int) -> Judged:
    job = _Worker.job
    return store.judged(job.wanted, number, _Worker.found, job.work / str(os.getpid()))


def _killed(number: int) -> Killed | None:
    job = _Worker.job
    return kills.campaign(job.wanted.seed, number, _Worker.found, job.work / str(os.getpid()))
