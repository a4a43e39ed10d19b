"""`rstore pipeline` and the --spark flags, as far as no Spark is needed: what is wrong is said before one starts."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.pipeline.stores import find_stores
from rstore_cli._spark import topic_names
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.walking import commands
from tests.support import stores

Store = Callable[[str], Path]
JOBS = ("verify", "reindex", "export", "import", "stats", "diff", "lag", "grep")
ROOT = Path(__file__).resolve().parents[2]


def test_the_help_names_every_job(cli: Cli) -> None:
    ran = cli("pipeline", "--help")
    assert ran.code == 0
    assert re.findall(r"^  ([a-z]+)  ", ran.out, flags=re.MULTILINE) == list(JOBS)


@pytest.mark.parametrize("job", JOBS)
def test_every_option_is_documented(job: str, cli: Cli) -> None:
    page = (ROOT / "engine" / "pipeline" / "PIPELINE.md").read_text(encoding="utf-8")
    ran = cli("pipeline", job, "--help")
    assert ran.code == 0
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", ran.out, flags=re.MULTILINE))
    assert {"--master", "--conf", "--json", "--parquet", "--plot"} <= options
    for option in options - {"--help", "--quiet", "--config", "--store"}:
        assert f"`{option}`" in page, (job, option)


def test_the_commands_load_nothing_heavy() -> None:
    heavy = ("numpy", "pyspark", "pyarrow", "rich", "engine.pipeline", "engine.repair", "engine.log")
    code = f"""if True:
        import sys
        from rstore_cli.app import main
        main(["pipeline", "verify", "--help"])
        found = [m for m in sys.modules if m.startswith({heavy!r})]
        sys.exit(repr(found) if found else 0)
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("pipeline",), "Missing command"),
        (("pipeline", "verfy"), "verfy"),
        (("pipeline", "verify", "--nope"), "No such option: --nope"),
        (("pipeline", "verify", "--conf", "memory=2g"), "--conf memory=2g: not a setting of Spark"),
        (("pipeline", "verify", "--conf", "spark.x"), "not a setting of Spark"),
        (("pipeline", "verify", "--split-bytes", "many"), "--split-bytes: not a size"),
        (("pipeline", "verify", "--split-bytes", "0"), "--split-bytes must be ≥ 1"),
        (("pipeline", "verify", "--from", "abc"), "--from: not a size"),
        (("pipeline", "verify", "--plot", "x.txt"), "FILE.html"),
        (("pipeline", "verify", "--master", "spark://nowhere"), "not HOST:PORT"),
        (("pipeline", "stats", "--on-damage", "mark"), "--on-damage mark is invalid: use fail or skip"),
        (("pipeline", "stats", "--begin", "soon"), "--begin: not a time"),
        (("pipeline", "grep", "--property", "x"), "NAME=VALUE"),
        (("pipeline", "diff"), "diff takes two stores, not 0"),
        (("pipeline", "export"), "--output"),
        (("pipeline", "reindex", "--topic", "T", "--index"), "all topics share the index"),
        (("verify-crc", "--master", "local[2]"), "--master requires --spark"),
        (("verify-crc", "--spark", "--jobs", "2"), "--jobs sets threads"),
        (("dump", "commitlog", "--split-bytes", "1M"), "--split-bytes requires --spark"),
        (("reindex", "--conf", "spark.a=b"), "--conf requires --spark"),
    ],
)
def test_a_usage_error_is_one_line_and_2(args: tuple[str, ...], says: str, fixture_store: Store, cli: Cli) -> None:
    ran = cli("--store", fixture_store("clean-small"), *args)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.error_line
    with_json = cli("--store", fixture_store("clean-small"), *args, "--json")
    assert (with_json.code, with_json.json["error"]["code"]) == (2, "usage")


def test_several_topics_are_given_one_by_one_or_in_a_word() -> None:
    """`--topic A --topic B` was B alone, `A,B` a topic of that name: tests/pipeline/test_commands.py exports them."""
    assert topic_names(["A", "B"]) == topic_names(["A,B"]) == topic_names(["A, B", "A"]) == ("A", "B")
    assert topic_names(None) == ()
    for nothing in ([""], [","]):
        with pytest.raises(InvalidArgument, match="--topic is empty"):
            topic_names(nothing)
    taken = {
        words[1]: option.multiple
        for words, command in commands()
        for option in command.params
        if words[0] == "pipeline" and "--topic" in option.opts
    }
    assert taken["export"]
    assert taken["import"]


