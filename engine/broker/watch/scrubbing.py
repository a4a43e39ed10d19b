"""Sealing and scrubbing beside the daemon: a process of its own (engine.seals.child) that gives way to all others.

A thread here starts it, and hears what it finds, for the log and the metrics. One that dies is started again, later.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from engine.broker.watch.processes import END_S, JobProcess
from engine.seals.child import KeepJob
from engine.seals.layout import PAGE_SIZE
from engine.services.beside import encode_job

if TYPE_CHECKING:
    from engine.config import StoreConfig

_AGAIN_S = 60.0


class Scrubbing:
    """See the module.

    Args:
        config: of the store that is open.
        period_ms: in which everything is read once; None: nothing is scrubbed, nor sealed.
        sealing: whether complete segments are sealed.
        rate: bytes a second that are read at most; None: as the period needs.
        log: where what is found is told.

    Attributes:
        read: bytes that were read.
        pages: pages that were not as sealed, by their number in the passes so far.
        sealed_segments: that were sealed.
        oldest_ms: when the segment was read that was read longest ago, ms since 1970; 0: not known yet.
    """

    def __init__(
        self, config: StoreConfig, period_ms: int | None, *, sealing: bool, rate: int | None, log: logging.Logger
    ) -> None:
        self._job = None if period_ms is None else encode_job(KeepJob(config, period_ms, rate, sealing))
        self._log = log
        self._child = JobProcess("engine.seals.child", log)
        self._thread: threading.Thread | None = None
        self._told = ""
        self.read = 0
        self.pages = 0
        self.sealed_segments = 0
        self.oldest_ms = 0

    @property
    def is_on(self) -> bool:
        """Whether it scrubs."""
        return self._job is not None

    def start(self) -> None:
        """Begin, where it is on."""
        if self._job is not None:
            self._thread = threading.Thread(target=self._keep, args=(self._job,), name="rstore-scrub", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for it: a piece of the log may be under way. In any thread but the loop's."""
        self._child.end()
        if self._thread is not None:
            self._thread.join(END_S)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _keep(self, job: bytes) -> None:
        ending = self._child.ending
        while not ending.is_set():
            try:
                code = self._child.run(job, self._note)
            except OSError as error:
                self._tell(error.strerror or str(error))
            else:
                if code is not None:
                    self._tell(f"its process ended with exit code {code}")
            ending.wait(_AGAIN_S)

    def _note(self, told: dict[str, Any]) -> None:
        match told["what"]:
            case "sealed":
                self.sealed_segments += 1
                if told["damage"]:
                    extra = {"segment": told["segment"], "ranges": told["damage"]}
                    self._log.warning("a sealed segment has damage", extra=extra)
            case "wrong":
                self.pages += -(-int(told["bytes"]) // PAGE_SIZE)
                what = "the log is not as it was sealed" if told["sealed"] else "the scrub found damage"
                extra = {
                    "segment": told["segment"], "offset": told["physicalOffset"], "bytes": told["bytes"],
                    "kind": told["kind"], "record": told["firstRecord"], "field": told["field"], "why": told["reason"],
                }  # fmt: skip
                self._log.error(what, extra=extra)
            case "scrubbed":
                self.read += int(told["bytesRead"])
                self.oldest_ms = int(told["oldestRead"])
                self._told = ""
                if told["finished"]:
                    extra = {"sealed": told["sealedSegments"], "unsealed": told["unsealedSegments"]}
                    self._log.info("scrub finished", extra=extra)
            case "failed":
                self._tell(str(told["why"]))

    def _tell(self, why: str) -> None:
        """The same thing once, until something else happens."""
        if why != self._told and not self._child.ending.is_set():
            self._log.warning("scrub failed; will retry", extra={"why": why})
            self._told = why
