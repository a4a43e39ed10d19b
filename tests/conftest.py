"""Fixtures for every test: stores to read, and copies of them to change."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from engine.inspect.finding_codes import CODES
from tests.support import fixtures, golden, references, stores
from tests.support.checking import check_clean, stores_below

# Processes that tests start read compiled modules as installed ones do, instead of compiling them each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests that set HOME find compiled kernels all the same.
os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
# A shell's job in the background ignores Ctrl-C, what nohup runs a hang-up, and so would processes that tests signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("rstore", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rstore")

Store = Callable[[str], Path]
_passed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Each worker collects all tests: millions of objects, none of them garbage, which the collector would walk again
    and again while they are made, and later in each test that calls it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes for `_stores_are_checked` whether the test itself passed."""
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture(scope="session", autouse=True)
def _secrets_are_stretched_little() -> Iterator[None]:
    """To stretch a repository's secret takes 0.13 s, for whoever guesses it, and tests make hundreds of repositories.

    Processes that tests start stretch as rstore does; tests/engine/backup/test_format.py opens what one of them made.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.backup.keys._COST", 1 << 8)
        yield


@pytest.fixture(autouse=True)
def _stores_are_checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test ends with `check` of every store that it leaves below `tmp_path`: after all its other fixtures.

    Findings are those that its `leaves` marks name, or any where a mark names none. Tests with Apache's processes and
    with Spark check by hand (`check_clean`): their stores lie where a configuration says, and may be large.
    """
    place: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    node = request.node
    marks = list(node.iter_markers("leaves"))
    by_hand = any(not mark.args for mark in marks) or any(map(node.get_closest_marker, ("interop", "spark")))
    if place is None or by_hand or not node.stash.get(_passed, False):
        return
    known = {code for mark in marks for code in mark.args}
    assert known <= set(CODES), "a mark names a finding that check does not have"
    for store in stores_below(place):
        check_clean(store, known=known, why="the test leaves them" if known else "")


def _unpacked(factory: pytest.TempPathFactory, archive: Callable[[str], Path]) -> Iterator[Store]:
    """Stores unpacked once each; at the end, proof that no test wrote into one."""
    seen: dict[str, tuple[Path, dict[str, stores.Seen]]] = {}

    def get(name: str) -> Path:
        if name not in seen:
            path = stores.unpack(archive(name), factory.mktemp("unpacked"))
            seen[name] = (path, stores.snapshot(path))
        return seen[name][0]

    yield get
    for name, (path, before) in seen.items():
        assert stores.snapshot(path) == before, f"a test changed the shared store {name}: it should take a copy"


def _copies(source: Store, tmp_path: Path) -> Store:
    numbers = itertools.count()
    return lambda name: stores.copy(source(name), tmp_path / f"{name}-{next(numbers)}")


@pytest.fixture(scope="session")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """`golden_store(name)`: a golden store, shared, to read only. Skips where there is none."""
    yield from _unpacked(tmp_path_factory, golden.archive)


@pytest.fixture
def golden_copy(golden_store: Store, tmp_path: Path) -> Store:
    """`golden_copy(name)`: a copy of a golden store, to change at will."""
    return _copies(golden_store, tmp_path)


@pytest.fixture(scope="session")
def fixture_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """`fixture_store(name)`: a store of fixtures/, shared, to read only."""
    yield from _unpacked(tmp_path_factory, fixtures.archive)


@pytest.fixture
def fixture_copy(fixture_store: Store, tmp_path: Path) -> Store:
    """`fixture_copy(name)`: a copy of a store of fixtures/, to change at will."""
    return _copies(fixture_store, tmp_path)


@pytest.fixture(scope="session")
def reference_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """`reference_store("fixtures/lmq")`, `reference_store("golden/clean-small")`: shared, to read only."""
    yield from _unpacked(tmp_path_factory, references.archive)


@pytest.fixture
def unchanged() -> Iterator[Callable[[Path], None]]:
    """`unchanged(store)`: from here to the end of the test, not a byte and not a time below `store` may change."""
    watched: dict[Path, dict[str, stores.Seen]] = {}

    def watch(store: Path) -> None:
        watched[store] = stores.snapshot(store)

    yield watch
    for store, before in watched.items():
        assert stores.snapshot(store) == before
