"""Work on the loop in turns: who has much to do gives way, and who held the loop for too long is named.

One thread serves everybody. A handler that walks something of unbounded length walks it with `Turns.walk`, and a
connection whose requests take longer than a turn has the others handled in its next one. All of that waits in two
lines, one of connections and one of the rest, so that no connection waits for somebody's walk: the loop serves
everybody else between two turns, however many want one.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from engine.dataclass import dataclass
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    import asyncio
    import logging
    from collections.abc import AsyncIterator, Callable, Iterable

TURN_S = 0.005
"""How long a turn takes, about: the step that is under way then is finished."""
HELD_S = 0.02
"""Who holds the loop for longer is named."""
_Item = TypeVar("_Item")


@dataclass(slots=True)
class HeldTime:
    """How often somebody held the loop for longer than HELD_S, for how long in all, and at most (s)."""

    times: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class Turns:
    """See the module. For the loop's thread alone.

    Args:
        log: is told who held the loop.
        clock: seconds.

    Attributes:
        held: by request code (Apache's name) or timer. Those only who ever held it.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: logging.Logger, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._log = log
        self._walks = _Line(loop)
        self._requests = _Line(loop)
        self.clock = clock
        self.held: dict[str, HeldTime] = {}

    def next(self, work: Callable[[], object], *, request: bool = False) -> None:
        """Have `work` done when all who came before had their turn, one in each round of the loop.

        `request`: it is a connection's.
        """
        (self._requests if request else self._walks).add(work)

    def beside(self, work: Callable[[], _Item], done: Callable[[asyncio.Future[_Item]], None]) -> None:
        """Run `work` in a thread, then `done`, in a turn, with what became of it."""
        future = self._loop.run_in_executor(None, work)
        future.add_done_callback(lambda outcome: self.next(lambda: done(outcome), request=True))

    async def begin(self) -> float:
        """Wait for a turn; when it began (clock)."""
        ready = self._loop.create_future()
        self.next(lambda: None if ready.done() else ready.set_result(None))
        await ready
        return self.clock()

    async def walk(self, items: Iterable[_Item], who: int | str) -> AsyncIterator[_Item]:
        """The items, one after another, in as many turns as they take. Who gets them awaits nothing in between.

        `who`: is named if one step holds the loop; a request code, or a name.
        """
        began = await self.begin()
        for item in items:
            if self.clock() - began >= TURN_S:
                self.note(who, began)
                began = await self.begin()
            yield item
        self.note(who, began)

    def note(self, who: int | str, began: float) -> None:
        """Somebody had the loop since `began` (clock)."""
        seconds = self.clock() - began
        if seconds <= HELD_S:
            return
        name = who if isinstance(who, str) else _name_of(who)
        held = self.held.setdefault(name, HeldTime())
        held.times += 1
        held.seconds += seconds
        held.longest = max(held.longest, seconds)
        self._log.warning("the loop was held", extra={"handler": name, "took_ms": int(seconds * 1000)})


class _Line:
    """Who waits for a turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[Callable[[], object]] = deque()
        self._runs = False

    def add(self, work: Callable[[], object]) -> None:
        self._line.append(work)
        if not self._runs:
            self._runs = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        work = self._line.popleft()
        if self._line:
            self._loop.call_soon(self._run)
        else:
            self._runs = False
        work()


def _name_of(code: int) -> str:
    """Of those that are served: a client can't make us remember each number that there is."""
    try:
        return RequestCode(code).name
    except ValueError:
        return "OTHER"
