"""Kernels by code that is kept: the same results as by numba, and never by code that is in doubt."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

pytest.importorskip("numba")

import numpy as np

from engine.files.machine_code import read_own, write_own
from engine.format.message import Message
from engine.inspect.check.fresh_kernel import group_units
from engine.log.kernels import compiling, crc, derive, doubt, encode, index, kept, property_crc, tally, walk
from engine.log.kernels.jit import Kernel, compiled
from engine.log.kernels.linked import NotLinked, linked
from tests.support import logs

pytestmark = pytest.mark.skipif(kept._identity() is None, reason="no code is kept here")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where code is kept in this test; nothing is there."""
    place = tmp_path / "code"
    monkeypatch.setattr(kept, "_directory", lambda: place)
    return place


def of_numba(kernel: Any) -> Any:
    """numba's kernel, whatever is kept."""
    return kernel.made()


def kept_one(kernel: Any, *arguments: Any) -> Any:
    """The kernel as a process has it that came later than one which has called it."""
    compiled(kernel.py_func)(*copies(arguments))
    later = compiled(kernel.py_func)
    flat = kept.flattened(arguments)
    assert flat is not None
    assert kept.load(kernel.py_func, flat[0]) is not None, kernel.__name__
    return later


def by_kept(kernel: Any) -> bool:
    """Whether all its calls were by code that is kept."""
    return isinstance(kernel, Kernel) and kernel._by_numba is None


def copies(arguments: Any) -> Any:
    """Arguments that a kernel may write into."""
    return tuple(
        type(one)(*copies(tuple(one)))
        if isinstance(one, tuple)
        else copied(one)
        if isinstance(one, np.ndarray)
        else one
        for one in arguments
    )


def copied(array: Any) -> Any:
    out = array.copy()
    out.flags.writeable = array.flags.writeable
    return out


def flat_values(arguments: Any) -> list[Any]:
    return [value for one in arguments for value in (flat_values(one) if isinstance(one, tuple) else [one])]


def same(kernel: Any, other: Any, arguments: tuple[Any, ...]) -> None:
    """Both give the same result, and leave the same in the arrays."""
    mine, its = copies(arguments), copies(arguments)
    result, wanted = kernel(*mine), other(*its)
    assert result == wanted
    assert type(result) is type(wanted)
    if isinstance(wanted, tuple):
        assert [type(value) for value in result] == [type(value) for value in wanted]
    for one, two in zip(flat_values(mine), flat_values(its), strict=True):
        if isinstance(one, np.ndarray):
            assert one.tobytes() == two.tobytes()


def hostile(seed: int) -> bytes:
    """Bytes of a log: sound records, of which some are damaged, and what else lies about."""
    chance = random.Random(seed)
    messages = [
        Message(
            chance.choice(["T", "Orders", "%RETRY%group"]),
            chance.randbytes(chance.choice([0, 1, 15, 16, 17, 300, 2000])),
            properties={"KEYS": f"k{number} x", "TAGS": chance.choice(["a", "é", ""]) or "b", "UNIQ_KEY": "U" * 32},
        )
        for number in range(chance.randrange(1, 60))
    ]
    data = bytearray(logs.build(messages, segment_size=1 << 20).log.read(0, 1 << 20))
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randrange(len(data))
        data[at : at + chance.choice([1, 4, 40])] = chance.randbytes(chance.choice([1, 4, 40]))
    return bytes(data[: chance.choice([len(data), chance.randrange(len(data)), 100])])


def array_of(data: bytes, *, writable: bool = False) -> Any:
    array = np.frombuffer(bytearray(data), dtype=np.uint8)
    array.flags.writeable = writable
    return array


