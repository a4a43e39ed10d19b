"""Which snapshots are meant by what is typed, what is planned of them, and that no key goes anywhere."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.backup.create.create import Created, CreateOptions, create
from engine.backup.repository import Repository
from engine.backup.secret import KEY_VARIABLE, KeySource
from engine.config import StoreConfig, of_store
from engine.errors import InvalidArgument, NotARepository, NotFound, Refused, WrongKey
from engine.files.disk import Disk
from engine.pipeline import options as source_options
from engine.pipeline.exported import ExportedStore, Manifest
from engine.pipeline.filters import Range, Wanted
from engine.pipeline.options import SourceOptions
from engine.pipeline.planning import plan
from engine.pipeline.repositories import RepositoryChoice, disk_of, opened, snapshot_disk
from engine.pipeline.splits import log_end, plan_splits
from engine.pipeline.stores import find_stores, find_two
from engine.store import MessageStore
from tests.engine.backup import archives, repositories
from tests.engine.opening import message, small

Store = Callable[[str], Path]
HOUR = 3_600_000
FIRST = 1_700_000_000_000


def back_up(repository: Repository, name: str, store: Path | StoreConfig) -> Created:
    config = store if isinstance(store, StoreConfig) else of_store(store)
    return create(Disk(), config, repository, CreateOptions(name))


@pytest.fixture
def key(tmp_path: Path) -> KeySource:
    (tmp_path / "key").write_bytes(repositories.SECRET + b"\n")
    return KeySource(str(tmp_path / "key"))


def grown(root: Path, hours: int) -> StoreConfig:
    """Some messages each hour, some hours a segment."""
    config = small(root)
    for hour in range(hours):
        with MessageStore.open(config, clock=lambda hour=hour: FIRST + hour * HOUR) as store:
            for number in range(20):
                assert store.put(message(bytes(1500), number % 2)).ok
    return config


def names(*places: str, choice: RepositoryChoice, repos: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    refs = find_stores(places, repositories=repos, choice=choice)
    return [(ref.name, "" if ref.snapshot is None else ref.snapshot.name.short) for ref in refs]


def test_the_latest_of_each_store(fixture_store: Store, tmp_path: Path, key: KeySource) -> None:
    small_store, light = fixture_store("clean-small"), fixture_store("lmq")
    repository = repositories.new(tmp_path / "r" / "one")
    first = back_up(repository, "b", small_store).name
    other = back_up(repository, "a", light).name
    last = back_up(repository, "b", small_store).name
    place, choice = str(tmp_path / "r" / "one"), RepositoryChoice(key=key)
    both = [("a", other.short), ("b", last.short)]
    assert names(place, choice=choice) == both
    assert names(choice=choice, repos=(place,)) == both
    assert names(f"{place}@latest", choice=choice) == both
    assert names(f"{place}@{first.snapshot_id}", choice=choice) == [("b", first.short)]
    assert names(f"old={place}@{first.short}", place, choice=choice) == [("old", first.short), *both]
    assert names(place, choice=RepositoryChoice(None, ("b",), key)) == both[1:]
    assert names(place, choice=RepositoryChoice(first.short, (), key)) == [("b", first.short)]
    assert names(place, str(small_store), choice=choice) == [*both, (small_store.name, "")]
    with pytest.raises(NotFound, match="no snapshot of store 'c'"):
        names(place, choice=RepositoryChoice(None, ("c",), key))
    with pytest.raises(NotFound, match="no snapshot has an id that begins with 'ffffffff'"):
        names(f"{place}@ffffffff", choice=choice)
    with pytest.raises(Refused, match="two stores are named b"):
        names(place, f"{place}@{first.short}", choice=choice)
    with pytest.raises(NotARepository):
        names(choice=choice, repos=(str(small_store),))

    one, two = find_two([f"{place}@{first.short}", f"{place}@{last.short}"], choice=choice)
    assert [one.name, two.name] == [f"b@{first.short}", f"b@{last.short}"]
    one, two = find_two([str(light), f"{place}@{other.short}"], choice=choice)
    assert [one.name, two.name] == [light.name, "a"]
    with pytest.raises(InvalidArgument, match="diff takes two stores, not 3"):
        find_two([place, str(light)], choice=choice)


def test_a_fleet_of_repositories(fixture_store: Store, tmp_path: Path, key: KeySource) -> None:
    for place in ("east", "west"):
        repository = repositories.new(tmp_path / "r" / place)
        back_up(repository, "store", fixture_store("clean-small"))
        back_up(repository, f"only-{place}", fixture_store("lmq"))
    choice = RepositoryChoice(key=key)
    wanted = ["east.store", "only-east", "only-west", "west.store"]
    assert sorted(name for name, _ in names(f"{tmp_path}/r/*", choice=choice)) == wanted
    assert sorted(name for name, _ in names(choice=choice, repos=(f"{tmp_path}/r/*",))) == wanted


def test_keys(fixture_store: Store, tmp_path: Path, key: KeySource, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "r"
    back_up(repositories.new(place), "a", fixture_store("clean-small"))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(WrongKey, match="the repository is encrypted"):
        find_stores([str(place)])
    (tmp_path / "other").write_text("another key")
    with pytest.raises(WrongKey, match="opens none"):
        find_stores([str(place)], choice=RepositoryChoice(key=KeySource(str(tmp_path / "other"))))
    sources = [key, KeySource(None, f"cat '{tmp_path}/key'"), KeySource()]
    monkeypatch.setenv(KEY_VARIABLE, repositories.SECRET.decode())
    for source in sources:
        (ref,) = find_stores([str(place)], choice=RepositoryChoice(key=source))
        assert ref.snapshot is not None
        sent = pickle.dumps(ref)
        assert repositories.SECRET not in sent
        assert opened(ref.snapshot)[0].main_key not in sent
        assert snapshot_disk(pickle.loads(sent).snapshot).snapshot.store == "a"
        opened.cache_clear()


def test_options_of_the_data_source() -> None:
    parsed = source_options.parse(
        {"path": "/r@abcd,s3://bucket/r", "storeName": "a, b", "snapshot": "ABCD", "keyFile": "/k"}
    )
    assert parsed.places == ("/r@abcd", "s3://bucket/r")
    assert parsed.repositories == RepositoryChoice("ABCD", ("a", "b"), KeySource("/k"))
    with pytest.raises(InvalidArgument) as error:
        source_options.parse({"path": "/r", "key": "the key itself"})
    assert "the key itself" not in str(error.value)


def ref_of(place: Path, key: KeySource) -> Any:
    """Of the only store."""
    (ref,) = find_stores([str(place)], choice=RepositoryChoice(key=key))
    return ref


@pytest.mark.parametrize("how", ["note", "name", "older"])
def test_archived_segments_are_before_the_snapshot_and_none_is_there_twice(
    how: str, fixture_copy: Store, tmp_path: Path, key: KeySource
) -> None:
    """The archive is that of the note, which a snapshot may be older than; what a snapshot has is its own."""
    store, place = fixture_copy("clean-small"), tmp_path / "r"
    before = find_stores([f"a={store}"])[0].segments
    repository = repositories.new(place)
    older = repositories.back_up(repository, store).name.short
    archives.expire(repository, store)
    left = find_stores([f"a={store}"])[0].segments
    assert 0 < len(left) < len(before)
    if how == "name":
        (store / "config" / "rstoreArchive.json").unlink()
    repositories.back_up(repository, store)
    choice = RepositoryChoice(older if how == "older" else None, (), key, archived=True)
    (ref,) = find_stores([str(place)], choice=choice)
    assert [(one.offset, one.size) for one in ref.segments] == [(one.offset, one.size) for one in before]
    assert ref.snapshot is not None
    assert len(ref.snapshot.archived) == (0 if how == "older" else len(before) - len(left))
    (plain,) = find_stores([str(place)], choice=RepositoryChoice(choice.snapshot, (), key))
    assert len(plain.segments) == len(before if how == "older" else left)
    options = SourceOptions(split_bytes=30_000)
    shares = plan(ref, options, Wanted(), disk_of(ref))
    assert {share.split.start for share in shares} >= {one.offset for one in before}
    first = disk_of(ref).log.pieces_of(ref.segments[0]).newest_time  # type: ignore[attr-defined]
    until = Wanted(store_timestamp=Range(high=first))
    assert {share.split.segment for share in plan(ref, options, until, disk_of(ref))} >= {ref.segments[0]}
    for share in shares:
        snapshot = share.split.store.snapshot
        assert snapshot is not None
        assert len(snapshot.archived) <= 1
        assert snapshot_disk(pickle.loads(pickle.dumps(snapshot))).exists(share.split.segment.path)


@pytest.mark.parametrize("split_bytes", [30_000])
def test_the_same_splits(fixture_store: Store, tmp_path: Path, key: KeySource, split_bytes: int) -> None:
    """A split of a snapshot's is that of its store, to the byte: they are read by the same rules."""
    for name in ("clean-small", "crashed-small"):
        store = fixture_store(name)
        back_up(repositories.new(tmp_path / name), "a", store)
        ref, (own,) = ref_of(tmp_path / name, key), find_stores([str(store)])
        assert log_end(ref, disk_of(ref)) == log_end(own, Disk())
        options = SourceOptions(split_bytes=split_bytes)
        ours, theirs = (plan(one, options, Wanted(), disk_of(one)) for one in (ref, own))
        assert [(s.split.start, s.split.end, s.split.log_end) for s in ours] == [
            (s.split.start, s.split.end, s.split.log_end) for s in theirs
        ]
        assert len(plan_splits([ref], split_bytes=split_bytes)) <= len(plan_splits([own], split_bytes=split_bytes))


