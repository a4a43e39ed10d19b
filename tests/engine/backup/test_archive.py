"""Segments that expire deletes stay in the archive: every message is read as before, and none goes that is not held."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from engine.backup.archive.archived import ArchivedSegment, archived_names, get_archived, put_archived
from engine.backup.archive.keeping import ArchiveKeeper
from engine.backup.check import check_repository
from engine.backup.leases import Lease
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.retention import Keep
from engine.config import of_store
from engine.errors import FormatError, NotFound, Refused, RStoreError, StorageError, StoreLocked
from engine.files.disk import Disk
from engine.format import properties
from engine.format.message import StoredMessage, make_msg_id
from engine.inspect.dump.salvage_scan import scan_store
from engine.read_store import ReadStore
from engine.repair.expire.expire import ExpireRules, plan_expire
from tests.conftest import Store
from tests.engine.backup import archives, repositories
from tests.engine.opening import assert_sound
from tests.engine.repair.expire.test_expire import age
from tests.support import stores
from tests.support.in_memory import tmp_path
from tests.support.wide import sample

__all__ = ["tmp_path"]


def truth(store: Path) -> dict[str, list[object]]:
    with ReadStore(of_store(store)) as reader:
        return archives.messages(reader)


@pytest.mark.parametrize("name", ["clean-small", "transient-ext"])
@pytest.mark.parametrize("secret", [None, repositories.SECRET], ids=["open", "encrypted"])
def test_all_messages_are_read_as_before(name: str, secret: bytes | None, fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy(name)
    before = truth(store)
    log = repositories.log_of(store)
    repository = repositories.new(tmp_path / "repository", secret)
    repositories.back_up(repository, store)
    done = archives.expire(repository, store)
    assert done.plan.segments
    assert repositories.log_of(store).keys() < log.keys()
    after = truth(store)
    assert sum(map(len, after.values())) < sum(map(len, before.values()))
    with archives.opened(repository, store) as reader:
        assert archives.messages(reader) == before
        for queue, some in before.items():
            topic, queue_id = queue.rsplit("/", 1)
            assert reader.min_offset(topic, int(queue_id)) == some[0].queue_offset
    assert_sound(of_store(store))


def test_by_place_by_id_by_key_and_by_time(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    every = [one for some in truth(store).values() for one in some]
    with ReadStore(of_store(store)) as reader:
        keys = {
            (one.topic, word)
            for one in every
            for word in (
                one.properties.get(properties.UNIQ_KEY),
                *properties.key_words(one.properties.get(properties.KEYS)),
            )
            if word
        }
        by_key = {key: reader.query(*key, 64).offsets for key in sorted(keys)}
        times = sorted({one.store_timestamp for one in every})
        some_times = random.Random(1).sample(times, min(3, len(times)))
        bounds = {
            (queue, time): (reader.lower_bound(*queue, time), reader.upper_bound(*queue, time))
            for queue in reader.queues()
            for time in (*some_times, times[0] - 1, times[-1] + 1)
        }
        tagged = archives.messages(reader, tags="TagA")
    archives.expire(repository, store)
    with archives.opened(repository, store) as reader:
        border = reader.archived_below
        assert sum(one.physical_offset < border for one in every) > 10
        for one in every:
            assert reader.message_at(one.physical_offset) == one
        for one in random.Random(2).sample(every, 40):
            assert one in reader.find_message(make_msg_id(one.store_host, one.physical_offset))
        assert {key: reader.query(*key, 64).offsets for key in by_key} == by_key
        assert {
            (queue, time): (reader.lower_bound(*queue, time), reader.upper_bound(*queue, time))
            for queue, time in bounds
        } == bounds
        assert archives.messages(reader, tags="TagA") == tagged


def test_what_no_snapshot_holds_stays(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    before = stores.snapshot(store)
    done = archives.expire(repository, store)
    assert not done.plan.segments
    assert done.plan.pinned == "segment 0: no snapshot of store 'a' has it: rstore backup create"
    assert stores.snapshot(store) == before


def test_a_snapshot_of_another_store_of_this_name_holds_nothing(
    fixture_store: Store, fixture_copy: Store, tmp_path: Path
) -> None:
    store = fixture_copy("clean-small")
    other = fixture_copy("lmq")
    first = min(path.name for path in (other / "commitlog").iterdir())
    assert (store / "commitlog" / first).stat().st_size == (other / "commitlog" / first).stat().st_size
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, other)
    done = archives.expire(repository, store)
    assert not done.plan.segments
    assert done.plan.pinned == "segment 0: the snapshot has other bytes from 0 on: rstore backup create --full"
    repositories.back_up(repository, store)
    assert len(archives.expire(repository, store).plan.segments) >= 2


@pytest.mark.parametrize("how", ["flip", "gone"])
def test_a_damaged_piece_keeps_its_segment(how: str, fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    snapshot = repositories.back_up(repository, store).snapshot
    bad = snapshot.segments[1]
    piece = repository.get_segment(bad.pieces).pieces[0]
    assert piece is not None
    path = tmp_path / "repository" / "pieces" / piece[:2] / piece
    if how == "gone":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    done = archives.expire(repository, store)
    assert [one.offset for one in done.plan.segments] == [snapshot.segments[0].offset]
    assert done.plan.pinned.startswith(f"segment {bad.offset}: ")
    assert piece in done.plan.pinned
    assert (store / "commitlog" / f"{bad.offset:020}").exists()
    repositories.back_up(repository, store, full=True)  # as the plan says
    assert archives.expire(repository, store).plan.segments


@pytest.mark.parametrize("is_right", [True, False])
def test_a_piece_in_parts_is_compared_by_its_bytes(is_right: bool, fixture_copy: Store, tmp_path: Path) -> None:
    """As a follower leaves the last piece of a segment."""
    store = fixture_copy("clean-small")
    before = truth(store)
    repository = repositories.new(tmp_path / "repository")
    made = repositories.back_up(repository, store)
    first = repository.get_segment(made.snapshot.segments[0].pieces)
    (piece,) = first.pieces
    assert piece is not None
    data = repository.get_piece(piece)
    parts = [data[:1000], data[1000:70_000], data[70_000:] if is_right else data[70_000:] + b"x"]
    joined = dataclasses.replace(first, pieces=("+".join(repository.put_piece(part)[0] for part in parts),))
    name, _ = repository.put_segment(joined)
    segments = (dataclasses.replace(made.snapshot.segments[0], pieces=name), *made.snapshot.segments[1:])
    forget(repository, plan_forget(repository, [made.name.snapshot_id], Keep(), None))
    repository.put_snapshot(dataclasses.replace(made.snapshot, segments=segments))
    plan = archives.expire(repository, store).plan
    assert bool(plan.segments) is is_right
    if is_right:
        prune(repository, lambda _: True)
        with archives.opened(repository, store) as reader:
            assert archives.messages(reader) == before


def test_a_byte_of_the_store_that_changed_keeps_its_segment(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    first = min((store / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[200] ^= 1
    first.write_bytes(data)
    assert "other bytes" in archives.expire(repository, store).plan.pinned
    data[200] ^= 1
    first.write_bytes(data)
    assert archives.expire(repository, store).plan.segments


OLDEST = ExpireRules(forced=True)
POLICIES = (Keep(last=1), Keep(hourly=1), Keep(daily=1), Keep(weekly=1), Keep(monthly=1), Keep(yearly=1))


@pytest.mark.wide
@pytest.mark.parametrize("seed", sample(range(12), 6, 1))
def test_forget_and_prune_never_lose_what_the_archive_alone_has(
    seed: int, fixture_copy: Store, fixture_store: Store, tmp_path: Path
) -> None:
    """Rounds of backup, expire, forget by all policies or of every snapshot, and prune, in a seeded order."""
    choices = random.Random(seed)
    store = fixture_copy("clean-small")
    before = truth(store)
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, store)
    expired = 0
    for _ in range(14):
        match choices.randrange(5):
            case 0:
                repositories.back_up(repository, choices.choice([store, fixture_store("lmq")]))
            case 1:
                expired += len(archives.expire(repository, store).plan.segments)
            case 2 if repository.snapshots():
                forget(repository, plan_forget(repository, (), choices.choice(POLICIES), None))
            case 3 if repository.snapshots():
                ids = [one.snapshot_id for one in repository.snapshots()]
                forget(repository, plan_forget(repository, ids, Keep(), None))
            case _:
                prune(repository, lambda _: True)
        result = check_repository(repository, 1.0)
        assert not result.bad
        if expired:
            with archives.opened(repository, store) as reader:
                assert archives.messages(reader) == before
    repositories.back_up(repository, store)
    archives.expire(repository, store)
    forget(repository, plan_forget(repository, [one.snapshot_id for one in repository.snapshots()], Keep(), None))
    prune(repository, lambda _: True)
    assert check_repository(repository, 1.0).unused == 0
    with archives.opened(repository, store) as reader:
        assert archives.messages(reader) == before


def test_prune_and_expire_do_not_work_at_once(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    before = stores.snapshot(store)
    with Lease(repository.objects, "backup prune", removes=True), pytest.raises(StoreLocked, match="backup prune"):
        archives.expire(repository, store)
    assert stores.snapshot(store) == before
    keeper = ArchiveKeeper(repository, "a")
    disk, config = Disk(), of_store(store)
    with keeper.hold():
        plan = plan_expire(disk, config, archives.NOW, archive=keeper)
        with pytest.raises(StoreLocked, match="expire --archive"):
            prune(repository, lambda _: True)
        repository.objects.delete([one.name for one in repository.objects.list("leases")])  # as one taken for dead
        forget(repository, plan_forget(repository, [repository.snapshots()[0].snapshot_id], Keep(), None))
        prune(repository, lambda _: True)
        assert plan.held
        with pytest.raises((StoreLocked, NotFound)):
            keeper.keep(disk, plan.files, plan.held, None)
    assert repositories.log_of(store).keys() == {path.name for path in (store / "commitlog").iterdir()}


def test_a_scan_past_damage_reads_through(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    first = min((store / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[5000:5040] = bytes(40)
    first.write_bytes(data)
    repositories.back_up(repository, store)
    config = of_store(store)
    expected = scan_store(Disk(), config)
    assert expected.lost_bytes
    archives.expire(repository, store)
    assert not scan_store(Disk(), config).lost
    with archives.opened(repository, store) as reader:
        report = scan_store(Disk(), config, through=reader.source)
        assert (report.sound, report.lost_bytes, report.blanks) == (
            expected.sound,
            expected.lost_bytes,
            expected.blanks,
        )
        assert [one.offset for one in report.lost] == [one.offset for one in expected.lost]


def test_the_archive_is_that_of_the_note(fixture_copy: Store, tmp_path: Path) -> None:
    """The note is restored with the store; a store made anew at the place does not see the old one's messages."""
    store = fixture_copy("clean-small")
    before = truth(store)
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    archives.expire(repository, store)
    repositories.back_up(repository, store)
    repositories.bring_back(repository, tmp_path / "restored")
    with archives.opened(repository, tmp_path / "restored") as reader:
        assert archives.messages(reader) == before
    anew = fixture_copy("lmq")
    with pytest.raises(NotFound, match="no archive of a store"):
        archives.opened(repository, anew)
    elsewhere = repositories.new(tmp_path / "elsewhere")
    repositories.back_up(elsewhere, store)
    with pytest.raises(Refused, match="the store's archive is in another repository"):
        archives.expire(elsewhere, store)


