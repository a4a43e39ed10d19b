"""Queues of files in several directories: which one a new file goes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.placement import MultiPath, split_paths
from engine.files.queue import MappedFileQueue
from tests.engine.files.conftest import Place
from tests.engine.files.test_queue import SIZE, fill, names


def two_paths(place: Place, *full: str, read_only: tuple[str, ...] = ()) -> MultiPath:
    return MultiPath(
        [place.path(name) for name in ("b", "a", "c")],
        [place.path(name) for name in read_only],
        lambda: [place.path(name) for name in full],
    )


def where(place: Place, queue: MappedFileQueue) -> list[str]:
    return [Path(file.path).parent.name for file in queue.files]


def test_several_paths_take_turns(place: Place) -> None:
    queue = MappedFileQueue(place.disk, two_paths(place), SIZE)
    fill(queue, 5, SIZE * 4)
    assert where(place, queue) == ["b", "c", "a", "b", "c"]
    again = MappedFileQueue(place.disk, two_paths(place), SIZE)
    again.load()
    assert names(again) == [SIZE * number for number in range(4, 9)]
    assert again.check_self() == ()
    again.destroy()
    assert place.disk.listdir(place.root) == ()


def test_full_and_read_only_paths_are_passed_over(place: Place) -> None:
    queue = MappedFileQueue(place.disk, two_paths(place, "a"), SIZE)
    fill(queue, 3)
    assert where(place, queue) == ["b", "c", "b"]
    queue = MappedFileQueue(place.disk, two_paths(place, "b", "c", read_only=("a",)), SIZE)
    queue.load()
    assert names(queue) == [0, SIZE, SIZE * 2]
    fill(queue, 2)
    assert where(place, queue)[3:] == ["c", "b"]


def test_a_read_only_path_may_be_another_one(place: Place) -> None:
    policy = two_paths(place, read_only=("old",))
    assert policy.directories == tuple(place.path(name) for name in ("a", "b", "c", "old"))
    assert {Path(policy.place(SIZE * number, SIZE)).name for number in range(9)} == {"a", "b", "c"}


def test_nothing_writable_is_refused(place: Place) -> None:
    policy = two_paths(place, read_only=("a", "b", "c"))
    with pytest.raises(Exception, match="read-only"):
        policy.place(0, SIZE)


def test_split_paths() -> None:
    assert split_paths("/a, /b,,/c ") == ("/a", "/b", "/c")
    assert split_paths(None) == split_paths("  ") == ()
