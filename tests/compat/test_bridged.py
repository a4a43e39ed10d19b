"""Every damaged store that rstore repaired, opened by Apache 4.9.8: it reads all of it, cuts nothing, goes on putting.

All cases of both corpora but the refused ones, bridged where there is a middle. Those of a chunk share a JVM in each of
three passes: opened as closed cleanly; opened as after a crash, with a checkpoint that makes Apache read the whole log
again; opened to put messages, which are got as by a consumer.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.repair.recover.plan import RecoverPlan
from tests.compat import batch, checks, corpora, loss, loss_table
from tests.compat.apache import Exit, Line, Offsets, Opened
from tests.compat.corpora import Bases
from tests.compat.loss import Loss, Truth, Truths
from tests.engine.repair import differences

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store"), pytest.mark.timeout(1800)]

CASES = [case for case in corpora.every_case() if case["id"] not in differences.REFUSED]
BRIDGED = {"flip-header", "flip-content", "lost-page", "total-size", "magic", "torn-inner-file", "combo"}
"""The kinds of damage of which some stores must have been bridged."""
COUNT = 5
"""Messages put into each store."""


@dataclass
class Repaired:
    """A store that we repaired."""

    case: Line
    store: Path
    plan: RecoverPlan
    truth: Truth
    sound: frozenset[int]

    def __post_init__(self) -> None:
        self.bridged = bool(self.plan.to_json()["bridged"])
        self.before = files(self.store)
        plain = [q for q in self.plan.state.queues if not q.queue.topic.startswith(("SCHEDULE", "%", "RMQ_SYS"))]
        longest = max(plain, key=lambda q: q.max_offset)
        self.queue, self.queue_end = (longest.queue.topic, longest.queue.queue_id), longest.max_offset


@dataclass
class Seen:
    """How many stores were opened, and what was wrong with which of them in each pass."""

    stores: int = 0
    bridged: int = 0
    kinds: set[str] = field(default_factory=set)
    closed: dict[str, str] = field(default_factory=dict)
    killed: dict[str, str] = field(default_factory=dict)
    put: dict[str, str] = field(default_factory=dict)


def files(store: Path) -> dict[str, str]:
    """The digests of the log's and the queues' files; not of the extension's, which Apache's recovery writes anew."""
    return {path: digest for path, digest in checks.bytes_of(store).items() if not path.startswith("consumequeue_ext")}


def check_all_is_read(one: Repaired, opened: Opened) -> None:
    """Every sound message is read; log and queues are as we left them, in bytes; a bridged store's units have messages.

    Abnormal recovery dispatches a record whose topic or queue id is flipped into the queue that it names.
    """
    assert opened.exit == Exit.OPENED, (opened.exit, opened.error)
    state = one.plan.state
    assert opened.after_load == opened.final == Offsets(state.min_offset, state.max_offset)
    lines = opened.of_type("holds")
    theirs = {(q["topic"], q["queueId"]): (q["min"], q["max"]) for q in lines if q["max"]}
    ours = {(q.queue.topic, q.queue.queue_id): (q.min_offset, q.max_offset) for q in state.queues if q.max_offset}
    assert opened.abnormal or theirs.keys() == ours.keys()
    for queue, (low, high) in ours.items():
        assert theirs[queue][1] == high, queue
        # RECOVERY.md, rule 17: for Apache, a queue begins with what lies before its first real unit
        assert theirs[queue][0] == low or (theirs[queue][0] < low and not one.bridged), queue
    assert loss.lost(one.truth, one.sound, loss.held_by_apache(opened, one.truth)) == Loss()
    if one.bridged:
        units = {(*q.queue, at) for q in state.queues for at in range(q.min_offset, q.max_offset)}
        got = {(q["topic"], q["queueId"], at) for q in lines for at in q["offsets"]}
        assert units - got == set()
        assert opened.abnormal or got == units
    after = files(one.store)
    assert {path for path in one.before if one.before[path] != after.get(path)} == set()


def check_closed(one: Repaired, opened: Opened) -> None:
    assert opened.abnormal is False
    check_all_is_read(one, opened)


def check_killed(one: Repaired, opened: Opened) -> None:
    assert opened.abnormal
    check_all_is_read(one, opened)


def check_put(one: Repaired, opened: Opened) -> None:
    """New messages have the next queue offsets, and are just what a consumer gets there."""
    assert opened.exit == Exit.OPENED, (opened.exit, opened.error)
    results, pulled = opened.of_type("put"), opened.of_type("pulled")
    assert [line["logicsOffset"] for line in results] == [one.queue_end + i for i in range(COUNT)]
    assert [line["bodyMd5"] for line in pulled] == [
        hashlib.md5(f"append-{i}".encode()).hexdigest() for i in range(COUNT)
    ]
    assert [(line["topic"], line["queueId"], line["queueOffset"], line["physicalOffset"]) for line in pulled] == [
        (*one.queue, one.queue_end + i, line["wroteOffset"]) for i, line in enumerate(results)
    ]


def wrong_ones(
    repaired: list[Repaired], opened: list[Opened], check: Callable[[Repaired, Opened], None]
) -> dict[str, str]:
    """The cases that a check fails on, and how: one doesn't hide the others."""
    wrong = {}
    for one, each in zip(repaired, opened, strict=True):
        try:
            check(one, each)
        except (AssertionError, KeyError) as failed:
            wrong[one.case["id"]] = f"{one.case['category']}: {failed!r}"[:2000]
    return wrong


