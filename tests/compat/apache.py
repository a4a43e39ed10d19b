"""Apache RocketMQ 4.9.8's own message store, for the interop tests: each call is one run of a Java program.

    opened = read(store, SMALL)                     # what a 4.9.8 broker finds in the directory
    written = write(store, puts, SMALL)             # what it writes for known puts
    with hold_lock(store): ...                      # the lock that a running broker holds

Every call raises `Missing` where Java, Maven or Apache's jars are not to be had.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from . import shared_classes
from .toolchain import BRIEF, Missing, harness, java, java_version

__all__ = [
    "SMALL",
    "Exit",
    "Line",
    "Missing",
    "Offsets",
    "Opened",
    "Queue",
    "Sizes",
    "Written",
    "append",
    "clean",
    "command",
    "harness",
    "hold_lock",
    "java_version",
    "live",
    "options",
    "outcome",
    "parse",
    "read",
    "try_lock",
    "write",
]

Line = dict[str, Any]
TIMEOUT = 120.0
HANG = 20.0
OPENS = [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
]


class Exit:
    """What a run ends with."""

    OPENED = 0
    USAGE = 1
    NOT_LOADED = 2
    NOT_STARTED = 3
    ERROR = 4


@dataclass(frozen=True)
class Sizes:
    """The sizes of a store's files; the defaults are Apache's."""

    commitlog_file: int = 1 << 30
    queue_file: int = 6_000_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000

    def settings(self) -> dict[str, int]:
        """The same by Apache's names."""
        return {
            "mappedFileSizeCommitLog": self.commitlog_file,
            "mappedFileSizeConsumeQueue": self.queue_file,
            "maxHashSlotNum": self.index_slots,
            "maxIndexNum": self.index_entries,
        }


SMALL = Sizes(131_072, 2_000, 200, 800)
"""The sizes of the stores in `fixtures/`."""


@dataclass(frozen=True)
class Offsets:
    """The ends of a commit log."""

    min: int
    max: int


@dataclass(frozen=True)
class Queue:
    """A consume queue: its offsets run from `min` to below `max`."""

    topic: str
    queue_id: int
    min: int
    max: int


@dataclass
class Opened:
    """What Apache made of a store. `exit` is None when it did not end in time (a hang)."""

    exit: int | None
    lines: list[Line]
    stderr: str
    load: bool | None = None
    abnormal: bool | None = None
    after_load: Offsets | None = None
    final: Offsets | None = None
    queues: list[Queue] = field(default_factory=list)
    messages: list[Line] = field(default_factory=list)
    log: list[Line] = field(default_factory=list)
    queries: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    abort_after: bool | None = None
    error: str | None = None

    @classmethod
    def of(cls, exit_code: int | None, lines: list[Line], stderr: str) -> Self:
        """From the lines that a run printed."""
        opened = cls(exit_code, lines, stderr)
        for line in lines:
            opened._take(line)
        return opened

    def of_type(self, kind: str) -> list[Line]:
        """The lines of one type, such as `indexFile` or `getStatus`."""
        return [line for line in self.lines if line.get("type") == kind]

    def _take(self, line: Line) -> None:
        match line.get("type"):
            case "load":
                self.load, self.abnormal = line["result"], not line["lastExitOK"]
            case "afterLoad":
                self.after_load = Offsets(line["minPhyOffset"], line["maxPhyOffset"])
            case "store" | "outcome":
                self.final = Offsets(line["minPhyOffset"], line["maxPhyOffset"])
            case "queue":
                self.queues.append(Queue(line["topic"], line["queueId"], line["min"], line["max"]))
            case "msg":
                self.messages.append(line)
            case "log":
                self.log.append(line)
            case "query":
                self.queries[line["topic"], line["key"]] = line["offsets"]
            case "shutdown":
                self.abort_after = line["abortExists"]
            case "start" | "error":
                self.error = line.get("error", self.error)
            case _:
                pass


