"""Messages put in one go are what puts one by one make of them: the same files to the byte, answers and errors."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import FlushDiskType, StoreConfig
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.format import names, sysflag
from engine.format.hosts import Host
from engine.format.message import Message
from engine.format.properties import DELAY, INNER_MULTI_DISPATCH
from engine.format.properties import join as names_joined
from engine.log import prepare_run
from engine.log.append_run import append_run
from engine.log.run_columns import RunColumns
from engine.put_run import PutAnswer, PutRun
from engine.store import MessageStore
from tests.engine.opening import assert_sound, small
from tests.support import strategies
from tests.support.wide import examples

NOW = 1_700_000_000_000
EVERY = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
NAMES = ["KEYS", "TAGS", "ü", "x"]
OTHERS = [{DELAY: "3"}, {DELAY: "x"}, {DELAY: "99"}, {INNER_MULTI_DISPATCH: "p,q"}, {"__CRC32#": "1"}]
"""Properties of messages that are put one by one, in some stores."""
HOSTS = [Host(b"\x7f\0\0\1", 1), Host(bytes(range(16)), 2), Host(b"\x0a\0\0\1", 3)]
LONG = names.RETRY_PREFIX + "g" * 200


@pytest.fixture(autouse=True)
def kernels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(prepare_run, "MANY", 0)


class Still(FaultyDisk):
    """A disk whose clock stands still, so that two stores are alike."""

    def now_ms(self) -> int:
        return NOW


def plain(chance: Random, count: int) -> list[Message]:
    """Messages of a few topics and queues, as clients send them."""
    return [
        Message(
            chance.choice("AB") * chance.choice([1, 5]),
            chance.randbytes(chance.choice([0, 1, 15, 16, 17, 300, 2000])),
            chance.randrange(3),
            {name: "v" * chance.randrange(1, 9) for name in chance.sample(NAMES, chance.randrange(4))},
            chance.choice([0, 0, 7]),
            chance.choice([0, 0, sysflag.COMPRESSED, sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_PREPARED]),
            NOW - chance.randrange(5),
            chance.choice(HOSTS),
            chance.choice(HOSTS),
            chance.choice([0, 0, 3]),
        )
        for _ in range(count)
    ]


def put_all(
    config: StoreConfig,
    blocks: Sequence[Sequence[Message]],
    *,
    runs: bool,
    disk: Disk | None = None,
    healed: bool = False,
) -> tuple[list[PutAnswer], str | None, dict[str, bytes]]:
    """The answers, the error, and the files of log, queues and index when the store is closed."""
    answers: list[PutAnswer] = []
    failed: str | None = None
    disk = disk or Still(None)
    store = MessageStore.open(config, disk, clock=lambda: NOW)
    try:
        run = PutRun(store)
        each = run.blocks(blocks) if runs else run.each(message for block in blocks for message in block)
        answers.extend(each)
    except RStoreError as error:
        failed = f"{type(error).__name__} {error.message}"
    finally:
        if healed and isinstance(disk, FaultyDisk):
            disk.heal()
        assert (run.messages, run.size) == (len(answers), sum(answer.store_size for answer in answers))
        assert store.wait_dispatched()
        store.close()
    assert_sound(config, disk)
    return answers, failed, files(Path(config.store_path_root_dir))


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for part in (names.COMMITLOG, names.CONSUMEQUEUE, names.INDEX)
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def same(
    root: Path, blocks: Sequence[Sequence[Message]], **changes: Any
) -> tuple[list[PutAnswer], str | None, dict[str, bytes]]:
    """Put both ways into new stores; both are alike."""
    results = [put_all(small(root / how, **changes), blocks, runs=how == "runs") for how in ("runs", "each")]
    (answers, failed, one), (others, also, other) = results
    assert (answers, failed) == (others, also)
    assert one.keys() == other.keys()
    for path, data in one.items():
        assert data == other[path], path
    return results[0]


def cut(messages: list[Message], chance: Random) -> list[list[Message]]:
    """In blocks of any size."""
    blocks = []
    while messages:
        size = chance.choice([1, 15, 16, 40, 200])
        blocks.append(messages[:size])
        messages = messages[size:]
    return blocks


KINDS: dict[str, dict[str, Any]] = {
    "4.9": {},
    "property CRCs, long topics": {"property_crcs": True, "long_topics": True},
    "further queues": {"enable_multi_dispatch": True},
    "write buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
    "flushed": {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.leaves("unit-foreign") if "further" in kind else ()) for kind in KINDS],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_runs_are_puts_one_by_one(kind: str, seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    messages = plain(chance, 600)
    for at in chance.sample(range(600), 12):  # what is not plain, in between
        messages[at] = messages[at]._replace(properties=chance.choice(OTHERS))
    messages[100] = messages[100]._replace(prepared_transaction_offset=5)
    answers, failed, _ = same(tmp_path, cut(messages, chance), **KINDS[kind])
    assert (len(answers), failed) == (600, None)


REFUSED = {
    "topic": {"topic": "t" * 128},
    "no directory": {"topic": "a/b"},
    "no topic": {"topic": ""},
    "queue": {"queue_id": 1 << 31},
    "flag": {"flag": -(1 << 40)},
    "born": {"born_timestamp": 1 << 63},
    "properties": {"properties": {"a": "x" * 32766}},
    "properties in bytes": {"properties": {"a": "ü" * 16400}},
    "body": {"body": bytes(9001)},
    "record": {"body": bytes(65500)},
    "transaction": {"prepared_transaction_offset": 1 << 70},
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("wrong", REFUSED)
def test_the_first_that_is_refused_ends_it(wrong: str, sealed: bool, tmp_path: Path) -> None:
    messages = plain(Random(3), 100)
    messages[60] = messages[60]._replace(**REFUSED[wrong])
    limit = 9000 if wrong == "body" else 1 << 22
    answers, failed, _ = same(tmp_path, [messages], property_crcs=sealed, max_message_size=limit)
    assert failed is not None
    assert len(answers) == 60
    assert "60 messages were put before it" in failed


@pytest.mark.parametrize("topic", [LONG, LONG[:200]])
def test_topics_of_two_length_bytes(topic: str, tmp_path: Path) -> None:
    messages = [message._replace(topic=topic) for message in plain(Random(4), 50)]
    assert same(tmp_path / "new", [messages], long_topics=True)[1] is None
    assert same(tmp_path / "old", [messages])[1] is not None


@pytest.mark.wide
@EVERY
@given(st.lists(strategies.messages, min_size=16, max_size=40))
def test_any_messages(messages: list[Message]) -> None:
    with TemporaryDirectory() as root:
        for message in messages:
            same(Path(root) / "a", [[message] * 16])
            break
        same(Path(root) / "b", [messages])
        taken = [one._replace(topic=f"T{len(one.topic) % 3}", prepared_transaction_offset=0) for one in messages]
        same(Path(root) / "c", [taken], property_crcs=True)


@pytest.mark.parametrize("mapped", [True, False], ids=["map", "channel"])
@pytest.mark.parametrize("operations", [1, 2, 5, 9])
def test_a_full_disk(operations: int, mapped: bool, tmp_path: Path) -> None:
    """No file of the log more: what fits into the last one is stored, and the same is said."""
    results = []
    for how in ("runs", "each"):
        config = small(tmp_path / how, mapped_file_size_commit_log=8192)
        (tmp_path / how).mkdir()
        disk = Still(None, mapped=mapped)
        seen = 0

        def full(doing: Any) -> bool:
            nonlocal seen
            if doing.operation is not Operation.CREATE or names.COMMITLOG not in doing.path:
                return False  # a queue without a file refuses puts, too, as soon as dispatch has noticed
            seen += 1
            return seen > operations

        disk.fail_when(full, errno.ENOSPC)
        results.append(
            put_all(config, cut(plain(Random(5), 400), Random(6)), runs=how == "runs", disk=disk, healed=True)
        )
    (answers, failed, one), (others, also, other) = results
    assert failed is not None
    assert [a.physical_offset for a in answers] == [a.physical_offset for a in others]
    assert failed.replace("runs", "each") == also
    assert {path: data for path, data in one.items() if names.INDEX not in path} == {
        path: data for path, data in other.items() if names.INDEX not in path
    }


@pytest.mark.parametrize("mapped", [True, False], ids=["map", "channel"])
def test_a_write_that_fails_is_put_again_one_by_one(mapped: bool, tmp_path: Path) -> None:
    """One write of many records fails in the middle: what it left is no record, and the rest is put all the same."""
    config = small(tmp_path / "store")
    disk = Still(None, mapped=mapped)
    failures = iter([True, True])

    def fails(doing: Any) -> bool:
        return (
            doing.operation is Operation.WRITE
            and names.COMMITLOG in doing.path
            and doing.length > 4096
            and next(failures, False)
        )

    (tmp_path / "store").mkdir()
    disk.fail_when(fails, errno.EIO)
    answers, failed, stored = put_all(config, [plain(Random(7), 300)], runs=True, disk=disk)
    others, _, other = put_all(small(tmp_path / "each"), [plain(Random(7), 300)], runs=False)
    assert next(failures, None) is None
    assert failed is None
    assert answers == others
    assert stored == other


def test_runs_are_what_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare puts one by one with themselves."""
    lengths: list[int] = []

    def counted(*arguments: Any) -> Any:
        run = append_run(*arguments)
        lengths.append(len(run))
        return run

    monkeypatch.setattr("engine.log.commitlog.append_run", counted)
    assert len(same(tmp_path, [plain(Random(8), 200)])[0]) == 200
    assert lengths == [200]


