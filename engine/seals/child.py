"""Sealing and scrubbing in a process of its own: `python -m engine.seals.child`, started by the daemon.

What it hears it prints (engine.services.beside). A process and no thread: one that gives way to all others would keep
the daemon's loop waiting for the interpreter, whenever it is put off while it has it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, cast

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.files.low_priority import give_way
from engine.seals.keeping import Heard, keep_scrubbing
from engine.seals.scrub_result import ScrubOptions
from engine.services.beside import begin_job, tell

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


class Told(Heard):
    """Prints what it hears: the key `what` of a line is the method's name."""

    def sealed(self, result: Sealed) -> None:
        """See Heard."""
        for row in result.made:
            damage = 0 if row.seal is None else len(row.seal.damage)
            tell("sealed", segment=row.offset, damage=damage)
        for offset, why in result.failed:
            tell("failed", why=f"segment {offset} could not be sealed: {why}")

    def wrong(self, one: Wrong) -> None:
        """See Heard."""
        tell("wrong", **one.to_json())

    def scrubbed(self, result: Scrubbed) -> None:
        """See Heard."""
        tell("scrubbed", **{key: value for key, value in result.to_json().items() if key != "wrong"})

    def failed(self, error: RStoreError) -> None:
        """See Heard."""
        tell("failed", why=str(error))


def main() -> int:
    """Run it, until the standard input ends."""
    stop = threading.Event()
    job = cast("KeepJob", begin_job(stop))
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


if __name__ == "__main__":
    sys.exit(main())
