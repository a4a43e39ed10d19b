"""Whether the daemon is well: what a load balancer or an operator is told, and the log when it changes.

Unhealthy is what does not pass by itself within seconds: puts refused for a full disk or a failure, dispatch or flush
that stand still though there is work. `tick` once a second.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.errors import DiskFull, OutOfDescriptors, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.errors import RStoreError
    from engine.services.dispatch import DispatchFinding
    from engine.store import MessageStore

STUCK_S = 30.0
TICK_S = 1.0
_LAGS_KEPT = 60


class HealthReason(NamedTuple):
    """Why the daemon is unhealthy: a word for programs (CODES), a sentence for people."""

    code: str
    message: str


CODES = {
    "disk-full": "a disk is nearly full, or has no space for the next segment (puts are refused) or for a file of "
    "config/, which the message names; free space",
    "descriptors": "no descriptor is left to open a file: puts are refused until there is one; allow more open files",
    "not-writeable": "the store refuses puts after a permanent failure: see the message, then restart",
    "dispatch-stuck": f"dispatch has not advanced for {STUCK_S:.0f} s: new messages are not in their queues",
    "diverged": "slave and master have diverged: replication has stopped; see the message",
    "flush-stuck": f"the flush has not advanced for {STUCK_S:.0f} s: new messages are not on disk",
}


def _code_of(error: RStoreError) -> str:
    if isinstance(error, DiskFull):
        return "disk-full"
    return "descriptors" if isinstance(error, OutOfDescriptors) else "not-writeable"


@dataclass(slots=True)
class _Moves:
    """A position that has to move while something is left to do."""

    position: int = -1
    since: float = 0.0

    def stuck_s(self, position: int, *, idle: bool, now: float) -> float:
        if idle or position != self.position:
            self.position, self.since = position, now
        return now - self.since


class Health:
    """See the module. For the loop's thread alone.

    Attributes:
        ready: clients are served.
    """

    def __init__(
        self,
        store: MessageStore,
        log: logging.Logger,
        divergence: Callable[[], str | None] = lambda: None,
        unwritten: Callable[[], Iterable[RStoreError]] = tuple,
    ) -> None:
        """`divergence`: a slave's, from its master. `unwritten`: why files of config/ can't be written."""
        self._store = store
        self._divergence = divergence
        self._unwritten = unwritten
        self._log = log
        self._dispatch, self._flush = _Moves(), _Moves()
        thorough_s = store.config.flush_commit_log_thorough_interval / 1000
        self._flush_s = STUCK_S + thorough_s
        self._reported: dict[str, str] = {}
        self._files = (0, 0, 0)
        self._finding: DispatchFinding | None = None
        self._last = monotonic()
        self._lags: deque[float] = deque(maxlen=_LAGS_KEPT)
        self._reasons: tuple[HealthReason, ...] = ()
        self.ready = False

    @property
    def reasons(self) -> tuple[HealthReason, ...]:
        """Why it is unhealthy; empty: healthy. What the store reports counts at once, a standstill as of a tick."""
        diverged = self._divergence()
        parted = () if diverged is None else (HealthReason("diverged", diverged),)
        tables = [HealthReason(_code_of(error), str(error)) for error in self._unwritten()]
        return (*self._refusals(), *tables, *parted, *self._reasons)

    @property
    def lag_s(self) -> float:
        """The longest time of the last minute in which the loop served nobody, about."""
        return max(self._lags, default=0.0)

    def look_at_disks(self) -> None:
        """See how full they are now, not as of the clean service's last look: puts are refused at once. Any thread."""
        store = self._store
        if store.clean.running:
            with contextlib.suppress(StorageError):  # its own next look tells of it
                store.clean.look()

    def tick(self) -> None:
        """Look, and tell the log what is new."""
        now = monotonic()
        self._lags.append(max(0.0, now - self._last - TICK_S))
        self._last = now
        store = self._store
        problems = []
        lag = store.dispatch_lag
        if self._dispatch.stuck_s(store.dispatch.position, idle=lag == 0, now=now) > STUCK_S:
            problems.append(
                HealthReason("dispatch-stuck", f"dispatch lag: {lag} bytes after {store.dispatch.position}")
            )
        left = store.log.max_offset - store.log.flushed_where
        if self._flush.stuck_s(store.log.flushed_where, idle=left <= 0, now=now) > self._flush_s:
            problems.append(
                HealthReason("flush-stuck", f"{left} bytes after {store.log.flushed_where} are not flushed")
            )
        self._reasons = tuple(problems)
        self._tell()

    def _refusals(self) -> list[HealthReason]:
        flags = self._store.flags
        refused, why = flags.refusal
        if not refused:
            out = self._store.out_of_space
            return [] if out is None else [HealthReason(_code_of(out), str(out))]
        # What is known now may be less: a flag is cleared by other threads.
        errors = flags.errors or (() if why is None else (why,))
        return [HealthReason(_code_of(error), str(error)) for error in errors] or [
            HealthReason("not-writeable", "puts are refused")
        ]

    def _tell(self) -> None:
        """What the engine has to say, as lines of the log: it keeps its state, and writes nothing itself."""
        store = self._store
        now = {reason.code: reason.message for reason in self.reasons}
        now |= {f"clean-{number}": str(error) for number, error in enumerate(store.clean.errors)}
        now |= {f"self-check-{number}": text for number, text in enumerate(store.self_check.problems)}
        for code, message in now.items():
            if code not in self._reported:
                self._log.error("unhealthy", extra={"code": code, "why": message})
        for code in self._reported.keys() - now.keys():
            self._log.info("healthy again", extra={"code": code})
        self._reported = now
        new = []
        for finding in reversed(store.findings):
            if finding is self._finding:
                break
            new.append(finding)
        for finding in reversed(new):
            self._log.warning("dispatch finding", extra={"offset": finding.offset, "why": finding.text})
        self._finding = new[0] if new else self._finding
        status = store.clean.status
        files = (status.log_files, status.queue_files, status.index_files)
        if files != self._files:
            gone = [now - before for now, before in zip(files, self._files, strict=True)]
            self._log.info(
                "expired files deleted",
                extra={"log": gone[0], "queue": gone[1], "index": gone[2], "min_offset": store.log.min_offset},
            )
            self._files = files
