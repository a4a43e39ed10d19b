"""Runs a process and measures it from outside: wall, processor, memory.

Memory is read from /proc/PID/status every `EVERY_S` seconds: VmHWM is the peak of all resident pages and is kept by the
kernel; RssAnon, the pages that are no file's, is not, so its peak is the highest that was seen. (ru_maxrss would not
do: a child's begins at its parent's.)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from engine.dataclass import dataclass
from engine.errors import StorageError

EVERY_S = 0.02
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measure. Times in seconds, memory in bytes.

    Attributes:
        wall: from the process's start to its end; `wall_cpu` its processor time.
        seconds: inside the job, as the process says itself; None when it doesn't. `cpu`: its processor time.
        messages: how many.
        size: bytes, where the job counts them.
        peak_rss: resident, with mapped files. `peak_anon`: without.
        more: what else the process said.
    """

    wall: float
    wall_cpu: float
    seconds: float | None
    cpu: float | None
    messages: int
    size: int
    peak_rss: int
    peak_anon: int
    more: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "wall": self.wall,
            "wallCpu": self.wall_cpu,
            "seconds": self.seconds,
            "cpu": self.cpu,
            "messages": self.messages,
            "bytes": self.size,
            "peakRss": self.peak_rss,
            "peakRssAnon": self.peak_anon,
            "more": dict(self.more),
        }


class TookTooLong(StorageError):
    """A measure came to its time limit."""


def measure(
    command: Sequence[str],
    *,
    answers: bool,
    timeout: float,
    env: Mapping[str, str] | None = None,
    exits: Collection[int] = (0,),
) -> Measurement:
    """Run `command` to its end. `answers`: it prints a line of JSON with what it measured itself. `exits`: the exit
    codes that are none of a failure.

    Raises:
        StorageError: it failed; with the last that it said. TookTooLong: longer than `timeout` (s).
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        sink = out if answers else subprocess.DEVNULL
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=errors, env=env)
        memory = _Memory(process.pid)
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        memory.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            timer.cancel()
            memory.stop()
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        line = _last(out) if answers else ""
        if process.returncode == -signal.SIGKILL:
            if wall >= timeout:
                raise TookTooLong(f"ended after {timeout:.0f} s", hint="see --limit")
            raise StorageError(f"a measurement was killed: {_name(command)}")
        answer = _answer(line) if answers else {}
        if process.returncode not in exits or (answers and "seconds" not in answer):
            why = answer.get("error") or _last(errors) or f"exit code {process.returncode}"
            raise StorageError(f"{_name(command)}: {why}")
    return Measurement(
        wall,
        usage.ru_utime + usage.ru_stime,
        answer.get("seconds"),
        answer.get("cpu"),
        int(answer.get("messages", 0)),
        int(answer.get("bytes", 0)),
        memory.peak_rss,
        memory.peak_anon,
        answer.get("more", {}),
    )


def _name(command: Sequence[str]) -> str:
    """The command, less what only the machine wants to know."""
    return " ".join(word for word in command if len(word) < 100 and "=" not in word)


def _last(file: Any) -> str:
    file.seek(0)
    lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _answer(line: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        answer = json.loads(line)
        if isinstance(answer, dict):
            return answer
    return {}


class _Memory(threading.Thread):
    """Watches a process's memory until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._path = f"/proc/{pid}/status"
        self._ended = threading.Event()
        self.peak_rss = 0
        self.peak_anon = 0

    def run(self) -> None:
        """Look, and look again."""
        while True:
            try:
                with open(self._path, "rb") as file:
                    self._look(file.read())
            except OSError:
                return
            if self._ended.wait(EVERY_S):
                return

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def _look(self, status: bytes) -> None:
        for line in status.splitlines():
            if line.startswith(b"VmHWM:"):
                self.peak_rss = max(self.peak_rss, int(line.split()[1]) * _KIB)
            elif line.startswith(b"RssAnon:"):
                self.peak_anon = max(self.peak_anon, int(line.split()[1]) * _KIB)
