"""What takes longer than a page may: check, verify-crc, plan-start, a plan of recovery. One at a time, told how far
it is, its answer kept until the next of its kind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, RStoreError

Tick = Callable[[int, int], None]
Work = Callable[[Tick], dict[str, Any]]


@dataclass(slots=True)
class BackgroundRun:
    """One run. Times in s since 1970.

    Attributes:
        done, total: how far it is, in the unit of the work.
        answer: None while it runs, or when it failed.
        error: why it failed.
    """

    name: str
    began: float
    done: int = 0
    total: int = 0
    ended: float | None = None
    answer: dict[str, Any] | None = None
    error: RStoreError | None = None

    def to_json(self, *, whole: bool = True) -> dict[str, Any]:
        """For pages and programs. `whole`: with the answer."""
        return {
            "name": self.name,
            "began": int(self.began * 1000),
            "ended": None if self.ended is None else int(self.ended * 1000),
            "done": self.done,
            "total": self.total,
            "error": None if self.error is None else self.error.message,
            "hint": None if self.error is None else self.error.hint,
            **({"answer": self.answer} if whole else {}),
        }


class BackgroundRuns:
    """See the module. For one loop."""

    def __init__(self) -> None:
        self.last: dict[str, BackgroundRun] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> BackgroundRun | None:
        """The one that runs."""
        return next((one for one in self.last.values() if one.ended is None), None)

    def start(self, name: str, work: Work) -> BackgroundRun:
        """Begin a run. Raises InvalidArgument: another one runs."""
        if self.current is not None:
            raise InvalidArgument(f"{self.current.name} is running", hint="wait for its end")
        run = self.last[name] = BackgroundRun(name, time.time())
        self._task = asyncio.get_running_loop().create_task(self._carry_out(run, work))
        return run

    def forget(self) -> None:
        """The store has changed: answers of earlier runs count no more."""
        self.last = {name: run for name, run in self.last.items() if run.ended is None}

    async def _carry_out(self, run: BackgroundRun, work: Work) -> None:
        def tick(done: int, total: int) -> None:
            run.done, run.total = done, total

        try:
            run.answer = await asyncio.to_thread(work, tick)
        except RStoreError as error:
            run.error = error
        except Exception as error:  # noqa: BLE001 - a run that fails ends, and says so on its page
            run.error = RStoreError(f"{run.name} failed: {error!r}", hint="report this as a bug in rstore")
        finally:
            run.ended = time.time()