@pytest.mark.parametrize("job", ["verify", "stats", "lag", "grep", "reindex"])
def test_not_a_store_is_4(job: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    for place in (tmp_path / "none", tmp_path / "other", tmp_path / "none-*"):
        ran = cli("pipeline", job, place)
        assert ran.code == 4, (place, ran)
        assert str(place) in ran.error_line
    assert cli("--store", tmp_path / "none", "pipeline", job).code == 4


@pytest.mark.leaves
def test_a_dledger_store_of_several_brokers_is_4(cli: Cli, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    for name in ("dledger-n0", "dledger-n1"):
        (store / name).mkdir()
    ran = cli("pipeline", "verify", store)
    assert ran.code == 4
    assert "a DLedger store of several brokers" in ran.error_line


def test_two_stores_of_the_same_name_are_4(cli: Cli, fixture_copy: Store, tmp_path: Path) -> None:
    one = stores.copy(fixture_copy("clean-small"), tmp_path / "a" / "store")
    other = stores.copy(fixture_copy("lmq"), tmp_path / "b" / "store")
    ran = cli("pipeline", "verify", one, other)
    assert ran.code == 4
    for word in ("two stores are named store", str(one), f"OTHER={other}"):
        assert word in ran.error_line
    assert [store.name for store in find_stores([f"{tmp_path}/*/store"])] == ["a", "b"]
    assert cli("pipeline", "diff", one).code == 2
    assert cli("pipeline", "verify", one, one).code == 4


@pytest.mark.parametrize("words", [("pipeline", "reindex"), ("reindex", "--spark")], ids=" ".join)
def test_a_store_that_is_locked_for_writing_is_3(words: tuple[str, ...], cli: Cli, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    with StoreLock(Disk(), str(store)):
        ran = cli("--store", store, *words, "--yes")
    assert ran.code == 3
    assert str(store) in ran.error_line


def test_a_master_that_does_not_answer_is_5_at_once(cli: Cli, fixture_store: Store) -> None:
    began = time.monotonic()
    ran = cli("pipeline", "verify", fixture_store("clean-small"), "--master", "spark://127.0.0.1:1")
    assert ran.code == 5
    assert "no Spark master answers at spark://127.0.0.1:1" in ran.error_line
    assert time.monotonic() - began < 60


def _without(
    preparation: str, store: Path, home: Path, *args: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, after some lines of Python."""
    code = f"""if True:
        import sys
        {preparation}
        from rstore_cli.app import main
        sys.exit(main({["pipeline", "verify", str(store), *args]!r}))
    """
    path = str(ROOT)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "HOME": str(home), "PYTHONPATH": path, **environment},
    )


def test_no_java_is_5_and_says_how_to_get_it(fixture_store: Store, tmp_path: Path) -> None:
    """Nothing on PATH, no JAVA_HOME, nothing where distributions put it."""
    ran = _without("import engine.pipeline.java as java; java._PLACES = ()", fixture_store("clean-small"), tmp_path)
    assert (ran.returncode, ran.stdout) == (5, "")
    (line,) = ran.stderr.splitlines()
    for word in (
        "Spark needs Java 17 or newer: none was found",
        "apt-get install openjdk-17-jre-headless",
        "JAVA_HOME",
    ):
        assert word in line


def test_an_old_java_is_named(fixture_store: Store, tmp_path: Path) -> None:
    java = tmp_path / "jdk8" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    preparation = "import engine.pipeline.java as java; java._PLACES = ()"
    home = str(tmp_path / "jdk8")
    ran = _without(preparation, fixture_store("clean-small"), tmp_path, JAVA_HOME=home)
    assert ran.returncode == 5
    assert f"{home} has Java 8" in ran.stderr


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_a_missing_package_is_5_and_says_how_to_get_it(name: str, fixture_store: Store, tmp_path: Path) -> None:
    ran = _without(f"sys.modules[{name!r}] = None", fixture_store("clean-small"), tmp_path)
    assert (ran.returncode, ran.stdout) == (5, "")
    (line,) = ran.stderr.splitlines()
    assert f"{name} is not installed" in line
    assert "pip install --upgrade 'rstore[spark]'" in line


def test_the_doctor_says_whether_spark_can_run(cli: Cli, fixture_store: Store) -> None:
    found = cli("--store", fixture_store("clean-small"), "doctor", "--json").json["sparkJobs"]
    assert found.keys() == {"ready", "java", "javaVersion", "pyspark", "pyarrow", "why"}
    assert found["ready"] == (found["why"] is None)
    assert "Spark jobs" in cli("--store", fixture_store("clean-small"), "doctor").out
