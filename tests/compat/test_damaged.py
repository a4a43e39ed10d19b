"""Damaged stores, recovered by rstore with `cut`, then opened by Apache: it takes them as they are, every byte."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from pathlib import Path

import pytest

from engine.errors import FormatError
from engine.files.disk import Disk
from engine.format.message import decode
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from tests.compat import apache, checks, fixtures, mutate
from tests.compat.apache import Line, Offsets, Opened, Sizes
from tests.compat.corpora import GOLDEN_SIZES
from tests.conftest import Store
from tests.engine.repair import differences
from tests.support import golden

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

TRAPS = ("f057", "v091", "v094")
"""Damage stays before the recovery's start: a normal start would cut there, so an abort file is left on purpose."""


def sample() -> list[Line]:
    """For each category one case of either corpus, and every trap."""
    found = {case["id"]: case for case in [*fixtures.cases(), *golden.cases()] if case["id"] not in differences.REFUSED}
    by_category: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for case in found.values():
        by_category[case["category"], case["id"][0]].append(case)
    chosen = {random.Random(str(key)).choice(cases)["id"] for key, cases in sorted(by_category.items())}
    return [found[one] for one in sorted(chosen | set(TRAPS)) if one in found]


CASES = sample()
Place = tuple[str, int, int]


@pytest.fixture
def damaged(fixture_copy: Store, golden_copy: Store):
    def make(case: Line) -> tuple[Path, Sizes, Line]:
        """The damaged copy, its sizes, further settings by Apache's names."""
        name = case["base"]
        if case["id"].startswith("v"):
            root, sizes, more = golden_copy(name), GOLDEN_SIZES, {}
            if name == "default-sizes-tiny":
                sizes = Sizes()
        else:
            root, sizes, more = fixture_copy(name), fixtures.sizes(name), fixtures.manifest(name)["settings"]
        mutate.apply(root, case["ops"])
        return root, sizes, more

    return make


def ours(root: Path, sizes: Sizes, more: Line) -> dict[Place, tuple[int, int]]:
    """Every message that we read, by queue and queue offset: where it lies, its body's CRC."""
    found = {}
    with ReadStore(checks.settings(root, sizes, more)) as store:
        for queue in store.queues():
            at = store.min_offset(*queue)
            while at < store.max_offset(*queue):
                got = store.get(*queue, at, 1)
                at = max(got.next_begin_offset, at + 1)
                for record in got.messages:  # units without a message are stepped over, as Apache does
                    with contextlib.suppress(FormatError):
                        message = decode(record)
                        if message.crc_ok:
                            found[(*queue, at - 1)] = (message.physical_offset, message.body_crc)
    return found


def theirs(opened: Opened) -> dict[Place, tuple[int, int]]:
    return {
        (line["cqTopic"], line["cqQueueId"], line["cqOffset"]): (line["physicalOffset"], line["bodyCRC"])
        for line in opened.messages
        if line.get("decoded", True)
    }


def check(root: Path, plan: RecoverPlan, sizes: Sizes, more: Line) -> Opened:
    expected = ours(root, sizes, more)
    before = checks.bytes_of(root)
    opened = apache.read(root, sizes, settings=more)
    assert opened.exit == apache.Exit.OPENED, opened.stderr
    assert opened.load
    state = plan.state
    assert opened.after_load == opened.final == Offsets(state.min_offset, state.max_offset)
    queues = {(*q.queue, q.min_offset, q.max_offset) for q in state.queues if q.max_offset}
    assert {(q.topic, q.queue_id, q.min, q.max) for q in opened.queues if q.max} == queues
    read = theirs(opened)
    assert {place: read.get(place) for place in expected} == expected
    if plan.trap is None:  # else Apache hands out the damaged ones, too: it doesn't look at the CRC
        assert read == expected
    after = checks.bytes_of(root)
    assert {path for path in before if before[path] != after.get(path)} == set()
    return opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['category']}")
def test_apache_takes_what_we_recovered(case: Line, damaged) -> None:
    root, sizes, more = damaged(case)
    plan = plan_recover(Disk(), checks.settings(root, sizes, more), cut=True)
    apply(Disk(), plan)
    opened = check(root, plan, sizes, more)
    assert (plan.trap is not None) == (case["id"] in TRAPS)
    assert opened.abnormal == (plan.trap is not None)


def test_a_trap_catches_apaches_second_start(fixture_copy: Store) -> None:
    """The abort file that recovery leaves helps once: Apache's clean shutdown removes it, and its next start cuts."""
    case = next(case for case in CASES if case["id"] == "f057")
    root = fixture_copy(case["base"])
    mutate.apply(root, case["ops"])
    sizes = fixtures.sizes(case["base"])
    plan = plan_recover(Disk(), checks.settings(root, sizes), cut=True)
    apply(Disk(), plan)
    assert plan.trap is not None
    ends = [apache.read(root, sizes).final for _ in range(2)]
    assert ends == [Offsets(0, plan.state.max_offset), Offsets(0, plan.trap.offset)]


def test_every_category_is_there() -> None:
    wanted = {case["category"] for case in [*fixtures.cases(), *golden.cases()]}
    assert {case["category"] for case in CASES} == wanted