@dataclass
class Written:
    """What Apache answered to each put, in order, and how its run went."""

    opened: Opened
    results: list[Line]

    @property
    def exit(self) -> int | None:
        """As in `Opened`."""
        return self.opened.exit


def read(
    store: Path,
    sizes: Sizes,
    queries: Iterable[tuple[str, str]] | None = None,
    *,
    query_all: bool = False,
    log: bool = False,
    keep: bool = False,
    settings: Mapping[str, object] | None = None,
    timeout: float = TIMEOUT,
) -> Opened:
    """Opens a store as a broker does, reads all of it, and closes it. `keep` works on a copy."""
    args = [*options(sizes, settings), *_switches(log=log, keep=keep, query_all=query_all)]
    if queries is None:
        return _run("Read", [str(store), *args], timeout)
    with _lines_file({"topic": topic, "key": key} for topic, key in queries) as file:
        return _run("Read", [str(store), *args, "--queries", str(file)], timeout)


def outcome(store: Path, sizes: Sizes, *, settings: Mapping[str, object] | None = None, timeout: float = HANG) -> Line:
    """What Apache makes of a (damaged) store, in the form of the differential cases; changes the store."""
    opened = _run("Outcome", [str(store), *options(sizes, settings)], timeout)
    found = opened.of_type("outcome")
    line: Line = {
        "exit": opened.exit,
        "load": opened.load,
        "abnormal": opened.abnormal,
        "afterLoad": _offsets_line(opened.after_load),
        "final": _offsets_line(opened.final if found else None),
        "queues": found[0]["queues"] if found else [],
        "commitlogFiles": _names(store / "commitlog"),
        "indexFiles": len(_names(store / "index")),
        "abortAfter": (store / "abort").exists(),
    }
    if opened.abnormal is None:
        line["abnormal"] = any(before["abortFile"] for before in opened.of_type("before"))
    if opened.exit is None:
        line["hang"] = True
    if opened.exit == Exit.ERROR:
        line["error"] = opened.error
    return line


def write(
    store: Path,
    puts: Iterable[Line],
    sizes: Sizes,
    *,
    crash: bool = False,
    sync_flush: bool = False,
    bitmaps: bool = False,
    settings: Mapping[str, object] | None = None,
    timeout: float = TIMEOUT,
) -> Written:
    """Puts messages (lines of a puts file) into a store, new or there already. `crash`: killed at the end."""
    switches = _switches(crash=crash, sync_flush=sync_flush, bitmaps=bitmaps)
    with _lines_file(puts) as file:
        args = [str(store), "--puts", str(file), *options(sizes, settings), *switches]
        return _written(_run("Write", args, timeout))


def append(
    store: Path,
    topic: str,
    queue_id: int,
    count: int,
    sizes: Sizes,
    *,
    crash: bool = False,
    sync_flush: bool = False,
    settings: Mapping[str, object] | None = None,
    timeout: float = TIMEOUT,
) -> Written:
    """Puts `count` plain messages with body and key `append-N` into a store."""
    given = [*options(sizes, settings), *_switches(crash=crash, sync_flush=sync_flush)]
    return _written(_run("Append", [str(store), topic, str(queue_id), str(count), *given], timeout))


def clean(
    store: Path,
    sizes: Sizes,
    *,
    rounds: int = 1,
    manually: bool = False,
    hold_until: int | None = None,
    warning_ratio: float | None = None,
    forcibly_ratio: float | None = None,
    settings: Mapping[str, object] | None = None,
    timeout: float = TIMEOUT,
) -> Opened:
    """Opens a store and has it delete what has expired; a `round` line tells what is left after each round."""
    limits = {
        "--rounds": rounds,
        "--hold-until": hold_until,
        "--warning-ratio": warning_ratio,
        "--forcibly-ratio": forcibly_ratio,
    }
    given = [word for name, value in limits.items() if value is not None for word in (name, str(value))]
    args = [str(store), *options(sizes, settings), *given, *_switches(manually=manually)]
    return _run("Clean", args, timeout)


