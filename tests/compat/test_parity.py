"""The same puts, put by Apache now and by rstore at the store times that Apache gave: the same bytes in every file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.store import MessageStore
from tests.compat import apache, checks, puts
from tests.compat.apache import SMALL, Line
from tests.support.replay import Clock, replay

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]

RECIPES: dict[str, tuple[Callable[[], list[Line]], Line]] = {
    "everything": (partial(puts.everything, 2024, 500), {}),
    "another-seed": (partial(puts.everything, 2025, 400), {}),
    "lmq": (partial(puts.dispatched, 2026, 90), {"enableLmq": True, "enableMultiDispatch": True}),
    "ext": (
        partial(puts.everything, 2027, 200),
        {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024},
    ),
    "no-index": (partial(puts.everything, 2028, 60), {"messageIndexEnable": False}),
    "other-levels": (partial(puts.everything, 2029, 90), {"messageDelayLevel": "1s 2s 1m 1h 1d"}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_puts_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    make, more = RECIPES[name]
    made = make()
    theirs, ours = tmp_path / "apache", tmp_path / "rstore"
    written = apache.write(theirs, made, SMALL, settings=more)
    assert written.exit == apache.Exit.OPENED, written.opened.stderr
    assert {result["status"] for result in written.results} == {"PUT_OK"}
    times = [
        {"storeTimestamp": result["storeTimestamp"]} for result in written.results for _ in range(result["msgNum"])
    ]
    clock = Clock()
    with MessageStore.open(checks.settings(ours, SMALL, more), clock=clock) as store:
        answers = replay(store, clock, made, times)
        assert store.wait_dispatched()
        assert not store.findings
    for answer, result in zip(answers, written.results, strict=True):
        assert answer.append is not None
        found = (answer.append.physical_offset, answer.append.queue_offset, answer.append.msg_id)
        assert found == (result["wroteOffset"], result["logicsOffset"], result["msgId"])
    for directory in ("commitlog", "consumequeue", "consumequeue_ext"):
        assert contents(ours / directory) == contents(theirs / directory), directory
    assert [file.read_bytes() for file in files(ours / "index")] == [
        file.read_bytes() for file in files(theirs / "index")
    ]
    assert bool(files(ours / "index")) == (name != "no-index")
    assert bool(files(ours / "consumequeue_ext")) == (name == "ext")


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in files(directory)}
