"""Commands on long logs run by code that is kept: no process but the first that compiles imports numba."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

from engine.log.kernels import kept
from tests.support.checking import check_clean

pytestmark = pytest.mark.skipif(kept._identity() is None, reason="no code is kept here")

IMPORTED = "numba is imported"
RUN = f"""
import os, sys
sys.addaudithook(lambda event, args: event == "import" and args[0] == "numba" and os.write(2, b"{IMPORTED}"))
from rstore_cli.app import run
run()
"""
MESSAGES = 24_000
COMMANDS = (
    ("verify-crc",),
    ("check",),
    ("status",),
    ("recover", "--abnormal", "--yes"),
    ("reindex", "--yes"),
    ("dump", "commitlog", "--json"),
    ("dump", "index", "--json"),
    ("dump", "consumequeue", "T", "0", "--json"),
    ("get", "T", "0", "--count", "10000", "--json"),
)


def imports_numba(*words: str | Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr
    return IMPORTED in done.stderr


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    with path.open("w") as file:
        for number in range(MESSAGES):
            named = {"KEYS": f"k{number}", "TAGS": "a", "UNIQ_KEY": f"{number:032X}"}
            file.write(
                json.dumps({"topic": "T", "queueId": number % 2, "body": "b" * 1000, "properties": named}) + "\n"
            )
    return path


def put(root: Path, lines: Path) -> bool:
    assert not imports_numba("--store", root, "init")
    return imports_numba("--store", root, "put", "--jsonl", lines)


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory, lines: Path) -> Path:
    root = tmp_path_factory.mktemp("long") / "store"
    put(root, lines)
    return root


def test_puts_of_lines_run_by_kept_code(tmp_path: Path, lines: Path, long_store: Path) -> None:
    """What the store before it has compiled is kept."""
    assert not put(tmp_path / "store", lines)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_run_by_kept_code(words: tuple[str, ...], long_store: Path) -> None:
    imports_numba("--store", long_store, *words)
    assert not imports_numba("--store", long_store, *words)
    check_clean(long_store)
