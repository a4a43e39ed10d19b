"""What works without the large and the daemon's packages: README says which may be left out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli

ROOT = Path(__file__).parents[2]
Store = Callable[[str], Path]

LEFT_OUT = {"numba", "uvloop", "aiohttp", "jinja2", "prometheus_client", "python-json-logger"}
MODULES = (
    *("numba", "llvmlite", "uvloop", "aiohttp", "jinja2", "prometheus_client", "pythonjsonlogger", "pyspark"),
    *("pyarrow", "blake3", "zstandard", "cryptography", "obstore", "rocksdict"),
)

RUN = """if True:
    import contextlib, io, json, sys
    for name in {modules!r}:
        sys.modules[name] = None  # an import finds nothing, and so does find_spec
    from rstore_cli.app import main
    for words in json.load(sys.stdin):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def without(*runs: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Commands in a process that lacks those packages: exit code and the two texts of each."""
    words = [list(map(str, run)) for run in runs]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(modules=MODULES)],
        input=json.dumps(words), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


READING = (
    "status --full", "plan-start", "recover --whole --dry-run", "verify-crc", "check", "doctor", "offsets list",
    "dump commitlog --limit 50", "dump consumequeue Orders 0", "dump index --limit 50", "dump checkpoint",
    "dump timerlog --due", "dump timerwheel", "dump epoch", "dump dledger",
    "get Orders 0", "query Hot k40", "reindex --dry-run", "truncate --to-offset 0 --dry-run", "salvage scan",
    "rebuild-config --dry-run", "undo --list",
)  # fmt: skip
NEVER_THE_SAME = re.compile(r'"seconds": ?[-0-9.e]+')


def test_every_reading_command_says_the_same(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    runs = [("--store", str(store), "--json", *words.split()) for words in READING]
    for words, (code, out, err) in zip(runs, without(*runs), strict=True):
        expected = cli(*words)
        assert (code, "Traceback" in err) == (expected.code, False), (words, err)
        if words[3] not in ("status", "doctor"):  # rates and rooms differ from run to run; doctor tells of Spark
            assert NEVER_THE_SAME.sub("", out) == NEVER_THE_SAME.sub("", expected.out), words


def test_a_store_is_filled_and_mended(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    made = without(
        ("--store", store, "init", "--commitlog-file-size", "4M"),
        ("--store", store, "put", "Orders", "--count", "5000", "--size", "1K", "--keys", "k"),
    )
    assert [code for code, *_ in made] == [0, 0]
    (tmp_path / "store" / "abort").touch()
    ran = without(
        ("--store", store, "recover", "--yes"),
        ("--store", store, "verify-crc", "--json"),
    )
    assert [code for code, *_ in ran] == [0, 0]
    assert json.loads(ran[1][1])["messages"] == 5000


def test_what_wants_one_says_so_in_a_line(fixture_copy: Store) -> None:
    store = str(fixture_copy("clean-small"))
    serve, spark, console, report = without(
        ("--store", store, "serve", "--port", "0", "--no-names"),
        ("pipeline", "verify", store),
        ("--store", store, "console", "--port", "0"),
        ("--store", store, "report", "--json"),
    )
    assert console == (5, "", "rstore: aiohttp is not installed (pip install aiohttp)\n")
    assert (report[0], report[2]) == (5, "rstore: jinja2 is not installed (pip install jinja2)\n")
    assert serve == (5, "", "rstore: aiohttp is not installed (pip install aiohttp)\n")
    assert spark[0] == 5
    assert "pip install --upgrade 'rstore[spark]'" in spark[2]


def test_readme_names_the_packages_that_are_enough() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[>=;\s]", one)[0] for one in project["dependencies"]} - LEFT_OUT
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    told = re.search(r"pip install --no-deps \S+\n +\S*pip install (.+)", text)
    assert told is not None
    assert set(told[1].split()) == needed


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_readme_says_what_is_left_out(name: str) -> None:
    assert f"`{name}`" in (ROOT / "README.md").read_text(encoding="utf-8")
