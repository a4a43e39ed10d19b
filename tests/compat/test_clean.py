"""The same files go as with Apache RocketMQ 4.9.8: one store, cleaned by it and by us, round for round."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.format.message import Message
from engine.log.results import PutMessageStatus
from engine.store import MessageStore
from tests.compat import apache
from tests.compat.apache import Line, Queue, Sizes
from tests.compat.checks import settings
from tests.support import stores

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

SIZES = Sizes(65_536, 800, 100, 150)
EXT: Line = {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024}
NO_PAUSES: Line = {"deleteCommitLogFilesInterval": 0, "deleteConsumeQueueFilesInterval": 0}
PARTS = ("commitlog", "consumequeue", "consumequeue_ext", "index")


def hour(later: int = 0) -> str:
    return f"{(time.localtime().tm_hour + later) % 24:02d}"


class Used(Disk):
    """A disk that is used to a given part."""

    def __init__(self, percent: int) -> None:
        super().__init__()
        self.percent = percent

    def usage(self, path: str) -> Usage:
        return Usage(100 << 30, self.percent << 30, (100 - self.percent) << 30)


@dataclass(frozen=True)
class Case:
    """One cleaning: how old the oldest files are (hours), settings by Apache's names, how full the disk seems to be.

    `used` stands for what Apache is told by its two ratios, which are set so that this machine's disk is above them.
    """

    name: str
    ages: list[float]
    more: Line = field(default_factory=dict)
    rounds: int = 1
    manually: bool = False
    hold_until: int | None = None
    used: int = 30


ABOVE: Line = {"diskMaxUsedSpaceRatio": 10, "cleanFileForciblyEnable": True}
CASES = [
    Case("by-hand", [100, 73, 72.1, 71.9, 100], manually=True),
    Case("by-hand-in-batches", [100] * 99, manually=True, rounds=3),
    Case("at-its-hour", [100, 100, 100, 100, 1], {"deleteWhen": f"{hour()};{hour(1)}"}),
    Case("not-its-hour", [100, 100, 1], {"deleteWhen": hour(12)}),
    Case("short-reserve", [3, 3, 3, 2.1, 1.9, 5], {"fileReservedTime": 2}, manually=True),
    Case("no-reserve", [0] * 99, {"fileReservedTime": 0}, manually=True, rounds=2),
    Case("above-the-ratio", [100] * 3, {**ABOVE}, used=76),
    Case("in-a-hurry", [100] * 3, {**ABOVE}, used=86, rounds=2),
    Case("in-a-hurry-not-forcibly", [100] * 3, {**ABOVE, "cleanFileForciblyEnable": False}, used=86),
    Case("full", [100] * 3, {**ABOVE}, used=91),
    Case("held", [100] * 4, manually=True, rounds=3, hold_until=2),
    Case("ext", [100] * 6, EXT, manually=True),
    Case("no-number-in-a-hurry", [100] * 3, {**ABOVE, "deleteWhen": f"{hour()} # now"}, used=86),
    Case("no-number-behind-the-hour", [100] * 3, {"deleteWhen": f"{hour()};{hour(1)};now"}),
    Case("no-number-before-the-hour", [100] * 3, {"deleteWhen": f"now;{hour()}"}),
]


KEPT = ("not-its-hour", "no-number-in-a-hurry", "no-number-before-the-hour")
"""Cases in which Apache deletes nothing."""


def made(root: Path, case: Case) -> Path:
    """A store of about 16 log files; each of its queues has messages in the last one."""
    with MessageStore.open(settings(root, SIZES, case.more)) as store:
        for i in range(960):
            message = Message(
                "Orders" if i % 3 else "Audit", b"x" * 1000, i % 2, {"KEYS": f"k{i}", "TAGS": "ab"[i % 2]}
            )
            assert store.put(message).ok
        assert store.wait_dispatched()
    now = time.time()
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 13
    for number, path in enumerate(files):
        then = now - (case.ages[number] if number < len(case.ages) else 0) * 3600
        os.utime(path, (then, then))
    return root


def left(root: Path) -> list[str]:
    """Every file of the log, the queues and the index but the log file that was made ahead of time."""
    found = [str(path.relative_to(root)) for part in PARTS for path in (root / part).rglob("*") if path.is_file()]
    return sorted(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_files_go(case: Case, tmp_path: Path) -> None:
    root = made(tmp_path / "store", case)
    before = left(root)
    theirs = stores.copy(root, tmp_path / "theirs")
    above = {name: 0.0 for name, limit in (("forcibly_ratio", 85), ("warning_ratio", 90)) if case.used > limit}
    ran = apache.clean(
        theirs,
        SIZES,
        rounds=case.rounds,
        manually=case.manually,
        hold_until=case.hold_until,
        settings={**NO_PAUSES, **case.more},
        **above,
    )
    assert ran.exit == apache.Exit.OPENED, ran.stderr
    rounds = ran.of_type("round")
    assert len(rounds) == case.rounds
    ours = {"deleteWhen": "99", "diskMaxUsedSpaceRatio": 95, **NO_PAUSES, **case.more}
    if "diskMaxUsedSpaceRatio" in case.more:
        ours["diskMaxUsedSpaceRatio"] = 75  # the same side of it as theirs
    with MessageStore.open(settings(root, SIZES, ours), Used(case.used)) as store:
        held = store.log.files.files[0].select(0) if case.hold_until is not None else None
        for number, round_ in enumerate(rounds):
            if number == case.hold_until:
                assert held is not None
                held.release()
            store.clean.clean(by_hand=case.manually)
            assert store.log.min_offset == round_["minPhyOffset"]
            their_log = [line["path"] for line in round_["files"] if line["path"].startswith("commitlog/")]
            assert [path for path in left(root) if path.startswith("commitlog/")] == their_log
            their_queues = {Queue(q["topic"], q["queueId"], q["min"], q["max"]) for q in round_["queues"] if q["max"]}
            assert {
                Queue(*q, store.min_offset(*q), store.max_offset(*q)) for q in store.queues.queues()
            } == their_queues
            if case.used > 90:
                assert not round_["writeable"]
                assert store.put(Message("Orders", b"no")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            else:
                assert round_["writeable"]
                assert store.flags.writeable
    after = left(root)
    assert after == left(theirs)
    if case.name in KEPT:
        assert [path for path in before if path not in after] == []
    else:
        assert len(after) < len(before) - 2
        assert any(path.startswith("index/") for path in set(before) - set(after)) or case.name == "held"
    read = apache.read(root, SIZES, settings=case.more)
    assert read.exit == apache.Exit.OPENED
    assert {(m["topic"], m["queueId"], m["queueOffset"]) for m in read.messages} == {
        (m["topic"], m["queueId"], m["queueOffset"]) for m in apache.read(theirs, SIZES, settings=case.more).messages
    }