def killed_ones(repaired: list[Repaired], holds: list[batch.Run]) -> dict[str, str]:
    """As `wrong_ones`, when Apache recovers the stores abnormally, and builds their index anew.

    IndexService#getAndCreateLastIndexFile names index files by the ms: two of the same ms are one file, and the keys of
    the first are gone. So a store that is wrong is opened so once more: what we left does that each time, a clock not.
    """
    wrong: dict[str, str] = {}
    some = list(zip(repaired, holds, strict=True))
    for _ in range(2):
        for one, _ in some:
            (one.store / "abort").touch()
            (one.store / "checkpoint").write_bytes(bytes(4096))
        wrong = wrong_ones([one for one, _ in some], batch.run([asked for _, asked in some]), check_killed)
        some = [(one, asked) for one, asked in some if one.case["id"] in wrong]
        if not wrong:
            break
    return wrong


def open_all(cases: list[Line], bases: Bases, truths: Truths, root: Path, seen: Seen) -> None:
    repaired = []
    for case in cases:
        store = bases.damaged(case, root / case["id"])
        sound = truths.of(case).sound(bases.base(case), store)
        plan, _ = corpora.repair(corpora.config(store, case))
        repaired.append(Repaired(case, store, plan, truths.of(case), sound))
    holds = [
        batch.holds(one.store, truths.wanted(one.case), corpora.sizes(one.case), corpora.settings(one.case))
        for one in repaired
    ]
    seen.closed |= wrong_ones(repaired, batch.run(holds), check_closed)
    seen.killed |= killed_ones(repaired, holds)
    puts = [
        batch.append(one.store, one.queue, COUNT, corpora.sizes(one.case), corpora.settings(one.case))
        for one in repaired
    ]
    seen.put |= wrong_ones(repaired, batch.run(puts), check_put)
    seen.stores += len(repaired)
    seen.bridged += sum(one.bridged for one in repaired)
    seen.kinds |= {one.case["category"] for one in repaired if one.bridged}
    for one in repaired:
        shutil.rmtree(one.store)


@pytest.fixture(scope="module")
def seen(bases: Bases, truths: Truths, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    found = Seen()
    for chunk in corpora.chunks(CASES):
        open_all(chunk, bases, truths, tmp_path_factory.mktemp("repaired"), found)
    return found


def told(wrong: dict[str, str]) -> str:
    return "\n".join(f"{case} {how}" for case, how in wrong.items())


def test_apache_reads_all_of_a_repaired_store(seen: Seen, record_property) -> None:
    record_property(loss_table.OPENED, {"stores": seen.stores, "bridged": seen.bridged, "puts": COUNT})
    assert not seen.closed, told(seen.closed)
    assert seen.stores == len(CASES)
    assert seen.kinds >= BRIDGED


def test_apache_recovers_it_abnormally_without_cutting(seen: Seen) -> None:
    assert not seen.killed, told(seen.killed)


def test_it_takes_new_messages_that_consumers_get(seen: Seen) -> None:
    assert not seen.put, told(seen.put)
