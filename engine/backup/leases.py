"""Who works in a repository now: any number of writers, or one that removes objects.

Each writes an object of its own and then looks at those of the others (the one who comes later sees the one who came
first, and of two at once each sees the other: both give way). Lists of S3, GCS and Azure show what was written before;
one that does not have the own lease is an old one, from a cache between, and nothing is done on the ground of it.
A follower has its lease for a moment each second: who wants to remove keeps his own, and waits for the follower's end.
A lease is renewed while its owner lives; one that was not renewed for STALE_S by the clock of the place itself, or
whose process on this very machine has gone, is nobody's.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NotFound, RStoreError, StorageError, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.objects.objects import Objects

LEASES = "leases"
RENEW_S = 60
STALE_S = 900
_WRITES, _REMOVES = "writes", "removes"
_LARGEST = 4096
FOLLOWS = "backup create --follow"
"""What a follower's leases say: it gives them back soon."""
_FOLLOWER_S, _LOOK_S = 30.0, 0.1


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a lease: host, process id, what it does."""

    name: str
    host: str
    pid: int
    what: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.what})"


class Lease:
    """A lease on a repository. A context manager.

    Args:
        objects: the repository's.
        what: the command, for others' messages.
        removes: whether objects are going to be removed: nobody else may work then.

    Raises (on entry):
        StoreLocked: somebody works there whose work this would disturb. StorageError: also where lists are old.
    """

    def __init__(self, objects: Objects, what: str, *, removes: bool = False) -> None:
        self._objects = objects
        self._removes = removes
        kind = _REMOVES if removes else _WRITES
        self._name = f"{LEASES}/{kind}-{os.urandom(8).hex()}"
        self._content = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "what": what}).encode()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="rstore-lease", daemon=True)

    def __enter__(self) -> Lease:
        self._objects.put(self._name, self._content)
        try:
            until = time.monotonic() + _FOLLOWER_S
            while (holder := next(self._others(), None)) is not None:
                if self._removes and holder.what == FOLLOWS and time.monotonic() < until:
                    time.sleep(_LOOK_S)
                    continue
                raise StoreLocked(
                    f"the repository is locked by {holder}", path=self._objects.where, hint="run it again later"
                )
        except BaseException:
            self._objects.delete([self._name])
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        try:
            self._objects.delete([self._name])
        except RStoreError:
            if kind is None:
                raise

    def demand(self) -> None:
        """Raise StoreLocked where somebody took this lease for stale: the process was stopped for long."""
        if self._objects.size(self._name) is None:
            raise StoreLocked(
                "another process took this one for dead and may have removed its objects",
                path=self._objects.where,
                hint="run it again",
            )

    def _others(self) -> Iterator[LeaseHolder]:
        """Those that are alive and in the way; what is left of dead ones is removed."""
        listed = list(self._objects.list(LEASES))
        now = max((one.written_s for one in listed if one.name == self._name), default=None)
        if now is None:
            raise StorageError(
                "the list of the repository does not have what was written just now: it is an old one",
                path=self._objects.where,
                hint="run it again later; rstore needs lists that show what was written before",
            )
        for one in listed:
            other_removes = one.name.startswith(f"{LEASES}/{_REMOVES}-")
            if one.name == self._name or not (self._removes or other_removes):
                continue
            holder = self._holder(one.name)
            if holder is None:
                continue
            if now - one.written_s > STALE_S or _has_gone(holder):
                self._objects.delete([one.name])
            else:
                yield holder

    def _holder(self, name: str) -> LeaseHolder | None:
        try:
            data = self._objects.get(name)
        except NotFound:  # given back meanwhile
            return None
        try:
            fields = json.loads(data[:_LARGEST])
            return LeaseHolder(name, str(fields["host"]), int(fields["pid"]), str(fields["what"]))
        except (ValueError, KeyError, TypeError):
            return LeaseHolder(name, "an unknown host", 0, "its lease can't be read")

    def _renew(self) -> None:
        while not self._done.wait(RENEW_S):
            try:
                if self._objects.size(self._name) is not None:
                    self._objects.put(self._name, self._content)
            except RStoreError:  # it is tried again, long before the lease is stale
                continue


def _has_gone(holder: LeaseHolder) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    if holder.host != socket.gethostname() or holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
