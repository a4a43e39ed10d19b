"""Processes beside the daemon, which end when their stdin does: also when the daemon is killed.

Their side: engine.services.beside.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

END_S = 5.0
"""How long one has to end by itself."""


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Close its stdin, and kill it where it does not end then."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


class JobProcess:
    """A module that is run as a process, a job at a time. `run` in one thread, `end` in any.

    Attributes:
        ending: set when it is to end.
        process: the present one, or the last.
    """

    def __init__(self, module: str, log: logging.Logger) -> None:
        self._module = module
        self._log = log
        self._lock = threading.Lock()
        self.ending = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, job: bytes, hear: Callable[[dict[str, Any]], None]) -> int | None:
        """Have it do a job, and hear what it tells; its exit code when it has ended, None: it is to end.

        Raises:
            OSError: it can't be started.
        """
        process = self._begin(job)
        if process is None:
            return None
        for line in process.stdout or ():
            try:
                hear(json.loads(line))
            except (ValueError, LookupError, TypeError):  # a line that it was killed in
                self._log.warning(
                    "a process beside the daemon printed a malformed line", extra={"program": self._module}
                )
        code = process.wait()
        return None if self.ending.is_set() else code

    def end(self) -> None:
        """End it, and start it no more."""
        with self._lock:
            self.ending.set()
            process = self.process
        if process is not None:
            end_process(process)

    def _begin(self, job: bytes) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self.ending.is_set():
                return None
            words = [sys.executable, "-m", self._module]
            process = self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        try:
            process.stdin.write(job)
            process.stdin.flush()
        except BrokenPipeError:  # it has ended already, which its exit code tells
            pass
        return process
