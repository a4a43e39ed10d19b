"""Run the command line: in this process, or as a process of its own where its start, signals or pipes matter."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.pipeline import java
from rstore_cli.app import main
from tests.support.in_memory import tmp_path
from tests.support.patience import requests_are_waited_for
from tests.support.priority import priority_kept

__all__ = ["Cli", "Ran", "damage", "process", "requests_are_waited_for", "tmp_path"]


@dataclass(frozen=True)
class Ran:
    """What a run left: exit code and the two texts."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error_line(self) -> str:
        """The one line that an error is; of a refusal the lines below it, too. Fails when there is more."""
        assert "Traceback" not in self.err
        line, *more = self.err.splitlines()
        assert line.startswith("rstore: ")
        assert [one.split(" ")[0] for one in more] in ([], ["Next:"], ["Note:", "Next:"], ["Note:"])
        assert not more or line.startswith("rstore: refused: ")
        return " ".join([line, *more])

    @property
    def next_command(self) -> list[str]:
        """The words that a refusal tells to run next, without the program's name."""
        program, *words = shlex.split(self.err.splitlines()[-1].removeprefix("Next: "))
        assert program == "rstore"
        return words


Cli = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RSTORE_STORE", "RSTORE_CONF", "RSTORE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def _java_is_asked_once() -> Iterator[None]:
    """Each `doctor` starts each Java for its version: what it says is the same for the whole session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java, "java_version", functools.cache(java.java_version))
        yield


@contextlib.contextmanager
def _no_log_stays() -> Iterator[None]:
    """A daemon's log that is begun here goes to this test's stderr, which is closed when it ends."""
    names = ("rstore", "asyncio", "aiohttp")
    before = {name: (list(logging.getLogger(name).handlers), logging.getLogger(name).propagate) for name in names}
    try:
        yield
    finally:
        for name, (handlers, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = handlers, propagate


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """`cli("status", "--store", path)`: runs main() here.

    It asks for pytest's own fixtures alone: tests of other folders import it.
    """

    def run(*args: str | Path) -> Ran:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    with _no_log_stays(), priority_kept():
        yield run


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside of the store, which nothing may change."""
    place = tmp_path / "victim"
    (place / "below").mkdir(parents=True)
    (place / "file").write_bytes(b"theirs, 16 bytes")
    (place / "below" / "deep").write_bytes(b"theirs")
    (place / "below").chmod(0o750)
    (place / "file").chmod(0o640)
    return place


def process(*args: str | Path, **options: Any) -> subprocess.Popen[str]:
    """The command line as a process of its own."""
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "rstore_cli.app", *map(str, args)],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


@pytest.fixture
def damaged(fixture_copy: Callable[[str], Path]) -> Path:
    """A cleanly closed store with one body byte changed in its second file: sound records lie behind it."""
    store = fixture_copy("clean-small")
    damage(store)
    return store


def damage(store: Path) -> None:
    """Change a byte of a body in the second commit log file."""
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.dump.dump import dump_log

    config = StoreConfig(store_path_root_dir=store)
    row = next(r for r in dump_log(Disk(), config, start=150_000) if r.message is not None and len(r.message.body) > 20)
    segment = row.offset // 131072 * 131072
    with (store / "commitlog" / f"{segment:020d}").open("r+b") as file:
        file.seek(row.offset - segment + 100)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.fixture
def new_store(tmp_path: Path, cli: Cli) -> Path:
    """An empty store with small files."""
    store = tmp_path / "new"
    sizes = (
        "--commitlog-file-size",
        "64K",
        "--queue-file-units",
        "100",
        "--index-slots",
        "100",
        "--index-entries",
        "400",
    )
    assert cli("--store", store, "init", *sizes).code == 0
    return store
