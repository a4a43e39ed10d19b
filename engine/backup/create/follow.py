"""`backup create --follow`: the repository stays seconds after the store.

Theory. A round looks whether there is anything new. If so, it takes a lease, stores what came since the last round, and
writes a snapshot that has all of it; then it forgets the one before, if that was of the same hour (UTC) and its own.
Between rounds it holds no lease, so `prune` can work: all that the next round builds on is named by the last snapshot.
A round that fails changes nothing: what it stored may be pruned, so the next one begins where the last good one ended.

A snapshot is written when the log has grown, when config/ is another (looked at every CONFIG_S), and each IDLE_S
without either, so that the newest snapshot tells how fresh the repository is.
"""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.backup.leases import FOLLOWS, Lease
from engine.backup.repository import SNAPSHOTS
from engine.dataclass import dataclass
from engine.errors import RStoreError, StoreLocked

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from engine.backup.create.copier import StoreCopier
    from engine.backup.create.made import Created
    from engine.backup.create.origin import StoreOrigin
    from engine.backup.repository import Repository, SnapshotName

CONFIG_S = 10.0
IDLE_S = 60.0
LONGEST_PAUSE_S = 15.0
"""Less than the 20 s of silence after which a broker closes a connection (haHousekeepingInterval)."""
_HOUR = "%Y%m%d%H"


@dataclass(frozen=True, slots=True)
class FollowState:
    """How far a follower is.

    Attributes:
        store: its name in the repository.
        snapshot: the short id of the newest one; "" before the first.
        end: physical offset up to which that has the log; `log_end`: as far as the log was seen.
        covered_s: when all that the store had then was in the repository; seconds since 1970, 0 before the first.
        snapshots: how many were made, `added`: bytes that the repository grew by.
        failures: rounds in a row that failed; `error`: why the last one did, None: it did not.
        created: the snapshot that this round has made, None: it made none.
    """

    store: str
    snapshot: str
    end: int
    covered_s: float
    snapshots: int
    added: int
    failures: int
    error: RStoreError | None
    created: Created | None

    def lag_s(self, now_s: float) -> float:
        """Seconds since all was in the repository."""
        return max(0.0, now_s - self.covered_s) if self.covered_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """One object (BACKUP.md "JSON")."""
        return {
            "store": self.store,
            "snapshot": self.snapshot or None,
            "maxOffset": self.end,
            "covered": round(self.covered_s * 1000),
            "lagSeconds": round(self.lag_s(time.time()), 3),
            "snapshots": self.snapshots,
            "bytesAdded": self.added,
            "failures": self.failures,
            "error": None if self.error is None else self.error.to_json(),
        }


class BackupFollower:
    """See the module.

    Args:
        origin: the store.
        copier: makes its snapshots.
        repository: that gets them.
        store: the name of the store in it.
        every_s: between two rounds.
        tell: is told after each round.

    Attributes:
        state: after the last round.
    """

    def __init__(
        self,
        origin: StoreOrigin,
        copier: StoreCopier,
        repository: Repository,
        store: str,
        every_s: float,
        tell: Callable[[FollowState], None],
    ) -> None:
        self._origin = origin
        self._copier = copier
        self._repository = repository
        self._every_s = every_s
        self._tell = tell
        self._configuration = b""
        self._looked = self._made = 0.0
        self._own: SnapshotName | None = None
        self._stuck_at = -1
        self._took = 0.0
        self.state = FollowState(store, "", 0, 0.0, 0, 0, 0, None, None)

    def begin(self) -> None:
        """The first round. Raises as `create`: what does not begin is not followed."""
        self._round(force=True)

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set; then a last round, if there is anything new.

        Raises RStoreError: the last round failed.
        """
        while not stop.wait(self._pause_s()):
            began = time.monotonic()
            try:
                self._round()
            except RStoreError as error:
                self._failed(error)
            self._took = time.monotonic() - began
        self._round()

    def _pause_s(self) -> float:
        """Until the next round: rounds begin `every_s` apart, those after a failure later and later."""
        if not self.state.failures:
            return max(0.0, self._every_s - self._took)
        return float(min(max(self._every_s, 1.0) * 2 ** min(self.state.failures - 1, 16), LONGEST_PAUSE_S))

    def _round(self, *, force: bool = False) -> None:
        looked_s = time.time()
        self._origin.look()
        created = self._take() if force or self._is_due() else None
        before = self.state
        self._say(
            FollowState(
                before.store,
                before.snapshot if created is None else created.name.short,
                self._copier.end,
                looked_s if self._stuck_at < 0 else before.covered_s,
                before.snapshots + (created is not None),
                before.added + (0 if created is None else created.snapshot.added),
                0,
                None,
                created,
            )
        )

    def _is_due(self) -> bool:
        now = time.monotonic()
        grown = self._copier.has_more() and self._copier.end != self._stuck_at
        if grown or now - self._made >= IDLE_S:
            return True
        if now - self._looked < CONFIG_S:
            return False
        self._looked, self._stuck_at = now, -1
        return self._digest() != self._configuration

    def _take(self) -> Created:
        configuration, before = self._digest(), self._copier.end
        with Lease(self._repository.objects, FOLLOWS) as lease:
            created = self._copier.take(lease)
            own, self._own = self._own, created.name
            if own is not None and own.name != created.name.name and _hour(own) == _hour(created.name):
                # One that stays is forgotten by `backup forget`; this round has done its work.
                with contextlib.suppress(RStoreError):
                    self._repository.objects.delete([f"{SNAPSHOTS}/{own.name}"])
        # What lies at the log end is no record: damage, or one that is being written. Each second is too often for it.
        self._stuck_at = self._copier.end if self._copier.end == before and self._copier.has_more() else -1
        self._configuration = configuration
        self._made = self._looked = time.monotonic()
        return created

    def _digest(self) -> bytes:
        return self._repository.hash_of(b"\0".join(self._origin.configuration())).encode()

    def _failed(self, error: RStoreError) -> None:
        state = self.state
        if isinstance(error, StoreLocked):  # prune works: that is no failure of ours, and takes a while
            error.hint = "it is tried again until that has ended"
        self._say(
            FollowState(
                state.store,
                state.snapshot,
                state.end,
                state.covered_s,
                state.snapshots,
                state.added,
                state.failures + 1,
                error,
                None,
            )
        )

    def _say(self, state: FollowState) -> None:
        self.state = state
        self._tell(state)


def _hour(name: SnapshotName) -> str:
    return datetime.fromtimestamp(name.time_ms / 1000, UTC).strftime(_HOUR)
