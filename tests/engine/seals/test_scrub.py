"""Scrub finds each byte that changed since its segment was sealed, and nothing else; it writes no file of the store."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from engine.config import of_store
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.lock import StoreLock
from engine.files.operations import Doing, Operation
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.repair.reach import beneath
from engine.seals.compare import CHANGED, MISSING, UNREADABLE, UNSTEADY
from engine.seals.explain import BODY, HEADER, UNCOVERED, UNCOVERED_OR_BLANK
from engine.seals.keeping import Heard, keep_scrubbing
from engine.seals.layout import PAGE_SIZE
from engine.seals.scrub import scrub
from engine.seals.scrub_result import BAD_SEAL, NO_FILE, NOT_SOUND, Scrubbed, ScrubOptions, Wrong
from engine.seals.scrub_state import read_state
from tests.engine.seals.stores_sealed import Page, filled, pages_of, scrubbed, seal, segments, write
from tests.support import stores
from tests.support.wide import WIDE

SIZE = 65536
ROUNDS, A_ROUND = (500, 20) if WIDE else (8, 25)


@pytest.fixture(scope="module")
def sealed_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = filled(tmp_path_factory.mktemp("sealed") / "store")
    result = seal(root)
    assert result.clean
    assert len(result.made) == len(segments(root)) - 1 >= 4
    before = stores.snapshot(root)
    yield root
    assert stores.snapshot(root) == before


@pytest.fixture
def sealed_copy(sealed_store: Path, tmp_path: Path) -> Path:
    return stores.copy(sealed_store, tmp_path / "store")


def without_state(root: Path) -> dict[str, stores.Seen]:
    seen = stores.snapshot(root)
    return {name: one for name, one in seen.items() if name not in ("seals", os.path.join("seals", "scrub.json"))}


def damage(rng: Random, paths: list[Path], unreadable: set[Page]) -> dict[Page, str]:
    """One change somewhere in the sealed segments; which pages it changes, and how."""
    path = rng.choice(paths)
    offset, content = int(path.name), path.read_bytes()
    position = rng.randrange(SIZE)
    page = position // PAGE_SIZE * PAGE_SIZE
    kind = rng.choice(("bit", "bit", "byte", "zeros", "page", "sector", "io"))
    if kind == "io":
        unreadable.add((offset, page // PAGE_SIZE))
        return {(offset, page // PAGE_SIZE): UNREADABLE}
    start, data = {
        "bit": (position, bytes([content[position] ^ 1 << rng.randrange(8)])),
        "byte": (position, bytes([content[position] ^ rng.randrange(1, 256)])),
        "zeros": (page, bytes(PAGE_SIZE)),
        "page": (page, rng.randbytes(PAGE_SIZE)),
        "sector": (page + 512, rng.randbytes(512)),
    }[kind]
    write(path, start, data)
    changed = path.read_bytes()
    return {
        (offset, number): CHANGED
        for number in range(SIZE // PAGE_SIZE)
        if changed[number * PAGE_SIZE :][:PAGE_SIZE] != content[number * PAGE_SIZE :][:PAGE_SIZE]
    }


@pytest.mark.wide
@pytest.mark.leaves
def test_flipped_bytes_and_lost_pages_are_found_and_located(sealed_copy: Path) -> None:
    """Hundreds; ten thousand in a wide run. The test's own list is the truth: each page, none more, and its kind."""
    rng = Random(19)
    paths = segments(sealed_copy)[:-1]
    whole = {path: path.read_bytes() for path in paths}
    count = 0
    for _ in range(ROUNDS):
        unreadable: set[Page] = set()
        truth: dict[Page, str] = {}
        for _ in range(A_ROUND):
            count += 1
            truth |= damage(rng, paths, unreadable)
        for page in list(truth):  # a later change may have taken an earlier one back
            path = next(one for one in paths if int(one.name) == page[0])
            at = page[1] * PAGE_SIZE
            if page in unreadable:
                truth[page] = UNREADABLE
            elif path.read_bytes()[at : at + PAGE_SIZE] == whole[path][at : at + PAGE_SIZE]:
                del truth[page]
        result = scrubbed(sealed_copy, failing_at(unreadable))
        seen = {page: kind for kind in (CHANGED, UNREADABLE) for page in pages_of(result, kind)}
        assert seen == truth
        assert pages_of(result) == truth.keys()
        assert all(one.is_sealed and one.written_ms is None for one in result.wrong)
        for path, content in whole.items():
            write(path, 0, content)
    assert count == ROUNDS * A_ROUND
    assert not scrubbed(sealed_copy).wrong


def failing_at(pages: set[Page]) -> FaultyDisk:
    """A disk that can't read these pages of the log."""
    disk = FaultyDisk(None)

    def bad(doing: Doing) -> bool:
        if doing.operation is not Operation.READ or doing.offset is None or "commitlog" not in doing.path:
            return False
        first, last = doing.offset // PAGE_SIZE, -(-(doing.offset + doing.length) // PAGE_SIZE)
        return any((int(Path(doing.path).name), number) in pages for number in range(first, last))

    disk.fail_when(bad, 5)
    return disk


