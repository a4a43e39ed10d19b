"""What Apache was given, given to our store: the same answers, and the same bytes in log, queues and index."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig, apache_key
from engine.format.message import decode
from engine.log.filters import TagFilter
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.compat import fixtures as compat
from tests.support import fixtures, golden
from tests.support.replay import Clock, replay

Store = Callable[[str], Path]
GOLDEN = ["clean-small", "crashed-small", "default-sizes-tiny"]
NAMES = [f"golden/{name}" for name in GOLDEN] + [f"fixtures/{name}" for name in fixtures.names()]
KEYS = {apache_key(field.name): field.name for field in dataclasses.fields(StoreConfig)}


@dataclasses.dataclass(frozen=True)
class Source:
    """A store of Apache's: how it was made, what it was given, what it read from it."""

    settings: dict[str, Any]
    puts: list[dict[str, Any]]
    log: list[dict[str, Any]]
    root: Path
    bit_maps: bool


@pytest.fixture(scope="module", params=NAMES)
def source(request: pytest.FixtureRequest, golden_store: Store, fixture_store: Store) -> Source:
    place, name = request.param.split("/")
    if place == "golden":
        given = {} if name == "default-sizes-tiny" else golden.SMALL_SETTINGS
        return Source(given, golden.puts(name), golden.dump(name, "log"), golden_store(name), False)
    manifest = compat.manifest(name)
    given = {KEYS[key]: value for key, value in manifest["settings"].items()}
    log = [line for line in compat.dump(name) if line["type"] == "log"]
    return Source(given, list(compat.puts(name)), log, fixture_store(name), name == "transient-ext")


@pytest.fixture(scope="module")
def replayed(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("replayed")
    clock = Clock()
    with MessageStore.open(StoreConfig(store_path_root_dir=root).with_changes(**source.settings), clock=clock) as store:
        results = replay(store, clock, source.puts, source.log)
        assert store.wait_dispatched()
        assert not store.findings
    for put, result in zip(source.puts, results, strict=True):
        expected = put["result"]
        assert result.status.value == expected["status"]
        append = result.append
        assert append is not None
        seen = (append.physical_offset, append.size, append.msg_id, append.queue_offset, append.message_count)
        assert seen == tuple(expected[k] for k in ("wroteOffset", "wroteBytes", "msgId", "logicsOffset", "msgNum"))
    return root


def files(root: Path, directory: str) -> dict[str, Path]:
    base = root / directory
    return {str(path.relative_to(base)): path for path in sorted(base.rglob("*")) if path.is_file()}


def used(path: Path) -> bytes:
    """The bytes of a file without the zeros at its end."""
    size, out = path.stat().st_size, []
    with path.open("rb") as file:
        for _ in range(0, size, 1 << 24):
            out.append(file.read(1 << 24).rstrip(b"\0") if size > 1 << 26 else file.read(1 << 24))
            if size > 1 << 26 and not out[-1]:
                break
    return b"".join(out).rstrip(b"\0")


def test_the_commit_log_is_apaches(replayed: Path, source: Source) -> None:
    ours, theirs = files(replayed, "commitlog"), files(source.root, "commitlog")
    made_ahead = {path for path in theirs if path not in ours}
    assert all(not used(theirs[path]) for path in made_ahead)
    assert set(ours) == set(theirs) - made_ahead
    for path in ours:
        assert ours[path].stat().st_size == theirs[path].stat().st_size
        assert used(ours[path]) == used(theirs[path]), path


def test_the_consume_queues_are_apaches(replayed: Path, source: Source) -> None:
    ours, theirs = files(replayed, "consumequeue"), files(source.root, "consumequeue")
    assert set(ours) == set(theirs)
    for path in ours:
        mine, apaches = ours[path].read_bytes(), theirs[path].read_bytes()
        if source.bit_maps:  # the units' addresses differ, as the extension has bit maps that no put brings
            mine, apaches = (b"".join(raw[at : at + 12] for at in range(0, len(raw), 20)) for raw in (mine, apaches))
        assert mine == apaches, path


def test_the_index_is_apaches(replayed: Path, source: Source) -> None:
    ours, theirs = files(replayed, "index"), files(source.root, "index")
    assert len(ours) == len(theirs)
    for mine, apaches in zip(sorted(ours), sorted(theirs), strict=True):
        assert ours[mine].stat().st_size == theirs[apaches].stat().st_size
        assert used(ours[mine]) == used(theirs[apaches])


def test_a_clean_close_leaves_no_abort_mark(replayed: Path) -> None:
    assert not (replayed / "abort").exists()


def test_the_view_reads_what_the_extension_has(source: Source) -> None:
    with ReadStore(StoreConfig(store_path_root_dir=source.root).with_changes(**source.settings)) as store:
        for queue in store.queues():
            at = store.min_offset(*queue)
            while at < store.max_offset(*queue):
                result = store.get(*queue, at, 32, TagFilter.parse("TagA"))
                assert all(decode(record).properties["TAGS"] == "TagA" for record in result.messages)
                assert result.next_begin_offset > at
                at = result.next_begin_offset
