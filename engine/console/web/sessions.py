"""Who is logged in: one-time tokens, accounts, sessions, and what each session may do. No I/O.

A token opens one session, and a new one takes its place: what is left of it in a history or a log opens nothing. A
session's name is 256 random bits in a cookie that scripts can't read and other sites can't send.
"""

from __future__ import annotations

import enum
import hmac
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import RStoreError

if TYPE_CHECKING:
    from engine.client.peers import Credentials

IDLE_S, LONGEST_S = 3600.0, 12 * 3600.0
"""A session ends when nothing was asked for so long, and at the latest after so long."""
MOST_SESSIONS = 256
MOST_FAILURES, WINDOW_S = 10, 60.0
"""Log-ins that may fail in a window of time, of all visitors together."""


class ConsoleRight(enum.Enum):
    """What a page or a change asks for."""

    LOOK = "look"
    FILES = "files"
    """Of the store's files: whoever reads them passes by the ACL of the broker."""
    BODIES = "bodies"
    CHANGE = "change"


class NotLoggedIn(RStoreError):
    """Nobody is logged in here, or the session has ended."""

    code, exit_code = "not-logged-in", 4


class NotAllowed(RStoreError):
    """The session lacks the right."""

    code, exit_code = "not-allowed", 4


class TooManyFailures(RStoreError):
    """So many log-ins have failed that none is tried for a while."""

    code, exit_code = "too-many-log-ins", 4


@dataclass(slots=True)
class Session:
    """Somebody who is logged in. Times in s of the clock of `Sessions`.

    Attributes:
        name: what is shown of who it is.
        rights: what it may do.
        account: with which it asks the cluster; None: that of the console.
        csrf: what each of its forms has to carry.
        topics: topics of which it may see messages; None: of all.
    """

    key: str
    name: str
    rights: frozenset[ConsoleRight]
    account: Credentials | None
    topics: Callable[[str], bool] | None
    began: float
    seen: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def may(self, right: ConsoleRight) -> bool:
        """Whether it has the right."""
        return right in self.rights

    def demand(self, right: ConsoleRight) -> None:
        """Raises NotAllowed: it lacks the right."""
        if right not in self.rights:
            raise NotAllowed(f"{self.name} lacks the right {right.value}", hint=_HINTS[right])

    def demand_topic(self, topic: str) -> None:
        """Raises NotAllowed: messages of the topic are not for it, with their bodies or without."""
        if self.topics is not None and not self.topics(topic):
            raise NotAllowed(f"{self.name} may not consume topic {topic}", hint="log in with an account that may (SUB)")


_HINTS = {
    ConsoleRight.LOOK: "log in",
    ConsoleRight.FILES: "log in with the token that the console prints, or an account that is an admin",
    ConsoleRight.BODIES: "start the console without --redact, or log in with another account",
    ConsoleRight.CHANGE: "start the console with --console-write; log in with the token, or as an admin",
}


class Sessions:
    """See the module. For one loop.

    Args:
        clock: s, that only grows.
        tell: told each new token.
    """

    def __init__(self, clock: Callable[[], float], tell: Callable[[str], None] = lambda _: None) -> None:
        self._clock = clock
        self._tell = tell
        self._sessions: dict[str, Session] = {}
        self._failures: deque[float] = deque()
        self.token = ""
        self._renew()

    def _renew(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._tell(self.token)

    def take_token(self, given: str) -> None:
        """The token is used up. Raises NotLoggedIn: it is not the one; TooManyFailures."""
        self.demand_calm()
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            raise self.failed("the token is not valid: each opens one session")
        self._renew()

    def demand_calm(self) -> None:
        """Raises TooManyFailures."""
        now = self._clock()
        while self._failures and self._failures[0] < now - WINDOW_S:
            self._failures.popleft()
        if len(self._failures) >= MOST_FAILURES:
            raise TooManyFailures("too many log-ins have failed", hint=f"wait {WINDOW_S:.0f} s")

    def failed(self, why: str) -> NotLoggedIn:
        """A log-in has failed: it counts."""
        self._failures.append(self._clock())
        return NotLoggedIn(why, hint="use the token that the console printed last, or an account")

    def open(
        self,
        name: str,
        rights: frozenset[ConsoleRight],
        account: Credentials | None = None,
        topics: Callable[[str], bool] | None = None,
    ) -> Session:
        """A new session."""
        now = self._clock()
        self._drop_old(now)
        if len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[min(self._sessions.values(), key=lambda one: one.seen).key]
        made = Session(secrets.token_urlsafe(32), name, rights, account, topics, now, now)
        self._sessions[made.key] = made
        return made

    def nobody(self) -> Session:
        """A session that no cookie opens: the console's own."""
        return Session("", "console", frozenset(), None, None, 0.0, 0.0)

    def of(self, key: str | None) -> Session:
        """The session of a cookie. Raises NotLoggedIn."""
        now = self._clock()
        self._drop_old(now)
        session = self._sessions.get(key or "")
        if session is None:
            raise NotLoggedIn("log in first")
        session.seen = now
        return session

    def close(self, session: Session) -> None:
        """It is logged out."""
        self._sessions.pop(session.key, None)

    def _drop_old(self, now: float) -> None:
        ended = [one for one in self._sessions.values() if now - one.seen > IDLE_S or now - one.began > LONGEST_S]
        for one in ended:
            del self._sessions[one.key]
