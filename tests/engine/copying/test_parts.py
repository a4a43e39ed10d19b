"""The parts of a copy that do no I/O: markers, offset maps, which queue goes where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client.queues import MessageQueue
from engine.copying.marker import COPIED, BrokerPlace, Hop, WayBack, hops, marked
from engine.copying.offset_map import MapRun, OffsetMap
from engine.copying.plan import pair
from engine.copying.progress import MAP, CopyProgress, QueueProgress, load, save
from engine.errors import FormatError, NotFound
from engine.files.disk import Disk

A, B = BrokerPlace("c", "a", "10.0.0.1:10911"), BrokerPlace("c", "b", "10.0.0.2:10911")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40), st.integers(0, 200), st.integers(0, 200))
def test_a_map_finds_the_first_message_that_is_not_consumed(steps: list[tuple[int, int]], asked: int, end: int) -> None:
    pairs, source, target = {}, 3, 5
    made = OffsetMap(5, 3)
    for skipped, between in steps:
        source, target = source + skipped, target + between
        pairs[source] = target
        made.add(source, target)
        source, target = source + 1, target + 1
    after = [at for offset, at in pairs.items() if offset >= asked]
    assert made.target_of(asked) == (after[0] if after else made.target_end)
    assert made.copied == len(pairs)
    assert sum(run.size for run in made.runs) == len(pairs)
    lost = {offset: at for offset, at in pairs.items() if at >= end}
    assert made.cut(end) == len(lost)
    assert made.target_end <= max(end, 5)
    assert made.following == (min(lost) if lost else max(made.following, 3))
    for offset, at in pairs.items():
        if offset not in lost:
            assert made.target_of(offset) == at


def test_a_map_that_does_not_ascend_is_refused() -> None:
    made = OffsetMap(0, 0, [MapRun(0, 0, 10)])
    for source, target in ((9, 20), (10, 9)):
        with pytest.raises(FormatError, match="doesn't ascend"):
            made.add(source, target)
    with pytest.raises(FormatError, match="doesn't ascend"):
        OffsetMap(0, 0, [MapRun(5, 5, 5), MapRun(2, 20, 1)])


@given(st.text(), st.text(), st.text())
def test_a_marker_is_read_as_it_was_written(cluster: str, broker: str, address: str) -> None:
    hop = Hop("0123", BrokerPlace(cluster, broker, address), 3, 17, 1_700_000_000_000)
    other = Hop("4567", A, 0, 0, 0)
    assert hops(marked(marked({"k": "v"}, hop), other)) == [hop, other]


@pytest.mark.parametrize("text", ["", ",", "a/b", "a/b/c/d/e/f/g", "a/b/c/d/1/2/-3", "x/c/a/h:1/1/2/3/4"])
def test_what_is_no_marker_is_none(text: str) -> None:
    assert hops({COPIED: text}) == []


def test_the_way_back_is_known_by_address_and_by_copy() -> None:
    words = marked({}, Hop("x", A, 0, 0, 0))
    assert WayBack("z", [A, B]).leads_to(words)
    assert not WayBack("z", [B]).leads_to(words)
    assert WayBack("x", [B]).leads_to(words)  # round by way of a broker that has another address now
    assert not WayBack("x", [A]).leads_to({})
    further = marked(words, Hop("y", B, 0, 0, 0))
    assert WayBack("z", [A]).leads_to(further)


def queues(broker: str, *numbers: int) -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in numbers]


def test_each_queue_has_one_of_its_own() -> None:
    here = [*queues("a", 0, 1, 2), *queues("b", 0)]
    there = [*queues("a", 0, 1), *queues("c", 0, 1)]
    kept = {here[2]: there[1]}
    made = pair(here, there, kept)
    assert made == {here[0]: there[0], here[1]: there[2], here[2]: there[1], here[3]: there[3]}
    with pytest.raises(NotFound, match="not at the target any more"):
        pair(here, there, {here[0]: MessageQueue("T", "gone", 0)})


def test_progress_is_kept(tmp_path: Path) -> None:
    progress = CopyProgress.new(["c/b", "c/a"], ["d/a"])
    queue = MessageQueue("T", "a", 1)
    progress.queues[queue] = QueueProgress(
        queue, MessageQueue("T", "b", 2), OffsetMap(7, 12, [MapRun(0, 7, 3), MapRun(5, 20, 2)]), 30, 1, 2, 3, 4
    )
    assert load(Disk(), tmp_path) is None
    save(Disk(), tmp_path, progress)
    again = load(Disk(), tmp_path)
    assert again is not None
    assert again.dump() == progress.dump()
    for text in ("", "[]", "{}", '{"format":9}', (tmp_path / MAP).read_text().replace('"looked":30', '"looked":"x"')):
        (tmp_path / MAP).write_text(text)
        with pytest.raises(FormatError, match="offset map"):
            load(Disk(), tmp_path)
