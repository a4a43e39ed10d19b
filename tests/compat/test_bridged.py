"""Damaged stores that rstore has bridged, opened by Apache: it reads all of it, cuts nothing, and goes on putting."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.repair.apply import apply
from engine.repair.plan import RecoverPlan
from engine.repair.recover import plan_recover
from tests.compat import apache, checks, fixtures, mutate
from tests.compat.apache import Line, Offsets, Sizes
from tests.compat.test_damaged import GOLDEN_SIZES
from tests.conftest import Store
from tests.engine.repair import differences
from tests.support import golden

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

CATEGORIES = {
    "flip-header",
    "flip-content",
    "lost-page",
    "total-size",
    "magic",
    "torn-inner-file",
    "log-file-zeroed",
    "combo",
}
"""Those with damage in the log that may have sound records behind it."""
EACH = 3


def sample() -> list[Line]:
    """Some cases of each category."""
    by_category: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for case in [*fixtures.cases(), *golden.cases()]:
        if case["category"] in CATEGORIES and case["id"] not in differences.REFUSED:
            by_category[case["category"], case["id"][0]].append(case)
    return [
        case
        for key, cases in sorted(by_category.items())
        for case in random.Random(str(key)).sample(cases, min(EACH, len(cases)))
    ]


CASES = sample()


@pytest.fixture
def bridged(fixture_copy: Store, golden_copy: Store):
    def make(case: Line) -> tuple[Path, Sizes, Line, RecoverPlan]:
        """The damaged copy, bridged; its sizes, further settings by Apache's names."""
        name = case["base"]
        if case["id"].startswith("v"):
            root, more = golden_copy(name), {}
            sizes = Sizes() if name == "default-sizes-tiny" else GOLDEN_SIZES
        else:
            root, sizes, more = fixture_copy(name), fixtures.sizes(name), fixtures.manifest(name)["settings"]
        mutate.apply(root, case["ops"])
        config: StoreConfig = checks.settings(root, sizes, more)
        plan = plan_recover(Disk(), config, bridge=True)
        apply(Disk(), plan)
        return root, sizes, more, plan

    return make


def check_all_is_read(opened: apache.Opened, plan: RecoverPlan) -> None:
    """Log and queues as we left them; every unit of theirs has its message.

    Abnormal recovery dispatches a record whose topic or queue id is flipped into the queue that it names.
    """
    assert opened.exit == apache.Exit.OPENED, opened.stderr
    state = plan.state
    assert opened.after_load == opened.final == Offsets(state.min_offset, state.max_offset)
    queues = {(*q.queue, q.min_offset, q.max_offset) for q in state.queues if q.max_offset}
    theirs = {(q.topic, q.queue_id, q.min, q.max) for q in opened.queues if q.max}
    assert theirs >= queues if opened.abnormal else theirs == queues
    decoded = [line for line in opened.messages if line.get("decoded", True)]
    read = {(line["cqTopic"], line["cqQueueId"], line["cqOffset"]) for line in decoded}
    ours = {(*q.queue, at) for q in state.queues for at in range(q.min_offset, q.max_offset)}
    assert read >= ours if opened.abnormal else read == ours


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['category']}")
def test_apache_reads_through_bridges(case: Line, bridged) -> None:
    root, sizes, more, plan = bridged(case)
    before = checks.bytes_of(root)
    opened = apache.read(root, sizes, settings=more)
    assert opened.abnormal is False
    check_all_is_read(opened, plan)
    after = checks.bytes_of(root)
    assert {path for path in before if before[path] != after.get(path)} == set()

    (root / "abort").touch()  # as after a crash; and the whole log is read again
    (root / "checkpoint").write_bytes(bytes(4096))
    opened = apache.read(root, sizes, settings=more)
    assert opened.abnormal
    check_all_is_read(opened, plan)
    after = checks.bytes_of(root)
    assert {path for path in before if before[path] != after.get(path)} == set()


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: f"{case['id']}-{case['category']}")
def test_new_messages_get_the_right_queue_offsets(case: Line, bridged) -> None:
    root, sizes, more, plan = bridged(case)
    chosen = [q for q in plan.state.queues if not q.queue.topic.startswith(("SCHEDULE", "%", "RMQ_SYS"))]
    queue = max(chosen, key=lambda q: q.max_offset)
    written = apache.append(root, *queue.queue, 5, sizes, settings=more)
    assert written.exit == apache.Exit.OPENED, written.opened.stderr
    assert [line["logicsOffset"] for line in written.results] == [queue.max_offset + i for i in range(5)]
    opened = apache.read(root, sizes, settings=more)
    places = {(line["cqTopic"], line["cqQueueId"], line["cqOffset"]): line for line in opened.messages}
    for line in written.results:
        assert places[(*queue.queue, line["logicsOffset"])]["physicalOffset"] == line["wroteOffset"]
