"""A console in a process of its own, beside the daemon that started it: what a page costs costs no send.

It ends when its standard input does, so that it never outlives the daemon, however that ends; one that dies is started
again, a few times.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence

from engine.broker.watch.processes import END_S, end_process

MOST_STARTS, WINDOW_S = 5, 60.0
"""It is given up when it has died so often in a window of time."""
FOLLOWS_STDIN = "RSTORE_CONSOLE_FOLLOWS_STDIN"
"""Environment variable: the console ends when its standard input does."""
NICE = 10
"""How far it steps back behind the daemon (nice)."""
_AGAIN_S = 1.0


class ConsoleProcess:
    """See the module. A context manager: it is started, and ended.

    Args:
        command: that runs a console which follows its standard input.
    """

    def __init__(self, command: Sequence[str], log: logging.Logger | None = None) -> None:
        self._command = list(command)
        self._log = log or logging.getLogger("rstore.console")
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="console", daemon=True)

    def __enter__(self) -> ConsoleProcess:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None:
            end_process(process)
        self._thread.join(END_S)

    def _keep(self) -> None:
        starts: deque[float] = deque(maxlen=MOST_STARTS)
        while not self._stopping.is_set():
            if len(starts) == MOST_STARTS and time.monotonic() - starts[0] < WINDOW_S:
                self._log.error("the console is not started again: it has ended too often")
                return
            starts.append(time.monotonic())
            with self._lock:
                if self._stopping.is_set():
                    return
                try:
                    process = self._process = subprocess.Popen(
                        self._command, stdin=subprocess.PIPE, env={**os.environ, FOLLOWS_STDIN: "1"}
                    )
                except OSError as error:
                    self._log.error("the console can't be started", extra={"why": error.strerror})
                    return
            code = process.wait()
            if not self._stopping.is_set():
                self._log.error("the console has ended", extra={"code": code})
                self._stopping.wait(_AGAIN_S)
