"""The oldest segments of an archive are forgotten: from its beginning on, without a hole, and nothing else goes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine.backup.archive.archived import ArchivedSegment, archived_names, get_archived, put_archived
from engine.backup.archive.removal import RemovalPlan, forget_archived, plan_removal
from engine.backup.check import check_repository
from engine.backup.leases import Lease
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.repository import Repository
from engine.backup.retention import Keep
from engine.errors import InvalidArgument, StoreLocked
from tests.conftest import Store
from tests.engine.backup import archives, repositories
from tests.support.in_memory import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    return fixture_copy("clean-small")


@pytest.fixture
def repository(store: Path, tmp_path: Path) -> Repository:
    """With an archive, and no snapshot: what goes is in no other place."""
    made = repositories.new(tmp_path / "repository", None)
    snapshot = repositories.back_up(made, store)
    assert len(archives.expire(made, store).plan.segments) >= 3
    forget(made, plan_forget(made, [snapshot.name.snapshot_id], Keep(), None))
    prune(made, lambda _: True)
    return made


def segments(repository: Repository) -> list[ArchivedSegment]:
    return [get_archived(repository, name) for name in archived_names(repository)]


def removed(repository: Repository, before_ms: int, store: str | None = None) -> RemovalPlan:
    return forget_archived(repository, before_ms, store, lambda _: True)


def test_what_is_older_goes_and_the_rest_is_read_as_before(store: Path, repository: Repository) -> None:
    every = segments(repository)
    with archives.opened(repository, store) as reader:
        before = archives.messages(reader)
    assert not removed(repository, every[0].newest_time).changed
    plan = removed(repository, every[1].newest_time)
    (one,) = plan.archives
    assert (one.segments, one.begins, one.stay) == (1, every[1].offset, len(every) - 1)
    assert segments(repository) == every[1:]
    freed = prune(repository, lambda _: True)
    assert freed.names
    assert check_repository(repository, 1.0).bad == []
    kept = {
        queue: left
        for queue, some in before.items()
        if (left := [one for one in some if one.physical_offset >= every[1].offset])  # type: ignore[union-attr]
    }
    with archives.opened(repository, store) as reader:
        assert archives.messages(reader) == kept
        for queue, some in kept.items():
            topic, queue_id = queue.rsplit("/", 1)
            assert reader.min_offset(topic, int(queue_id)) == some[0].queue_offset  # type: ignore[union-attr]
        assert reader.log_range.startswith(f"store and archive hold offsets {every[1].offset} ")
    assert removed(repository, 1 << 50).archives[0].begins is None
    assert segments(repository) == []
    with archives.opened(repository, store) as reader:
        assert reader.log_range.startswith(f"store and archive hold offsets {reader.log.min_offset} ")
        archives.messages(reader)
    assert not removed(repository, 1 << 50).changed


def test_a_later_message_before_an_older_one_keeps_both(repository: Repository) -> None:
    """A clock that was set back: the beginning goes, or nothing."""
    first, second = segments(repository)[:2]
    name = archived_names(repository)[0]
    repository.objects.delete([name.name])
    put_archived(repository, name.archive, dataclasses.replace(first, newest_time=second.newest_time + 10))
    assert not removed(repository, second.newest_time + 1).changed
    assert removed(repository, second.newest_time + 11).archives[0].segments >= 2


def test_of_two_at_one_offset_the_one_that_counts_decides_and_goes_last(repository: Repository) -> None:
    first = segments(repository)[0]
    older = dataclasses.replace(first, archived=first.archived - 1, newest_time=1 << 49)
    name = put_archived(repository, archived_names(repository)[0].archive, older)
    (one,) = plan_removal(repository, first.newest_time + 1, None).archives
    assert one.names[0] == name
    assert [other.offset for other in one.names[:2]] == [0, 0]


def test_an_object_that_is_damaged_goes_with_what_is_after_it(repository: Repository, tmp_path: Path) -> None:
    every, names = segments(repository), archived_names(repository)
    (tmp_path / "repository" / names[1].name).write_bytes(b"RSTB")
    assert [one.offset for one in plan_removal(repository, every[1].newest_time + 1, None).archives[0].names] == [0]
    plan = removed(repository, every[2].newest_time + 1)
    assert plan.archives[0].segments >= 3
    prune(repository, lambda _: True)  # which a damaged object had refuse
    assert check_repository(repository, 1.0).bad == []


def test_of_one_store_and_alone(repository: Repository) -> None:
    with pytest.raises(InvalidArgument, match="no archive of a store b"):
        plan_removal(repository, 1 << 50, "b")
    assert plan_removal(repository, 1 << 50, "a").changed
    with Lease(repository.objects, "expire --archive"), pytest.raises(StoreLocked):
        removed(repository, 1 << 50)
    assert not forget_archived(repository, 1 << 50, "a", lambda _: False).archives[0].stay
    assert segments(repository)
