"""What Apache was given, given to our store: the same answers, and the same bytes in log, queues and index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.store import MessageStore
from tests.support import golden
from tests.support.replay import Clock, replay

Store = Callable[[str], Path]
NAMES = ["clean-small", "crashed-small", "default-sizes-tiny"]
BLANK = 8


def settings(name: str) -> dict[str, int]:
    return {} if name == "default-sizes-tiny" else golden.SMALL_SETTINGS


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


@pytest.fixture(scope="module", params=NAMES)
def replayed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    name = request.param
    golden.need()
    root = tmp_path_factory.mktemp("replayed") / name
    config = StoreConfig(store_path_root_dir=root).with_changes(**settings(name))
    clock = Clock()
    puts = golden.puts(name)
    with MessageStore.open(config, clock=clock) as store:
        results = replay(store, clock, puts, golden.dump(name, "log"))
        assert store.wait_dispatched(30_000)
        assert not store.findings
    for put, result in zip(puts, results, strict=True):
        expected = put["result"]
        assert result.status.value == expected["status"]
        append = result.append
        assert append is not None
        seen = (append.physical_offset, append.size, append.msg_id, append.queue_offset, append.message_count)
        assert seen == tuple(expected[k] for k in ("wroteOffset", "wroteBytes", "msgId", "logicsOffset", "msgNum"))
    return name, root


def test_the_commit_log_is_apaches(replayed: tuple[str, Path], golden_store: Store) -> None:
    name, root = replayed
    ours, theirs = files(root, "commitlog"), files(golden_store(name), "commitlog")
    made_ahead = {path for path in theirs if path not in ours}
    assert all(not used(theirs[path]) for path in made_ahead)
    assert set(ours) == set(theirs) - made_ahead
    for path in ours:
        assert ours[path].stat().st_size == theirs[path].stat().st_size
        assert used(ours[path]) == used(theirs[path]), path


def test_the_consume_queues_are_apaches(replayed: tuple[str, Path], golden_store: Store) -> None:
    name, root = replayed
    ours, theirs = files(root, "consumequeue"), files(golden_store(name), "consumequeue")
    assert set(ours) == set(theirs)
    for path in ours:
        assert ours[path].read_bytes() == theirs[path].read_bytes(), path


def test_the_index_is_apaches(replayed: tuple[str, Path], golden_store: Store) -> None:
    name, root = replayed
    ours, theirs = files(root, "index"), files(golden_store(name), "index")
    assert len(ours) == len(theirs)
    for mine, golden_file in zip(sorted(ours), sorted(theirs), strict=True):
        assert ours[mine].stat().st_size == theirs[golden_file].stat().st_size
        assert used(ours[mine]) == used(theirs[golden_file])


def test_a_clean_close_leaves_no_abort_mark(replayed: tuple[str, Path]) -> None:
    assert not (replayed[1] / "abort").exists()