@pytest.mark.leaves
def test_which_record_and_which_field(sealed_copy: Path) -> None:
    """Where the judge can tell: the magic is the header's, the CRC the body's, all else no CRC covers."""
    path = segments(sealed_copy)[1]
    offset = int(path.name)
    disk = Disk()
    with ClosedLog(disk, survey(disk, of_store(sealed_copy)).log) as log:
        batch = next(event for event in Scanner(log).scan(offset, resume=True) if isinstance(event, RecordBatch))
        starts = [int(one) for one in batch.offsets()]
        record = bytes(batch.record(20))
    content = path.read_bytes()
    at = starts[20] - offset
    cases = (
        (at + 4, HEADER, "no message magic"),
        (at + 100, BODY, "body CRC mismatch"),
        (at + record.index(b"KEYS") + 6, UNCOVERED, ""),
        (at + 24, UNCOVERED, ""),  # the queue offset
        (SIZE - 1, UNCOVERED_OR_BLANK, ""),
    )
    for position, field, reason in cases:
        write(path, position, bytes([content[position] ^ 1]))
        (one,) = scrubbed(sealed_copy).wrong
        assert (one.explained.field, one.explained.reason) == (field, reason), position
        assert one.explained.first is not None
        assert one.offset <= offset + position < one.offset + one.length == one.offset + PAGE_SIZE
        if field != UNCOVERED_OR_BLANK:
            assert one.explained.first <= starts[20] < one.offset + one.length
            assert 1 <= one.explained.records < 20
        write(path, 0, content)


def test_it_writes_nothing_but_its_state(sealed_copy: Path) -> None:
    before = without_state(sealed_copy)
    result = scrubbed(sealed_copy)
    assert not result.wrong
    assert result.finished
    assert (result.sealed, result.unsealed) == (len(segments(sealed_copy)) - 1, 1)
    assert without_state(sealed_copy) == before
    seals = stores.snapshot(sealed_copy / "seals")
    scrubbed(sealed_copy, keep_state=False)
    assert stores.snapshot(sealed_copy / "seals") == seals


@pytest.mark.leaves
def test_a_pass_continues_where_it_was(sealed_copy: Path) -> None:
    """Stopped after each piece, it reads each segment once, and tells at the end what it had found before."""
    for path in segments(sealed_copy)[:3]:
        write(path, 5000, b"rot")
    read, runs = 0, 0
    while True:
        stop = threading.Event()
        runs += 1
        result = scrub(Disk(), of_store(sealed_copy), ScrubOptions(stop=stop), lambda *_, stop=stop: stop.set())
        read += result.read
        if result.finished:
            break
        assert runs < 50
    assert runs >= len(segments(sealed_copy)) - 1
    assert read == SIZE * len(segments(sealed_copy))
    assert pages_of(result) == {(int(path.name), 1) for path in segments(sealed_copy)[:3]}
    state = read_state(Disk(), str(sealed_copy / "seals"))
    assert state.finished >= state.began > 0
    assert state.oldest() >= state.began
    (sealed_copy / "seals" / "scrub.json").write_text('{"version": 1, "began": "x"}')
    assert len(scrubbed(sealed_copy).wrong) == 3


@pytest.mark.leaves
def test_what_has_no_seal_is_judged_by_its_records(sealed_copy: Path) -> None:
    seals = sorted((sealed_copy / "seals").glob("*.seal"))
    seals[0].unlink()
    seals[1].write_bytes(seals[1].read_bytes()[:-1])
    seals[2].write_bytes(seals[3].read_bytes())
    write(segments(sealed_copy)[0], 5000, bytes(2000))
    result = scrubbed(sealed_copy)
    assert (result.sealed, result.unsealed) == (len(seals) - 3, 4)
    assert {one.kind for one in result.wrong if one.segment == 0} == {NOT_SOUND}
    bad = [one for one in result.wrong if one.kind == BAD_SEAL]
    assert [one.segment for one in bad] == [SIZE, 2 * SIZE]
    assert "instead of" in bad[0].explained.reason
    assert "the seal of segment" in bad[1].explained.reason


@pytest.mark.leaves
def test_files_that_are_gone_shorter_or_written(sealed_copy: Path) -> None:
    one, two, three, *_ = segments(sealed_copy)[1:]
    one.unlink()
    with two.open("r+b") as file:
        file.truncate(SIZE - 3 * PAGE_SIZE)
    with three.open("r+b") as file:
        file.write(b"another program")
    os.utime(three, ns=(1, 10**18))
    result = scrubbed(sealed_copy)
    assert pages_of(result, NO_FILE) == {(int(one.name), page) for page in range(16)}
    assert pages_of(result, MISSING) == {(int(two.name), page) for page in (13, 14, 15)}
    (written,) = [w for w in result.wrong if w.kind == CHANGED]
    assert (written.segment, written.written_ms) == (int(three.name), 10**12)