@contextmanager
def hold_lock(store: Path) -> Iterator[bool]:
    """Holds the lock of a running broker, from Java; gives whether it was to be had."""
    with _background(["Lock", str(store)], "locked") as line:
        yield bool(line.get("locked"))


def try_lock(store: Path) -> bool:
    """Whether Java can take the lock that a broker takes."""
    with hold_lock(store) as locked:
        return locked


@contextmanager
def live(
    store: Path, sizes: Sizes, *, crash: bool = False, settings: Mapping[str, object] | None = None
) -> Iterator[bool]:
    """Keeps the store open as a running broker does; gives whether it opened. `crash`: killed at the end."""
    args = ["Live", str(store), *options(sizes, settings), *_switches(crash=crash)]
    with _background(args, "live") as line:
        yield line.get("type") == "live"


@contextmanager
def command(main: str, args: list[str]) -> Iterator[list[str]]:
    """The command line of a run, which has a home and a place for temporary files of its own."""
    classpath = harness()
    with tempfile.TemporaryDirectory(prefix="rstore-compat-", ignore_cleanup_errors=True) as home:
        yield _java(classpath, home, [f"io.rstore.compat.{main}", *args])


def _java(classpath: str, home: str, args: list[str]) -> list[str]:
    return [
        str(java()),
        "-Xmx2g",
        *BRIEF,
        f"-Duser.home={home}",
        f"-Djava.io.tmpdir={home}",
        *OPENS,
        *shared_classes.options(classpath),
        "-cp",
        classpath,
        *args,
    ]


def _run(main: str, args: list[str], timeout: float) -> Opened:
    with command(main, args) as words:
        try:
            ran = subprocess.run(words, capture_output=True, timeout=timeout, check=False)
            code: int | None = ran.returncode
            out, err = ran.stdout, ran.stderr
        except subprocess.TimeoutExpired as late:
            code, out, err = None, late.stdout or b"", late.stderr or b""
    if code == Exit.USAGE:
        raise ValueError(err.decode().strip())
    return Opened.of(code, parse(out), err.decode(errors="replace"))


@contextmanager
def _background(args: list[str], wanted: str) -> Iterator[Line]:
    """Runs a program until the block ends; gives the line with the name or type `wanted`, {} without it."""
    with (
        command(args[0], args[1:]) as words,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        try:
            yield _wait_for(process, wanted)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(TIMEOUT)
        finally:
            process.kill()


def _wait_for(process: subprocess.Popen[bytes], wanted: str) -> Line:
    assert process.stdout is not None
    late = threading.Timer(TIMEOUT, process.kill)
    late.start()
    try:
        for text in process.stdout:
            line: Line = json.loads(text)
            if wanted in line or line.get("type") == wanted:
                return line
        return {}
    finally:
        late.cancel()


def parse(out: bytes) -> list[Line]:
    """The whole lines printed: a process that was ended in the middle may leave a part of one."""
    return [json.loads(line) for line in out.decode().split("\n")[:-1] if line]


def _written(opened: Opened) -> Written:
    return Written(opened, opened.of_type("put"))


def options(sizes: Sizes, settings: Mapping[str, object] | None) -> list[str]:
    """The words of a command line that give a store's settings."""
    every: dict[str, object] = {**sizes.settings(), **(settings or {})}
    return [word for name, value in every.items() for word in ("--set", f"{name}={_text(value)}")]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _switches(**given: bool) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, wanted in given.items() if wanted]


def _offsets_line(offsets: Offsets | None) -> Line | None:
    return None if offsets is None else {"minPhyOffset": offsets.min, "maxPhyOffset": offsets.max}


def _names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir()) if directory.is_dir() else []


@contextmanager
def _lines_file(lines: Iterable[Line]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rstore-compat-") as directory:
        file = Path(directory) / "lines.jsonl"
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
        yield file
