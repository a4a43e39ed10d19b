"""Compiled kernels are kept: a reinstallation of the same sources compiles nothing, a changed one all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

import engine

pytest.importorskip("numba")

_CALL = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(name)s %(message)s", level=logging.WARNING)
logging.getLogger("rstore.kernels").setLevel(logging.INFO)
import numpy as np, zlib
from engine.log.kernels.crc import crc32
import engine
data = np.arange(256, dtype=np.uint8)
assert crc32(data, 0, 256) == zlib.crc32(data), "another CRC"
print(engine.__file__)
"""


def installed(place: Path) -> Path:
    """The engine's sources as an installation leaves them: with modification times of their own."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(Path(engine.__file__).parent, place / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    for path in place.rglob("*.py"):
        os.utime(path)
    return place


def compiled(place: Path, cache: Path) -> bool:
    """Whether a process that uses a kernel had to compile it."""
    env = {"PATH": "", "PYTHONPATH": str(place), "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", _CALL], env=env, cwd=place, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *said, where = ran.stdout.splitlines()
    assert where.startswith(str(place))
    return any(line.startswith("rstore.kernels compiling crc.") for line in said)


def test_what_is_compiled_survives_a_reinstallation(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert compiled(installed(tmp_path / "one"), cache)
    other = installed(tmp_path / "other")
    assert not compiled(other, cache)
    with (other / "engine" / "format" / "names.py").open("a") as file:
        file.write("\n# another version\n")
    assert compiled(other, cache)


def test_where_the_cache_cannot_be_written_it_still_works(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file, no directory")
    place = installed(tmp_path / "one")
    assert compiled(place, taken)
    assert list((place / "engine" / "log" / "kernels" / "__pycache__").glob("crc.*.nbi"))


def test_processes_that_start_at_once_all_keep_their_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes the directory that is not there yet, and removes what old versions have left."""
    from engine.log.kernels import crc
    from engine.log.kernels.compiling import _Place

    together, rounds = 8, 16
    start = Barrier(together)

    def first(place: _Place) -> None:
        start.wait()
        place.ensure_cache_path()

    with ThreadPoolExecutor(together) as pool:
        for number in range(rounds):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(number)))
            kernels = tmp_path / str(number) / "rstore" / "kernels"
            if number % 2:
                for old in "abcd":
                    (kernels / old).mkdir(parents=True)
                    os.utime(kernels / old, (0, time.time() - 90 * 86400))
            places = [_Place(crc.crc32.py_func, crc.__file__) for _ in range(together)]
            list(pool.map(first, places))
            assert [str(path) for path in kernels.iterdir()] == [places[0].get_cache_path()]
