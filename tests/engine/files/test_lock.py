from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.errors import StorageError, StoreLocked
from engine.files.disk import Disk
from engine.files.lock import StoreLock, holder_of, is_held_by_other

POSIX_HOLDER = """
import fcntl, sys
file = open(sys.argv[1] + "/lock", "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""

OUR_HOLDER = """
import sys
from engine.files.disk import Disk
from engine.files.lock import StoreLock
with StoreLock(Disk(), sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""

JAVA_HOLDER = """
import java.io.RandomAccessFile;
public class Holder {
    public static void main(String[] args) throws Exception {
        var file = new RandomAccessFile(args[0] + "/lock", "rw");
        var lock = file.getChannel().tryLock(0, 1, false);
        System.out.println(lock == null ? "refused" : "held");
        System.in.read();
    }
}
"""


@contextmanager
def process(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A child, and the first line that it says; it ends with the block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.stdin.close()
            child.wait()


def test_taking_and_releasing(tmp_path: Path) -> None:
    lock = StoreLock(Disk(), str(tmp_path))
    assert not lock.held
    with lock:
        assert lock.held
        assert (tmp_path / "lock").read_bytes() == b"lock"
        with pytest.raises(StoreLocked):
            lock.acquire()
    assert not lock.held
    lock.release()
    with lock:
        pass
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    first, second = StoreLock(Disk(), str(tmp_path)), StoreLock(Disk(), str(tmp_path))
    with first:
        with pytest.raises(StoreLocked, match=f"the store is locked by process {os.getpid()}"):
            second.acquire()
        # Nor does the refused one's descriptor, now closed, take the lock along.
        assert is_held_by_other(Disk(), str(tmp_path))
        with pytest.raises(StoreLocked):
            second.acquire()
    with second:
        pass


@pytest.mark.parametrize("program", [POSIX_HOLDER, OUR_HOLDER])
def test_another_process_is_seen_and_respected(tmp_path: Path, program: str) -> None:
    with process(sys.executable, "-c", program, str(tmp_path)) as (child, said):
        assert said == "held"
        with pytest.raises(StoreLocked) as raised:
            StoreLock(Disk(), str(tmp_path)).acquire()
        assert f"the store is locked by process {child.pid}" in str(raised.value)
        assert raised.value.exit_code == 3
        holder = holder_of(Disk(), str(tmp_path))
        assert holder is not None
        assert holder.pid == child.pid
    assert holder_of(Disk(), str(tmp_path)) is None
    with StoreLock(Disk(), str(tmp_path)):
        pass


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    with process(sys.executable, "-c", OUR_HOLDER, str(tmp_path)) as (child, _):
        child.kill()
        child.wait()
    with StoreLock(Disk(), str(tmp_path)):
        pass


def test_a_posix_lock_is_refused_while_we_hold_it(tmp_path: Path) -> None:
    with (
        StoreLock(Disk(), str(tmp_path)),
        process(sys.executable, "-c", POSIX_HOLDER + "\n", str(tmp_path)) as (child, said),
    ):
        assert said == ""
        assert child.wait() != 0


def test_probes_in_the_holder_s_process_do_not_drop_the_lock(tmp_path: Path) -> None:
    with StoreLock(Disk(), str(tmp_path)):
        assert is_held_by_other(Disk(), str(tmp_path))
        (tmp_path / "lock").read_bytes()
        with process(sys.executable, "-c", POSIX_HOLDER, str(tmp_path)) as (_, said):
            assert said == ""


def test_the_probe_makes_nothing_and_writes_nothing(tmp_path: Path) -> None:
    assert not is_held_by_other(Disk(), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lock").write_bytes(b"lo")
    (tmp_path / "lock").chmod(0o444)
    before = (tmp_path / "lock").stat()
    assert not is_held_by_other(Disk(), str(tmp_path))
    after = (tmp_path / "lock").stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


def test_the_probe_takes_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    is_held_by_other(Disk(), str(tmp_path))
    with process(sys.executable, "-c", POSIX_HOLDER, str(tmp_path)) as (_, said):
        assert said == "held"


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        StoreLock(Disk(), str(tmp_path / "nothing")).acquire()
    assert not is_held_by_other(Disk(), str(tmp_path / "nothing"))
    assert list(tmp_path.iterdir()) == []


def test_where_there_are_no_ofd_locks_posix_ones_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    monkeypatch.delattr(fcntl, "F_OFD_GETLK")
    with (
        StoreLock(Disk(), str(tmp_path)),
        process(sys.executable, "-c", POSIX_HOLDER, str(tmp_path)) as (_, said),
    ):
        assert said == ""
    with process(sys.executable, "-c", POSIX_HOLDER, str(tmp_path)) as (child, said):
        assert said == "held"
        with pytest.raises(StoreLocked, match=str(child.pid)):
            StoreLock(Disk(), str(tmp_path)).acquire()


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_java_and_we_exclude_each_other(tmp_path: Path) -> None:
    source = tmp_path / "Holder.java"
    source.write_text(JAVA_HOLDER)
    with process("java", str(source), str(tmp_path)) as (child, said):
        assert said == "held"
        with pytest.raises(StoreLocked, match=str(child.pid)):
            StoreLock(Disk(), str(tmp_path)).acquire()
    with StoreLock(Disk(), str(tmp_path)), process("java", str(source), str(tmp_path)) as (_, said):
        assert said == "refused"
