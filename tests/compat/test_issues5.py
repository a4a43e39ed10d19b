"""Stores that issues of RocketMQ describe: what its own message store and timer make of them, and of those we repaired.

#9942 (epochs after the log was cut) is in tests/engine/repair/recover/test_epochs.py: no store alone reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat import holds5, toolchain
from tests.compat.apache import Opened
from tests.compat.holds5 import Asked
from tests.proof import bases, command, judge, newer, own, truth
from tests.proof.bases import Base
from tests.proof.beside import keys_of
from tests.support.wide import WIDE

pytestmark = [pytest.mark.interop, pytest.mark.leaves()]
FORCED = {"forceVerifyPropCRC": "true"}


@dataclass(frozen=True)
class Story:
    """An issue: the kind of base; how its store comes to be; what we do; settings beside those of the base."""

    base: str
    damage: Callable[[Base, Path], None]
    words: tuple[tuple[str, ...], ...] = (("recover", "--yes"),)
    settings: dict[str, object] | None = None


@dataclass(frozen=True)
class Seen:
    """What the release gives of the store as it is, and of the repaired one; the repaired store, and our last words."""

    base: Base
    theirs: Opened
    ours: Opened
    store: Path
    ran: command.Ran


def late(base: Base) -> int:
    """The physical offset of the fourth timer message that waits: the log ends with such."""
    return [base.facts.queues[one] for one in sorted(base.facts.queues) if one[0] == newer.TOPIC][9]


def killed(base: Base, store: Path) -> None:
    """A slave cut its log, in its memory alone, and was killed: the bytes are there."""
    (store / "abort").touch()


def torn(base: Base, store: Path) -> None:
    """The log was not on disk from a record on; groups had read all of it."""
    at = late(base)
    start = at // base.segment * base.segment
    path = store / "commitlog" / f"{start:020}"
    data = own.content(path)
    path.write_bytes(data[: at - start] + bytes(len(data) - (at - start)))
    (store / "abort").touch()
    table = {"offsetTable": {f"{newer.TOPIC}@readers": {"0": 18}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))


def topics_lost(base: Base, store: Path) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.unlink()


def plain_queue_of_batches(base: Base, store: Path) -> None:
    judge.copy(store / "consumequeue" / "T", store / "consumequeue" / "B")


def last_file_of_zeros(base: Base, store: Path) -> None:
    last = sorted((store / "consumequeue" / "Hot" / "0").iterdir())[-1]
    last.write_bytes(bytes(last.stat().st_size))


def index_newer_than_checkpoint(base: Base, store: Path) -> None:
    with (store / "checkpoint").open("r+b") as file:
        file.seek(16)
        file.write(bytes(8))


def nothing(base: Base, store: Path) -> None:
    """An old log, and a setting that is new."""


STORIES = {
    "10666": Story("mixed", killed, (("truncate", "--to-offset", "LATE", "--yes"),)),
    "10668": Story("mixed", torn),
    "9826": Story("mixed", topics_lost, (("rebuild-config", "--yes"),)),
    "5077": Story("mixed", plain_queue_of_batches),
    "9728": Story("clean", last_file_of_zeros),
    "8007": Story("killed", index_newer_than_checkpoint),
    "7480": Story("clean", nothing, settings=FORCED),
}


@pytest.fixture(scope="module", params=("5.3.3", "5.5.0") if WIDE else ("5.5.0",))
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    release: str = request.param
    root = tmp_path_factory.mktemp("issues")
    undamaged = {kind: bases.unpack(f"{kind}-{release}", root / "bases") for kind in ("mixed", "clean", "killed")}
    stores: list[Asked] = []
    ran: dict[str, command.Ran] = {}
    for number, story in STORIES.items():
        base = undamaged[story.base]
        theirs = judge.copy(base.store, root / f"{number}-theirs")
        story.damage(base, theirs)
        ours = judge.copy(theirs, root / f"{number}-ours")
        conf = root / f"{number}.conf"
        added = "".join(f"{key}={value}\n" for key, value in (story.settings or {}).items())
        conf.write_text(base.conf(ours) + added)
        for words in story.words:
            ran[number] = command.run(ours, conf, *(str(late(base)) if one == "LATE" else one for one in words))
        for store in (theirs, ours):
            keys = sorted(keys_of(base.facts))
            settings = {**base.settings, **(story.settings or {})}
            stores.append(Asked(store, settings, sorted(base.facts.records), keys))
    try:
        opened = {one.store.name: each for one, each in zip(stores, holds5.run(release, stores), strict=True)}
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    return {
        number: Seen(
            undamaged[story.base], opened[f"{number}-theirs"], opened[f"{number}-ours"],
            root / f"{number}-ours", ran[number],
        )
        for number, story in STORIES.items()
    }  # fmt: skip


def places(opened: Opened) -> set[int]:
    return {place for line in opened.of_type("places") for place in line["offsets"]}


def units(opened: Opened) -> int:
    return sum(len(line["offsets"]) for line in opened.of_type("holds"))


def keys(opened: Opened) -> int:
    """How many messages are given by all keys."""
    return sum(len(offsets) for line in opened.of_type("keys") for offsets in line["offsets"])


def end(opened: Opened) -> int:
    assert opened.exit == 0, opened.error
    assert opened.final is not None
    return opened.final.max


def test_10666_records_that_were_cut_come_back_and_ours_do_not(seen: dict[str, Seen]) -> None:
    one = seen["10666"]
    assert end(one.theirs) == one.base.facts.end
    assert end(one.ours) == late(one.base)


def test_10668_units_after_the_log_end_stay_in_the_timer_and_ours_are_rebuilt(seen: dict[str, Seen]) -> None:
    """They would read what is put there later."""
    one = seen["10668"]
    assert end(one.theirs) == end(one.ours) == late(one.base)
    (theirs,), (ours,) = one.theirs.of_type(holds5.TIMER), one.ours.of_type(holds5.TIMER)
    assert max(theirs["places"]) >= late(one.base) > max(ours["places"])
    held = truth.held(one.base, one.store)
    if newer.is_fresh(one.base):
        got = newer.by_timer(one.base.facts, held, ours["places"], ours["queueOffset"])
        assert {f"Late-{number}" for number in range(3)} <= got.keys()
        assert newer.other_than(one.base, one.base.facts, held, got) == []


def test_8239_what_groups_had_read_lies_after_the_queue_end_and_is_named(seen: dict[str, Seen]) -> None:
    """A broker says nothing: the messages that are put there next are not read by the group."""
    one = seen["10668"]
    (line,) = [line for line in one.theirs.of_type("holds") if line["topic"] == newer.TOPIC]
    assert line["offsets"][-1] == 8
    conf = one.store.with_suffix(".conf")
    conf.write_text(one.base.conf(one.store))
    codes = {found["code"] for found in command.run(one.store, conf, "check").said["findings"]}
    assert "consumer-above" in codes


@pytest.mark.parametrize("number", ["9826", "5077"])
def test_9826_9328_5077_a_store_that_does_not_start_does(number: str, seen: dict[str, Seen]) -> None:
    """topics.json lost, or plain queues of a topic whose queues are batch queues."""
    one = seen[number]
    assert one.theirs.exit != 0
    assert one.ran.exit == 0
    assert end(one.ours) == one.base.facts.end
    assert units(one.ours) == len(one.base.facts.queues)


def test_9728_a_last_queue_file_of_zeros_is_rebuilt(seen: dict[str, Seen]) -> None:
    """5.3.3 does not start over it, 5.5.0 leaves its messages out of their queue."""
    one = seen["9728"]
    assert one.theirs.exit != 0 or units(one.theirs) < len(one.base.facts.queues)
    assert end(one.ours) == one.base.facts.end
    assert units(one.ours) == len(one.base.facts.queues)


def test_8007_an_index_that_is_deleted_is_kept(seen: dict[str, Seen]) -> None:
    one = seen["8007"]
    assert keys(one.theirs) < keys(one.ours)
    assert keys(one.ours) >= len(one.base.facts.keys)


def test_7480_an_old_log_is_cut_and_we_refuse(seen: dict[str, Seen]) -> None:
    one = seen["7480"]
    assert end(one.theirs) < one.base.facts.end
    assert one.ran.exit == 4
    assert "forceVerifyPropCRC" in one.ran.err