@pytest.mark.leaves("log-damage")
def test_a_copy_that_went_on_by_itself_does_not_mix_with_the_original(fixture_copy: Store, tmp_path: Path) -> None:
    """Restored, both have the note; what the copy wrote since lies at offsets where the original has other messages."""
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    snapshot = repositories.back_up(repository, store).snapshot
    age(store, [24 * 300] + [0] * 9)
    archives.expire(repository, store, rules=OLDEST)
    copy = stores.copy(store, tmp_path / "copy")
    second = copy / "commitlog" / f"{snapshot.segments[1].offset:020}"
    data = bytearray(second.read_bytes())
    data[300] ^= 1  # other bytes will do
    second.write_bytes(data)
    repositories.back_up(repository, copy)
    for one in (store, copy):
        age(one, [24 * 300] + [0] * 9)
    assert len(archives.expire(repository, store, rules=OLDEST).plan.segments) == 1
    plan = archives.expire(repository, copy, rules=OLDEST).plan
    assert (len(plan.segments), "this store is a copy of it" in plan.pinned) == (0, True)


def test_a_damaged_archive_is_told_and_the_rest_is_read(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository", None)
    snapshot = repositories.back_up(repository, store).snapshot
    archives.expire(repository, store)
    piece = repository.get_segment(snapshot.segments[0].pieces).pieces[0]
    assert piece is not None
    (tmp_path / "repository" / "pieces" / piece[:2] / piece).write_bytes(b"RSTB")
    (bad,) = check_repository(repository, 1.0).bad
    assert "archive" in bad.snapshots
    with archives.opened(repository, store) as reader:
        second = snapshot.segments[1].offset
        with pytest.raises(StorageError, match="the repository can't give it"):
            reader.message_at(0)
        assert isinstance(reader.message_at(second), StoredMessage)


def test_hostile_archived_segments(fixture_copy: Store, tmp_path: Path) -> None:
    """Fields that are missing, of other types, negative or huge: refused, or read without more than errors of ours."""
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, store)
    archives.expire(repository, store)
    name = archived_names(repository)[0]
    fields = json.loads(get_archived(repository, name).encode())
    some = json.dumps(fields["queues"][0][2][0])
    refused = 0
    for changed in (
        *({key: value} for key in fields for value in (None, -1, 1 << 70, "x", [], {}, [[1]], [None])),
        *(
            {"queues": [["T", 0, [run]]]}
            for run in ([0, 0, 1 << 40], [0, 1 << 40, 1], [-1, 0, 1], [0, 0, 0], [0, -1, 2])
        ),
        {"queues": [["T", "0", [json.loads(some)]]]},
        {"keys": [[5, "0" * 64], [4, "0" * 64]]},
    ):
        try:
            made = ArchivedSegment.decode(json.dumps({**fields, **changed}).encode(), "here")
        except FormatError:
            refused += 1
            continue
        repository.objects.delete([name.name])
        again = put_archived(repository, name.archive, made)
        try:
            with archives.opened(repository, store) as reader:
                archives.messages(reader)
                reader.query("T", "k")
        except RStoreError:
            refused += 1
        repository.objects.delete([again.name])
    assert refused > 80
    for data in (b"", b"[]", b"{", b"null", b'{"format":2}', b"\xff"):
        with pytest.raises(FormatError):
            ArchivedSegment.decode(data, "here")