def test_what_is_right_at_the_second_reading_is_told_as_such(sealed_copy: Path) -> None:
    """A cable or memory that flips bits is no rot of the file."""
    path = segments(sealed_copy)[0]
    content = path.read_bytes()

    class Flaky(Disk):
        reads = 0

        def doing(self, operation: Operation, path_: str, *more: object, **named: object) -> Doing:
            if operation is Operation.READ and path_ == str(path):
                Flaky.reads += 1
                write(path, 9000, b"x" if Flaky.reads == 2 else content[9000:9001])
            return super().doing(operation, path_, *more, **named)  # type: ignore[arg-type]

    result = scrubbed(sealed_copy, Flaky(), fresh=False)
    write(path, 0, content)
    assert [(w.kind, pages_of(result)) for w in result.wrong] == [(UNSTEADY, {(0, 2)})]


def test_without_a_place_for_its_state_it_goes_on(sealed_copy: Path) -> None:
    disk = FaultyDisk(None)
    disk.fail_when(lambda doing: doing.operation is Operation.CREATE and "scrub" in doing.path, 30)
    result = scrubbed(sealed_copy, disk)
    assert result.finished
    assert not result.kept


@pytest.mark.leaves
def test_where_a_link_stands_in_the_place_of_its_state_it_goes_on(sealed_copy: Path, tmp_path: Path) -> None:
    write(segments(sealed_copy)[0], 5000, b"rot")
    (tmp_path / "theirs").write_bytes(b"theirs")
    (sealed_copy / "seals" / "scrub.json").unlink(missing_ok=True)
    (sealed_copy / "seals" / "scrub.json").symlink_to(tmp_path / "theirs")
    result = scrubbed(sealed_copy, beneath(Disk(), of_store(sealed_copy)))
    assert (result.finished, result.kept) == (True, False)
    assert pages_of(result) == {(0, 1)}
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


@pytest.mark.leaves
def test_a_segment_in_whose_place_something_else_stands_has_no_file(sealed_copy: Path) -> None:
    fifo, directory, *_ = segments(sealed_copy)[1:]
    fifo.unlink()
    os.mkfifo(fifo)
    directory.unlink()
    directory.mkdir()
    result = scrubbed(sealed_copy)
    assert [(one.segment, one.kind) for one in result.wrong] == [(SIZE, NO_FILE), (2 * SIZE, NO_FILE)]


@pytest.mark.leaves
def test_a_log_that_is_not_there_is_no_log_in_which_nothing_has_changed(sealed_copy: Path) -> None:
    """A disk that is not mounted, more often than not."""
    sealed = [int(path.name) for path in segments(sealed_copy)][:-1]
    shutil.rmtree(sealed_copy / "commitlog")
    assert [(one.segment, one.kind) for one in scrubbed(sealed_copy).wrong] == [(one, NO_FILE) for one in sealed]


def test_seals_elsewhere(sealed_copy: Path, tmp_path: Path) -> None:
    """The store's disk may take them along: they are kept where somebody says."""
    shutil.rmtree(sealed_copy / "seals")
    before = stores.snapshot(sealed_copy)
    assert seal(sealed_copy, directory=str(tmp_path / "kept")).clean
    assert not scrubbed(sealed_copy, directory=str(tmp_path / "kept")).wrong
    assert scrubbed(sealed_copy, directory=str(tmp_path / "kept")).sealed == len(segments(sealed_copy)) - 1
    assert stores.snapshot(sealed_copy) == before
    assert not (sealed_copy / "seals").exists()


class Counted(Heard):
    def __init__(self, stop: threading.Event, store: Path) -> None:
        self.stop, self.store = stop, store
        self.passes: list[Scrubbed] = []
        self.found: list[Wrong] = []

    def wrong(self, one: Wrong) -> None:
        self.found.append(one)

    def scrubbed(self, result: Scrubbed) -> None:
        self.passes.append(result)
        if len(self.passes) == 1:
            write(segments(self.store)[0], 5000, b"rot")
        elif self.found:
            self.stop.set()


def test_where_nothing_can_be_sealed_it_is_scrubbed_all_the_same(sealed_copy: Path) -> None:
    class Once(Heard):
        failures = 0

        def failed(self, error: RStoreError) -> None:
            Once.failures += 1

        def scrubbed(self, result: Scrubbed) -> None:
            stop.set()

    stop = threading.Event()
    with StoreLock(Disk(), str(sealed_copy / "seals")):
        keep_scrubbing(Disk(), of_store(sealed_copy), ScrubOptions(period_ms=50), stop, Once(), sealing=True)
    assert Once.failures == 1


@pytest.mark.leaves
def test_pass_after_pass(sealed_copy: Path) -> None:
    """Each within its period; what changed after the first is found by the second."""
    stop = threading.Event()
    heard = Counted(stop, sealed_copy)
    keep_scrubbing(Disk(), of_store(sealed_copy), ScrubOptions(period_ms=50), stop, heard, sealing=True)
    assert not heard.passes[0].wrong
    assert [(one.segment, one.offset) for one in heard.found] == [(0, PAGE_SIZE)]
