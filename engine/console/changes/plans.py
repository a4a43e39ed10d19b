"""Plans that were shown and wait for their confirmation: each once, for whoever was shown it, and not for long."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import NotFound

if TYPE_CHECKING:
    from engine.console.web.asked import Asked

WAITS_S = 600.0
MOST = 64


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A change that is planned, and changes nothing until `apply` is called.

    Attributes:
        what: in a line.
        plan: as JSON: what the command shows before it asks.
        steps: (where, what) each, to be read by people.
        notes: what else is to be known before.
        changed: whether it changes anything.
        refusal: why it won't be carried out; None: it may be.
        hint: what to do about that.
        apply: carries it out; what came of it, as JSON. Raises RStoreError.
        back: the page to return to.
    """

    what: str
    plan: dict[str, Any]
    steps: tuple[tuple[str, str], ...]
    apply: Callable[[Asked], Coroutine[None, None, dict[str, Any]]]
    back: str
    notes: tuple[str, ...] = ()
    changed: bool = True
    refusal: str | None = None
    hint: str | None = None


class KeptPlans:
    """See the module. For one loop. `clock`: s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, str, ShownPlan]] = {}

    def keep(self, session_key: str, plan: ShownPlan) -> str:
        """Its number."""
        now = self._clock()
        self._kept = {name: one for name, one in self._kept.items() if now - one[0] <= WAITS_S}
        while len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        number = secrets.token_urlsafe(16)
        self._kept[number] = now, session_key, plan
        return number

    def take(self, session_key: str, number: str) -> ShownPlan:
        """The plan, which is gone then. Raises NotFound: there is none of that number, or not of that session."""
        kept = self._kept.get(number)
        if kept is None or kept[1] != session_key or self._clock() - kept[0] > WAITS_S:
            raise NotFound("this plan is no longer there", hint="make it again: it is kept for ten minutes, and once")
        del self._kept[number]
        return kept[2]