def test_segments_of_other_times_are_left_out(tmp_path: Path, key: KeySource) -> None:
    config = grown(tmp_path / "s", 12)
    back_up(repositories.new(tmp_path / "r"), "a", config)
    ref = ref_of(tmp_path / "r", key)
    assert len(ref.segments) > 4

    def planned(low: int, high: int, slack: int = 0) -> set[int]:
        wanted = Wanted(store_timestamp=Range(FIRST + low * HOUR, FIRST + high * HOUR))
        shares = plan(ref, SourceOptions(clock_slack=slack), wanted, disk_of(ref))
        return {share.split.segment.offset for share in shares}

    assert planned(0, 12) == {segment.offset for segment in ref.segments}
    log = snapshot_disk(ref.snapshot).log
    listed = {one.offset: log.pieces_of(one) for one in log.segments}
    for low, high in ((3, 4), (9, 30), (-5, 0)):
        within = {
            offset
            for offset, one in listed.items()
            if one.first_time <= FIRST + high * HOUR and one.newest_time >= FIRST + low * HOUR
        }
        assert planned(low, high) == within
        assert len(within) < len(listed) / 2
    assert planned(30, 40) == set()
    assert planned(-9, -5) == set()
    assert planned(-9, -5, slack=5 * HOUR) == {0}


def test_what_a_table_says_of_snapshots() -> None:
    store = ExportedStore(snapshots=[("1a" * 16, 0, 100)])
    for by, version in (("day", 1), ("hour", 2)):
        said = Manifest(("store",), False, {"a": store}, by).to_json()
        assert said["version"] == version
        assert Manifest.of_json(said, "x") == Manifest(("store",), False, {"a": store}, by)
    older = Manifest(("store",), False, {"a": ExportedStore()}).to_json()
    del older["by"], older["stores"]["a"]["snapshots"]
    assert Manifest.of_json(older, "x").by == "day"
