"""What goes wrong on Spark is one clear line with the right exit code, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.errors import DiskFull, FormatError, InvalidArgument, NotAStore, RStoreError
from engine.pipeline.failures import SparkFailed, carried, translate
from tests.rstore_cli.conftest import process
from tests.support import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Store = Callable[[str], Path]


@pytest.fixture(scope="module", autouse=True)
def _java(spark: SparkSession) -> None:
    """Skipped where there is none."""


def run(*args: str | Path, temporary: Path, **environment: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines on stderr, of a process of its own that has its scratch in `temporary`."""
    running = process(*args, env={"TMPDIR": str(temporary), **environment})
    try:
        out, err = running.communicate(timeout=120)
    finally:
        running.kill()
    return running.returncode, out, err.splitlines()


def alone(directory: Path) -> list[str]:
    """What Spark left in a directory; the JVM's own counters go with the JVM."""
    return [name for name in os.listdir(directory) if not name.startswith("hsperfdata")]


def test_a_run_leaves_nothing_and_says_nothing_of_spark(fixture_store: Store, tmp_path: Path) -> None:
    store, here = fixture_store("lmq"), tmp_path / "here"
    here.mkdir()
    words = ("pipeline", "verify", store, "--master", "local[1]", "--json")
    package = Path(__file__).resolve().parents[2]
    running = process(*words, env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(package)}, cwd=here)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (0, "")
    assert out.startswith("{")
    assert alone(here) == []
    assert alone(tmp_path) == ["here"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--master", "foo"), 2, "--master"),
        (("--master", "local[x]"), 2, "--master: unknown kind of master: local[x]"),
        (("--conf", "spark.sql.shuffle.partitions=x"), 2, "spark.sql.shuffle.partitions"),
        (("--conf", "spark.driver.memory=much"), 2, "spark.driver.memory=much"),
        (("--conf", "spark.driver.memory=64m"), 2, "driver memory"),
        (("--conf", "spark.pyspark.python=/nowhere/python"), 5, "/nowhere/python"),
    ],
)
def test_what_spark_refuses(words: tuple[str, ...], code: int, says: str, fixture_store: Store, tmp_path: Path) -> None:
    found, out, err = run("pipeline", "verify", fixture_store("lmq"), *words, temporary=tmp_path)
    assert (found, out, len(err)) == (code, "", 1), err
    assert says in err[0]
    assert err[0].startswith("rstore: ")
    assert alone(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c(fixture_copy: Store, tmp_path: Path, number: int) -> None:
    """In the middle of a job: one line, 130, no process and no file left, the store untouched."""
    store = fixture_copy("clean-small")
    before = stores.contents(store)
    words = ("pipeline", "verify", store, "--master", "local[1]", "--split-bytes", "1")  # half a million tasks' work
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    running = process(*words, env={"TMPDIR": str(scratch)}, start_new_session=True)
    until = time.monotonic() + 90
    while not _children(running.pid, "pyspark.daemon"):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    jvm = _children(running.pid, "java")
    time.sleep(0.5)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err == "rstore: interrupted: nothing was changed\n"
    assert jvm
    assert not any(Path(f"/proc/{pid}").exists() for pid in jvm)
    assert alone(scratch) == []
    assert stores.contents(store) == before


def _children(pid: int, word: str) -> list[int]:
    """Processes below `pid` whose command line has `word`."""
    found = []
    said = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in said.splitlines()]
    family = {pid}
    for _ in range(6):
        family |= {int(row[0]) for row in rows if int(row[1]) in family}
    for row in rows:
        if int(row[0]) in family - {pid} and len(row) > 2 and word in row[2]:
            found.append(int(row[0]))
    return found


def test_a_session_of_a_users_own(fixture_store: Store, tmp_path: Path) -> None:
    """Started without the environment activated: the driver's Python in its workers, and errors of ours, in a line."""
    store, damaged = fixture_store("clean-small"), tmp_path / "damaged"
    shutil.copytree(store, damaged)
    file = sorted((damaged / "commitlog").iterdir())[0]
    with file.open("r+b") as opened:
        opened.seek(20_000)
        opened.write(b"\xff" * 400)
    root = str(Path(__file__).resolve().parents[2])
    environment = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    environment |= {"PATH": "/usr/bin:/bin", "PYTHONPATH": root, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "tests.pipeline.own_session", str(store), str(damaged)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "count: 600",
        "none: NotAStore: no store here: /none (name one with --store, or make one with: rstore init)",
        "scheme: InvalidArgument: hdfs: is not a supported file system for stores and tables: hdfs://n/x "
        "(a directory that driver and executors see at the same path, or file:///DIR)",
        ran.stdout.splitlines()[3],
    ]
    assert ran.stdout.splitlines()[3].startswith("damage: FormatError: ")
    assert f"{file} at " in ran.stdout.splitlines()[3]
    assert "rstore-error:" not in ran.stderr


# --- what comes back from executors ----------------------------------------------------------------------------------


def fail_carried(_: int) -> None:
    with carried():
        raise FormatError("no record here", path="/a/b", offset=7, hint="look: <at> \\ 'it'\nand on")


def fail_plainly(_: int) -> None:
    raise DiskFull("writing: no space", path="/a/b", offset=7, hint="free some")


def fail_otherwise(_: int) -> None:
    raise ValueError("what nobody expected")


def need_memory(_: int) -> None:
    raise MemoryError


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def need_a_package(_: int) -> None:
    import no_such_package  # type: ignore[import-not-found]  # noqa: F401


def failure(spark: SparkSession, work: Callable[[int], None]) -> RStoreError:
    with pytest.raises(Exception) as caught:
        spark.sparkContext.parallelize([1], 1).map(work).collect()
    return translate(caught.value)


def test_an_engine_error_comes_back_whole(spark: SparkSession) -> None:
    error = failure(spark, fail_carried)
    assert type(error) is FormatError
    assert (error.message, error.path, error.offset) == ("no record here", "/a/b", 7)
    assert error.hint == "look: <at> \\ 'it'\nand on"


def test_an_engine_error_that_was_not_carried_has_its_kind_and_text(spark: SparkSession) -> None:
    error = failure(spark, fail_plainly)
    assert type(error) is DiskFull
    assert str(error) == "writing: no space: /a/b at 7 (free some)"


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (fail_otherwise, "Spark failed: ValueError: what nobody expected"),
        (need_memory, "a Python worker ran out of memory"),
        (die, "a Python worker was killed"),
        (need_a_package, "the executors' Python has no no_such_package"),
    ],
)
def test_other_failures_of_executors(work: Callable[[int], None], says: str, spark: SparkSession) -> None:
    error = failure(spark, work)
    assert type(error) is SparkFailed
    assert says in error.message
    assert error.exit_code == 5
    assert "\n" not in str(error)


def test_errors_of_the_data_source_come_back(spark: SparkSession, tmp_path: Path, fixture_store: Store) -> None:
    read = spark.read.format("rocketmq-store")
    for kind, prepare in (
        (NotAStore, lambda: read.load(str(tmp_path / "none")).count()),
        (InvalidArgument, lambda: read.option("columns", "nope").load(str(fixture_store("lmq"))).count()),
    ):
        with pytest.raises(Exception) as caught:
            prepare()
        assert type(translate(caught.value)) is kind