def table_of(data: Any) -> Any:
    table = np.zeros((len(data) // 90 + 1, 13), dtype=np.int64)
    count, _ = of_numba(walk._walk)(data, 0, len(data), True, table)
    return table[:count].copy()


def walk_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    return array_of(data), 0, 1 << 20, bool(seed % 3), np.zeros((len(data) // 90 + 1, 13), dtype=np.int64)


def tally_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    rows = seed % 4
    tables = [np.zeros((rows, width), dtype=np.int64) for width in (3, 5, property_crc.FAULT_FIELDS)]
    return array_of(data, writable=True), 1 << 20, len(data), seed % 2 * 4096, seed % 5 // 4 * 48, seed % 3, *tables


def derive_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    array = array_of(data)
    table = table_of(array)
    many = len(table)
    known = derive.KnownQueues.none().with_queues([b"T", b"Orders"][: seed % 3], [0, 1][: seed % 3])
    keys = 3 * many + len(data) + 2
    return (
        array, table, 0, 0, True, bool(seed % 2), bool(seed % 5), known, known.slots.copy(),
        np.zeros((2, many), dtype=np.int32), np.zeros((4, many), dtype=np.int64),
        np.zeros(keys, dtype=np.int32), np.zeros((2, keys), dtype=np.int64), np.zeros((2, many), dtype=np.int64),
    )  # fmt: skip


def fault_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    array = array_of(data)
    return array, table_of(array), 7, seed % 3, np.zeros((seed % 4, property_crc.FAULT_FIELDS), dtype=np.int64)


def doubt_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    array = array_of(data)
    table = table_of(array)
    return array, table, np.zeros(len(table), dtype=np.int64)


def link_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    chance = np.random.default_rng(seed)
    many = seed % 40
    fresh = index.Linker()
    return (
        array_of(chance.bytes(400)), chance.integers(0, 1 << 31, many).astype(np.int32),
        chance.integers(0, 1 << 40, many), chance.integers(0, 1 << 41, many), 1 + seed, seed % 2 * 5000,
        fresh._slots, fresh._named, fresh._places, np.zeros(20 * many, dtype=np.uint8),
    )  # fmt: skip


def group_arguments(data: bytes, seed: int) -> tuple[Any, ...]:
    chance = np.random.default_rng(seed)
    many, queues = seed % 50, 4
    offsets = np.sort(chance.integers(0, 1 << 30, many))
    return (
        chance.integers(0, queues, many).astype(np.int32), chance.integers(-1, 40, many), offsets,
        chance.integers(90, 200, many).astype(np.int32), chance.integers(-(1 << 60), 1 << 60, many),
        np.zeros(queues, dtype=np.uint8), *(np.zeros(queues, dtype=np.int64) for _ in range(3)),
        np.zeros(20 * many, dtype=np.uint8), np.zeros(many, dtype=np.bool_), np.zeros((many, 3), dtype=np.int64),
    )  # fmt: skip


KERNELS = {
    "walk": (walk._walk, walk_arguments),
    "tally": (tally.tally, tally_arguments),
    "derive": (derive._derive, derive_arguments),
    "fill": (derive._fill, lambda data, seed: tuple(derive.KnownQueues.none().with_queues([b"T", b"Ab"], [0, seed]))),
    "crc faults": (property_crc.crc_faults, fault_arguments),
    "doubts": (doubt.doubts, doubt_arguments),
    "link": (index._link, link_arguments),
    "group": (group_units, group_arguments),
    "crc": (crc.crc32, lambda data, seed: (array_of(data), seed % 20, max(seed % 20, len(data) - seed % 7))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_numbas(name: str, directory: Path) -> None:
    kernel, arguments_of = KERNELS[name]
    one = kept_one(kernel, *arguments_of(hostile(0), 0))
    for seed in range(60):
        same(one, of_numba(kernel), arguments_of(hostile(seed), seed))
    assert by_kept(one)


def test_threads_run_it_at_once(directory: Path) -> None:
    data = array_of(random.Random(1).randbytes(3 << 20))
    one = kept_one(crc.crc32, data, 0, len(data))
    ends = [len(data) - number for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda end: one(data, 0, end), ends)) == [zlib.crc32(data[:end]) for end in ends]
    assert by_kept(one)


def halved(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return number // 2


def test_what_fails_is_raised_by_numba(directory: Path) -> None:
    one = kept_one(compiled(halved), 8)
    assert one(9) == 4
    assert by_kept(one)
    with pytest.raises(ValueError, match="negative"):
        one(-1)


def summed(data: Any) -> Any:
    total = 0
    for value in data:
        total += value
    return total


def test_arguments_of_another_kind_are_numbas(directory: Path) -> None:
    data = array_of(bytes(range(200)))
    one = kept_one(compiled(summed), data)
    assert one(data) == sum(range(200))
    assert by_kept(one)
    assert one(data[::2]) == sum(range(0, 200, 2))
    assert not by_kept(one)
    assert kept.flattened((1 << 63,)) is None
    assert kept.flattened((np.zeros(3, dtype=">i8"),)) is None
    assert kept.flattened((np.zeros((4, 4))[:, 1],)) is None
    assert kept.flattened((1.5,)) is None
    unaligned = np.frombuffer(bytearray(17), dtype=np.uint8)[1:].view(np.int64)
    assert unaligned.flags.aligned or kept.flattened((unaligned,)) is None


def test_a_named_tuple_is_looked_at_once() -> None:
    """As long as it is the same one: its arrays may be written to meanwhile, and another one may be equal to it."""
    last = kept.LastTuple()
    one = derive.KnownQueues.none().with_queues([b"Topic"], [1])
    other = derive.KnownQueues(*one[:-1], np.frombuffer(b"Topik", dtype=np.uint8))
    for value in (one, one, other, one):
        arguments = (7, value, True)
        assert kept.flattened(arguments, last) == kept.flattened(arguments)
    assert kept.flattened((one,), last) != kept.flattened((other,), last)
    columns = encode.Arrays(*(np.zeros(0, dtype=np.int64) for _ in encode.Arrays._fields))
    held = sys.getrefcount(columns)
    kept.flattened((columns,), last)
    assert sys.getrefcount(columns) == held, "somebody's own columns are held after the call"


# --- files in doubt --------------------------------------------------------------------------------------------------


def file_of(directory: Path) -> tuple[Path, Kernel, Any]:
    """The file of a kernel, the kernel, and an argument."""
    data = array_of(b"some bytes of a body")
    one = kept_one(crc.crc32, data, 0, 20)
    (path,) = directory.iterdir()
    return path, one, data


def refused(one: Any, data: Any) -> bool:
    """Whether nothing is run of what is kept; the result is right all the same."""
    kinds, _ = kept.flattened((data, 0, 20)) or ((), [])
    if kept.load(one.py_func, kinds) is not None:
        return False
    fresh = compiled(one.py_func)
    assert fresh(data, 0, 20) == zlib.crc32(data[:20])
    return not by_kept(fresh)


def test_a_torn_or_changed_file_is_not_run(directory: Path) -> None:
    path, one, data = file_of(directory)
    whole = path.read_bytes()
    kinds = (kept.flattened((data, 0, 20)) or ((),))[0]
    chance = random.Random(5)
    for at in [0, 1, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(200))]:
        path.write_bytes(whole[:at])
        assert kept.load(one.py_func, kinds) is None
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        assert kept.load(one.py_func, kinds) is None
    assert refused(one, data)
    assert path.read_bytes() == whole  # numba's has been kept again
    assert kept.load(one.py_func, kinds) is not None


def test_a_file_of_another_kernel_is_not_run(directory: Path) -> None:
    path, one, data = file_of(directory)
    kept_one(compiled(halved), 8)
    (other,) = set(directory.iterdir()) - {path}
    shutil.copyfile(other, path)
    assert refused(one, data)


@pytest.mark.parametrize("changed", ["versions", "processor"])
def test_a_file_of_another_version_is_not_run(changed: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has the name of this one's."""
    path, one, data = file_of(directory)
    kept._identity.cache_clear()
    try:
        name = {"versions": "_version_of", "processor": "_processor"}[changed]
        monkeypatch.setattr(kept, name, lambda *_: "another")
        kinds = (kept.flattened((data, 0, 20)) or ((),))[0]
        place = kept._place(one.py_func, kinds)
        assert place is not None
        assert place[1] != path.name
        shutil.copyfile(path, directory / place[1])
        os.chmod(directory / place[1], 0o600)
        assert kept.load(one.py_func, kinds) is None
    finally:
        kept._identity.cache_clear()


@pytest.mark.parametrize("numba", ["NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_DISABLE_JIT"])
def test_who_sets_numba_gets_numba(numba: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(numba, "generic")
    kept._identity.cache_clear()
    try:
        assert kept._identity() is None
    finally:
        kept._identity.cache_clear()


def links_file(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def links_directory(path: Path) -> None:
    path.parent.rename(path.parent.parent / "elsewhere")
    path.parent.symlink_to(path.parent.parent / "elsewhere")


def gives_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(path, 12345, 12345)


CHANGED_RIGHTS: dict[str, Callable[[Path], None]] = {
    "group writes the file": lambda path: path.chmod(0o660),
    "others write the file": lambda path: path.chmod(0o606),
    "group writes the directory": lambda path: path.parent.chmod(0o770),
    "others write the directory": lambda path: path.parent.chmod(0o707),
    "file is a link": links_file,
    "directory is a link": links_directory,
    "file is another user's": gives_away,
    "directory is another user's": lambda path: gives_away(path.parent),
    "no file": lambda path: (path.unlink(), path.mkdir())[0],
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path))[0],
}


@pytest.mark.parametrize("way", CHANGED_RIGHTS)
def test_what_others_may_have_written_is_not_run(way: str, directory: Path) -> None:
    path, one, data = file_of(directory)
    CHANGED_RIGHTS[way](path)
    assert refused(one, data)


def test_rights_are_narrow_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_own(tmp_path / "code", "one", b"bytes")
    finally:
        os.umask(before)
    assert (tmp_path / "code").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "code" / "one").stat().st_mode & 0o777 == 0o600
    assert read_own(tmp_path / "code", "one") == b"bytes"
    assert list((tmp_path / "code").iterdir()) == [tmp_path / "code" / "one"]


def test_a_place_that_cannot_be_written_is_done_without(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file, no directory")
    monkeypatch.setattr(kept, "_directory", lambda: tmp_path / "taken" / "code")
    data = array_of(b"some bytes of a body")
    for _ in range(2):
        assert compiled(crc.crc32.py_func)(data, 0, 20) == zlib.crc32(data)  # type: ignore[attr-defined]


def test_a_system_that_forbids_it_is_done_without(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, one, data = file_of(directory)

    def forbidden(*_: Any) -> Any:
        raise PermissionError("no code in memory that was written")

    monkeypatch.setattr(kept, "MappedCode", forbidden)
    assert refused(one, data)


def test_threads_that_keep_it_at_once(directory: Path) -> None:
    """Who reads meanwhile sees nothing, or all of it."""
    path, one, data = file_of(directory)
    whole = path.read_bytes()
    kinds = (kept.flattened((data, 0, 20)) or ((),))[0]
    start = Barrier(8)

    def work(number: int) -> bool:
        start.wait()
        for _ in range(30):
            if number % 2:
                write_own(directory, path.name, whole)
            elif kept.load(one.py_func, kinds) is None:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert list(directory.iterdir()) == [path]


# --- objects ---------------------------------------------------------------------------------------------------------


def test_objects_in_doubt_are_not_taken(directory: Path) -> None:
    """numba's object, changed or cut off: taken, or NotLinked, and places lie inside of the image."""
    kernel = of_numba(compiled(crc.crc32.py_func))  # type: ignore[attr-defined]
    kernel(array_of(b"x" * 20), 0, 20)
    (made,) = compiling.new_objects(kernel).values()
    memory = compiling._memory(made.context)
    assert linked([made.code, memory], made.name).inner
    with pytest.raises(NotLinked):
        linked([memory, made.code], made.name)
    chance = random.Random(3)
    for _ in range(400):
        changed = bytearray(made.code)
        for _ in range(chance.choice([1, 1, 8])):
            changed[chance.choice([chance.randrange(64), chance.randrange(len(changed))])] ^= 1 << chance.randrange(8)
        try:
            code = linked(
                [bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])]), memory], made.name
            )
        except NotLinked:
            continue
        assert all(0 <= place <= len(code.image) - 8 for place, _ in (*code.inner, *code.outer))


def grown(data: Any) -> int:
    return len(np.sort(data))


def test_what_needs_more_than_memory_is_numbas(directory: Path) -> None:
    """A kernel that calls what the image has not: here a sort, which may count references of arrays."""
    data = np.arange(9)[::-1].copy()
    fresh = compiled(grown)
    assert fresh(data) == 9
    again = compiled(grown)
    assert again(data) == 9


# --- a command -------------------------------------------------------------------------------------------------------

_RUN = """
import json, sys
from rstore_cli.app import main
code = main(sys.argv[1:])
print(json.dumps([code, [name for name in sys.modules if name.partition(".")[0] in ("numba", "llvmlite")]]))
"""


def test_the_second_command_imports_no_numba(tmp_path: Path) -> None:
    log = logs.build([Message("T", bytes(1 << 20)) for _ in range(24)], segment_size=32 << 20).log
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / "00000000000000000000").write_bytes(bytes(log.read(0, 32 << 20)))
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    runs = []
    for _ in range(2):
        words = ["--store", str(store), "verify-crc", "--json"]
        done = subprocess.run([sys.executable, "-c", _RUN, *words], env=env, capture_output=True, text=True, check=True)
        *answer, last = done.stdout.splitlines()
        runs.append(({**json.loads("\n".join(answer)), "seconds": 0}, json.loads(last)))
    assert runs[0][0] == runs[1][0]
    assert runs[0][1][0] == runs[1][1][0] == 0
    assert "numba" in runs[0][1][1]
    assert runs[1][1][1] == []
    shutil.rmtree(store)  # a log without queues


def test_columns_of_rows_are_linked_by_kept_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept code takes no strided arrays, as derived rows have them: numba was imported in the middle of puts."""
    seen: list[object] = []
    link = index._link

    def noted(*arguments: Any) -> Any:
        seen.append(kept.flattened(arguments))
        return link(*arguments)

    monkeypatch.setattr(index, "_link", noted)
    rows = np.arange(200, dtype=np.int64).reshape(-1, 2)
    hashes = np.arange(100, dtype=np.int32)
    columns = (hashes, rows[:, 0], rows[:, 1])
    strided, _ = index.Linker().link(memoryview(bytes(4000)), columns, 1, 0)
    whole = (hashes, rows[:, 0].copy(), rows[:, 1].copy())
    assert strided.tobytes() == index.Linker().link(memoryview(bytes(4000)), whole, 1, 0)[0].tobytes()
    assert len(seen) == 2
    assert None not in seen
