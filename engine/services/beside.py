"""A process beside the daemon, as it sees itself: its job is the first line of its standard input, which ends when the
process is to end: it never outlives who has started it. What it has to tell it prints, a JSON object a line.

The daemon's side: engine.broker.watch.processes.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import sys
import threading
from typing import Any


def encode_job(job: object) -> bytes:
    """One line: only a process that was started for it gets it."""
    return base64.b64encode(pickle.dumps(job)) + b"\n"


def begin_job(stop: threading.Event) -> object:
    """The job of this process, as `encode_job` had it; `stop` is set when the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal reaches the daemon, which ends its input
    job: object = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))
    threading.Thread(target=_until_it_ends, args=(stop,), daemon=True).start()
    return job


def tell(what: str, **more: Any) -> None:
    """Have the daemon know. Raises BrokenPipeError: it has gone."""
    print(json.dumps({"what": what, **more}), flush=True)


def _until_it_ends(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()