def columns(messages: Sequence[Message]) -> RunColumns:
    """The same topics, queues, bodies and properties as columns, with hosts and a time in common."""
    raws = [names_joined(message.properties).encode() for message in messages]
    places = list(dict.fromkeys((message.topic, message.queue_id) for message in messages))
    lengths = ([len(text) for text in texts] for texts in ([message.body for message in messages], raws))
    body_length, own_length = (np.array(of, dtype=np.int64) for of in lengths)
    bodies, texts = (
        np.frombuffer(b"".join(parts), dtype=np.uint8) for parts in ([message.body for message in messages], raws)
    )
    which = np.array([places.index((message.topic, message.queue_id)) for message in messages], dtype=np.int64)
    return RunColumns(bodies, body_length, texts, own_length, which, tuple(places), NOW - 3, HOSTS[0], HOSTS[1])


@pytest.mark.parametrize("other", [{}, *OTHERS], ids=str)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.leaves("unit-foreign") if "further" in kind else ()) for kind in KINDS],
)
def test_columns_are_their_messages(kind: str, other: dict[str, str], tmp_path: Path) -> None:
    """Also where one of them is not plain, and where a run goes on in the next file."""
    chance = Random(11)
    messages = plain(chance, 200)
    messages[90] = messages[90]._replace(properties=other)
    blocks = [columns(block) for block in cut(messages, chance)]
    answers, failed, _ = same(tmp_path, blocks, **{"mapped_file_size_commit_log": 1 << 16} | KINDS[kind])
    assert (len(answers), failed) == (200, None)


