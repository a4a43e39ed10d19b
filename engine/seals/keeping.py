"""Scrub after scrub, each spread over its period, and new segments sealed in between: until somebody says stop.

For the command without `--once`, and for the daemon, beside which it runs in a process of its own (child.py).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import NotInstalled, RStoreError
from engine.seals.scrub import scrub
from engine.seals.sealing import SealOptions, seal_store

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.seals.scrub_result import Scrubbed, ScrubOptions, Wrong
    from engine.seals.sealing import Sealed

SLICE_S = 300.0
"""How long is scrubbed, or waited, before it is looked for segments to seal."""

LEAST_WAIT_S = 0.1


class Heard:
    """Who hears of it; this one does nothing."""

    def sealed(self, result: Sealed) -> None:
        """New segments were sealed, or could not be."""

    def wrong(self, one: Wrong) -> None:
        """Something is not as it was sealed."""

    def scrubbed(self, result: Scrubbed) -> None:
        """A part of a pass, or its end."""

    def failed(self, error: RStoreError) -> None:
        """It is tried again later."""


def keep_scrubbing(
    disk: Disk,
    config: StoreConfig,
    options: ScrubOptions,
    stop: threading.Event,
    heard: Heard,
    *,
    sealing: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Scrub, pass after pass, until `stop` is set.

    Args:
        disk: how files are reached.
        config: names the store.
        options: `period_ms` is how long a pass takes, and when the next one begins; `stop` and `until` are set here.
        stop: ends it.
        heard: is told.
        sealing: seal complete segments that have no seal, every few minutes.
        progress: as `scrub`.
    """
    next_ms = 0
    while not stop.is_set():
        until = time.monotonic() + SLICE_S
        try:
            if sealing:
                _seal(disk, config, options, stop, heard)
            if disk.now_ms() >= next_ms:
                turn = replace(options, stop=stop, until=until if sealing else None)
                result = scrub(disk, config, turn, progress, heard.wrong)
                if result.finished:
                    next_ms = result.began_ms + (options.period_ms or 0)
                heard.scrubbed(result)
        except NotInstalled:  # blake3, which nobody installs meanwhile
            raise
        except RStoreError as error:
            heard.failed(error)
        left_s = min(until - time.monotonic(), (next_ms - disk.now_ms()) / 1000)
        stop.wait(max(LEAST_WAIT_S, left_s))


def _seal(disk: Disk, config: StoreConfig, options: ScrubOptions, stop: threading.Event, heard: Heard) -> None:
    try:
        result = seal_store(disk, config, SealOptions(options.directory, rate=options.rate, stop=stop))
    except NotInstalled:
        raise
    except RStoreError as error:  # what is sealed is scrubbed all the same
        heard.failed(error)
        return
    if result.made or result.failed:
        heard.sealed(result)
