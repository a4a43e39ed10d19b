"""`rstore backup create --follow`: what is shown while it runs, and how it ends."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from rstore_cli.backup_text import show_created
from rstore_cli.render import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from engine.backup.create.create import CreateOptions
    from engine.backup.create.follow import FollowState
    from engine.backup.create.origin import StoreOrigin
    from engine.backup.repository import Repository
    from engine.files.disk import Disk
    from rstore_cli._common import Settings
    from rstore_cli.render import Output

_SHOWN_S = 60.0


def follow_store(
    settings: Settings,
    disk: Disk,
    origin: StoreOrigin,
    repository: Repository,
    options: CreateOptions,
    every_s: float,
    metrics_file: Path | None,
    root: Path | None,
) -> None:
    """Follow until a signal comes; `root`: the store's directory, where it is on this machine.

    Raises:
        As `create`: the first snapshot, or the last one, could not be made.
    """
    from engine.backup.create.copier import StoreCopier
    from engine.backup.create.follow import BackupFollower
    from engine.backup.create.lag import LagReports
    from engine.files.low_priority import give_some_way

    output = settings.output()
    reports = LagReports(disk, None if metrics_file is None else str(metrics_file), root)
    shown = _Shown(output)

    def tell(state: FollowState) -> None:
        reports.tell(state)
        shown.round(state, None if reports.error is None else str(reports.error))

    give_some_way()
    try:
        copier = StoreCopier(disk, origin, repository, options)
        follower = BackupFollower(origin, copier, repository, options.store or origin.name, every_s, tell)
        output.note("the first snapshot is made; then what comes is stored until Ctrl-C or SIGTERM")
        follower.begin()
        settings.on_interrupt = "the snapshots that were made are kept"
        stop = threading.Event()
        with _set_by_signals(stop):
            follower.run(stop)
        reports.close(follower.state)
    finally:
        origin.close()


class _Shown:
    """A line for each snapshot as JSON; else the first snapshot, failures, and now and then how it stands."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._at = 0.0
        self._told: set[str] = set()

    def round(self, state: FollowState, unreported: str | None) -> None:
        output, now = self._output, time.monotonic()
        notes = () if state.created is None else state.created.notes
        if state.error is not None:
            since = f"lag {state.lag_s(time.time()):.0f} s"
            output.warn(f"not stored: {state.error}; it is tried again ({since})")
        for note in (*notes, *(() if unreported is None else (f"the lag could not be reported: {unreported}",))):
            if note not in self._told:
                self._told.add(note)
                output.warn(note)
        if output.json:
            if state.created is not None or state.error is not None:
                output.line(state.to_json())
        elif state.created is not None and state.snapshots == 1:
            show_created(output, state.created)
        elif now - self._at >= _SHOWN_S:
            output.note(
                f"log up to {state.end} in snapshot {state.snapshot}, lag {state.lag_s(time.time()):.1f} s, "
                f"{size(state.added)} added"
            )
        else:
            return
        sys.stdout.flush()  # who reads a pipe sees each round
        self._at = now


@contextlib.contextmanager
def _set_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP set `stop`; the second one ends the command at once."""

    def strike(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, strike) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
