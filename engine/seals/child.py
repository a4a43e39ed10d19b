"""Sealing and scrubbing in a process of its own: `python -m engine.seals.child`, started by the daemon.

Its standard input has one line, a job (`KeepJob.encode`), and ends when the process is to end: it never outlives who
has started it. What it hears it prints, a JSON object a line. A process and no thread: one that gives way to all others
would keep the daemon's loop waiting for the interpreter, whenever it is put off while it has it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.low_priority import give_way
from engine.seals.keeping import Heard, keep_scrubbing
from engine.seals.scrub_result import ScrubOptions

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.seals.scrub_result import Scrubbed, Wrong
    from engine.seals.sealing import Sealed


@dataclass(frozen=True, slots=True)
class KeepJob:
    """What is to be scrubbed: as `keep_scrubbing` has it."""

    config: StoreConfig
    period_ms: int
    rate: int | None
    sealing: bool

    def encode(self) -> bytes:
        """One line: only a process that it starts itself gets it."""
        return base64.b64encode(pickle.dumps(self)) + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> KeepJob:
        """What `encode` made."""
        return cast("KeepJob", pickle.loads(base64.b64decode(line)))


class Told(Heard):
    """Prints what it hears: the key `what` of a line is the method's name."""

    def sealed(self, result: Sealed) -> None:
        """See Heard."""
        for row in result.made:
            damage = 0 if row.seal is None else len(row.seal.damage)
            self._tell("sealed", segment=row.offset, damage=damage)
        for offset, why in result.failed:
            self._tell("failed", why=f"segment {offset} could not be sealed: {why}")

    def wrong(self, one: Wrong) -> None:
        """See Heard."""
        self._tell("wrong", **one.to_json())

    def scrubbed(self, result: Scrubbed) -> None:
        """See Heard."""
        self._tell("scrubbed", **{key: value for key, value in result.to_json().items() if key != "wrong"})

    def failed(self, error: RStoreError) -> None:
        """See Heard."""
        self._tell("failed", why=str(error))

    def _tell(self, what: str, **more: Any) -> None:
        print(json.dumps({"what": what, **more}), flush=True)


def main() -> int:
    """Run it, until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal reaches the daemon, which ends its input
    job = KeepJob.decode(sys.stdin.buffer.readline())
    stop = threading.Event()
    threading.Thread(target=_until_it_ends, args=(stop,), daemon=True).start()
    give_way()
    told = Told()
    options = ScrubOptions(rate=job.rate, period_ms=job.period_ms)
    with contextlib.suppress(BrokenPipeError):
        try:
            keep_scrubbing(Disk(), job.config, options, stop, told, sealing=job.sealing)
        except RStoreError as error:
            told.failed(error)
            return 1
    return 0


def _until_it_ends(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