@pytest.mark.parametrize("wrong", ["topic", "no directory", "queue", "properties", "properties in bytes", "body"])
def test_the_first_of_columns_that_is_refused_ends_it(wrong: str, tmp_path: Path) -> None:
    messages = plain(Random(3), 100)
    messages[60] = messages[60]._replace(**REFUSED[wrong])
    limit = 9000 if wrong == "body" else 1 << 22
    answers, failed, _ = same(tmp_path, [columns(messages)], max_message_size=limit)
    assert failed is not None
    assert len(answers) == 60


def test_columns_take_no_message_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare messages with themselves."""
    run = columns(plain(Random(8), 200))
    with MessageStore.open(small(tmp_path)) as store:
        monkeypatch.setattr(RunColumns, "__iter__", None)
        assert len(list(PutRun(store).blocks([run], answers=False))) == 0
        monkeypatch.undo()
        assert store.log.appended > int(run.body_length.sum())


def test_dispatch_reads_by_kernels_where_puts_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first megabytes, which are not worth the loading otherwise."""
    monkeypatch.delitem(sys.modules, "engine.log.kernels.walk", raising=False)
    with MessageStore.open(small(tmp_path)) as store:
        for _ in PutRun(store).blocks([plain(Random(8), 200)], answers=False):
            pass
        assert store.wait_dispatched()
        assert "engine.log.kernels.walk" in sys.modules


def test_without_kernels_each_is_put_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "engine.log.kernels.encode_run", None)
    assert len(same(tmp_path, [plain(Random(9), 100)])[0]) == 100


def test_pages_that_were_read_are_given_up_and_readable(tmp_path: Path) -> None:
    """Many messages take no memory by the log: its pages are given up behind dispatch, and read as ever."""
    config = small(tmp_path, mapped_file_size_commit_log=1 << 25)
    messages = [Message("T", bytes([n % 251]) * 20_000) for n in range(1200)]
    with MessageStore.open(config) as store:
        run = PutRun(store)
        blocks: Iterator[list[Message]] = (messages[at : at + 50] for at in range(0, 1200, 50))
        for _ in run.blocks(blocks):
            assert store.wait_dispatched()
        for n in (0, 1, 600, 1199):
            assert store.get("T", 0, n, 1).decoded()[0].body == messages[n].body
    assert_sound(config)
