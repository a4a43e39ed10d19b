"""Changes of a closed store: the commands' own (engine.repair.change), planned, shown, and carried out if they are then
still what was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from engine.console.changes.change import by_name
from engine.console.changes.plans import ShownPlan
from engine.console.web.sessions import ConsoleRight
from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.format.quantities import counted
from engine.format.shown import size
from engine.repair.change import Change, ChangeRun, Consent, Ending, Tick, carry_out, preview

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from engine.config import StoreConfig
    from engine.console.web.asked import Asked
    from engine.files.disk import Disk

Json = dict[str, Any]
_NOT_PART = ("done", "salvage", "next", "seconds", "secondsEstimate", "diskUsedRatio", "refusal", "notes")
"""Fields of a plan that are no part of what it does."""
_LISTED = 100


class PlanCaller(Consent):
    """Hears what a plan is, and agrees to it if it is the one that was shown (engine.repair.change.Caller).

    Attributes:
        plan: as JSON, once there is one.
        notes: what was told beside it.
    """

    def __init__(self, as_json: Callable[[Any], Json], shown: Json | None = None, tick: Tick | None = None) -> None:
        self._as_json = as_json
        self._shown = shown
        self._tick = tick
        self.plan: Json | None = None
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """See Caller."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """See Caller."""
        self.notes.append(text)

    def progress(self, what: str, *, is_bytes: bool = True) -> AbstractContextManager[Tick | None]:
        """See Caller."""
        del what, is_bytes
        return nullcontext(self._tick)

    def refused(self, run: ChangeRun, plan: Any, refusal: RStoreError) -> None:
        """See Caller."""
        del run, refusal
        self.plan = self._as_json(plan)

    def agrees(self, plan: Any) -> bool:
        """See Caller."""
        self.plan = self._as_json(plan)
        return self._shown is not None and essence(self.plan) == essence(self._shown)


def essence(plan: Json) -> Json:
    """What a plan does, without what may differ between two plans of the same."""
    return {name: value for name, value in plan.items() if name not in _NOT_PART}


def preview_json(
    change: Change[Any], as_json: Callable[[Any], Json], disk: Disk, config: StoreConfig, tick: Tick | None = None
) -> Json:
    """A change's plan as its command prints it with --dry-run --json; and, of one that is refused, why.

    Raises:
        RStoreError: there is no plan.
    """
    caller = PlanCaller(as_json, tick=tick)
    try:
        outcome = preview(change, disk, config, caller)
    except RStoreError as refusal:
        if caller.plan is None:
            raise
        return {**caller.plan, "refusal": refusal.to_json(), "notes": caller.notes}
    return {**as_json(outcome.plan), "refusal": None, "notes": caller.notes, "changed": outcome.changes}


@dataclass(frozen=True, slots=True)
class StoreChange:
    """A command that changes a closed store.

    Attributes:
        make: the change, of the fields of a form.
        as_json: its plan as JSON.
        back: the page to return to.
    """

    name: str
    make: Callable[[Asked], Change[Any]]
    as_json: Callable[[Any], Json]
    back: str = "/store/repair"

    async def plan(self, asked: Asked) -> ShownPlan:
        """See ConsoleChange. Raises RStoreError: there is nothing to plan."""
        asked.session.demand(ConsoleRight.FILES)
        change, config = self.make(asked), asked.config
        disk = asked.console.disk
        shown = await asyncio.to_thread(preview_json, change, self.as_json, disk, config)
        refusal = shown["refusal"]

        async def apply(later: Asked) -> Json:
            later.session.demand(ConsoleRight.FILES)
            return await asyncio.to_thread(self._carry_out, change, shown, disk, config)

        return ShownPlan(
            what=self.name,
            plan=shown,
            steps=tuple(steps_of(shown)),
            apply=apply,
            back=self.back,
            notes=(*shown["notes"], *map(str, shown.get("problems", ()))),
            changed=bool(shown["changed"]),
            refusal=None if refusal is None else refusal["message"],
            hint=None if refusal is None else refusal["hint"],
        )

    def _carry_out(self, change: Change[Any], shown: Json, disk: Disk, config: StoreConfig) -> Json:
        caller = PlanCaller(self.as_json, shown)
        outcome = carry_out(change, disk, config, caller)
        following = None if outcome.next is None else outcome.next.to_json()
        if outcome.ending is Ending.DECLINED:
            words = "the store is not as it was when the plan was shown: nothing was changed; plan it again"
            return {"done": False, "outcome": words, "rows": [], "next": following, "plan": caller.plan}
        saved = "" if outcome.salvage is None else f"; what was removed or overwritten is saved in {outcome.salvage}"
        words = f"{change.done}{saved}" if outcome.ending is Ending.APPLIED else "there was nothing to change"
        return {"done": True, "outcome": words, "rows": [], "next": following, "plan": caller.plan}


def steps_of(plan: Json) -> Iterator[tuple[str, str]]:
    """What a plan does, (where, what) each, in words."""
    yield from _log_steps(plan)
    for queue in _some(plan.get("queues")):
        cut, rebuilt = queue.get("unitsCut") or 0, queue.get("unitsRebuilt") or 0
        if queue.get("changed", True) and (cut or rebuilt):
            words = [f"{counted(cut, 'unit')} cut"] if cut else []
            words += [f"{counted(rebuilt, 'unit')} written"] if rebuilt else []
            yield f"queue {queue['topic']}/{queue['queueId']}", ", ".join(words)
    index = plan.get("index")
    if isinstance(index, dict):
        if index.get("keysPut"):
            yield "index", f"{counted(index['keysPut'], 'key')} written"
        for one in _some(index.get("filesRemoved")):
            yield "index", f"file {one} is deleted"
    yield from ((str(path), "deleted") for path in _some(plan.get("filesRemoved")))
    yield from ((str(path), "restored as it was before the repair") for path in _some(plan.get("filesRestored")))
    for one in _some(plan.get("files")):
        yield str(one["file"]), f"written with {counted(int(one.get('entries') or 0), 'entry', 'entries')}"


def _log_steps(plan: Json) -> Iterator[tuple[str, str]]:
    if plan.get("bytesCut"):
        end = plan.get("truncateTo")
        yield "log", f"{size(plan['bytesCut'])} are cut" + ("" if end is None else f": it ends at {end:,}")
    for one in _some(plan.get("bridged")):
        yield f"log {one['offset']:,}", f"an inert record is written over {size(one['length'])} of damage"
    for one in _some(plan.get("shifted")):
        yield f"log {one['offset']:,}", f"{counted(one['records'], 'record')} moved by {one['distance']:,} bytes"
    for one in _some(plan.get("copied")):
        yield f"log {one['offset']:,}", f"{size(one['length'])} are copied to their place"
    if plan.get("abort") and plan.get("mode") in ("normal", "abnormal"):
        yield "abort", "the abort file is deleted"


def _some(rows: Any) -> list[Any]:
    return list(rows)[:_LISTED] if isinstance(rows, list | tuple) else []


# --- the changes -----------------------------------------------------------------------------------------------------


def recover_change(asked: Asked) -> Change[Any]:
    """A recovery: `how` is empty, bridge or cut; `mode` empty, normal or abnormal. Raises InvalidArgument."""
    from engine.errors import InvalidArgument
    from engine.repair.recover.change import RecoverChange
    from engine.repair.recover.log_end import Mode

    how, mode = asked.text("how"), asked.text("mode")
    if how not in ("", "bridge", "cut") or mode not in ("", "normal", "abnormal"):
        raise InvalidArgument("how must be bridge or cut, mode normal or abnormal")
    return RecoverChange(
        mode=Mode(mode) if mode else None,
        bridge=how == "bridge",
        cut=how == "cut",
        whole=asked.is_on("whole"),
    )


def _undo(_: Asked) -> Change[Any]:
    from engine.repair.salvage.change import UndoChange

    return UndoChange()


def _reindex(_: Asked) -> Change[Any]:
    from engine.repair.reindex.change import ReindexChange
    from engine.repair.reindex.reindex import Scope

    return ReindexChange(Scope())


def _rebuild_config(_: Asked) -> Change[Any]:
    from engine.repair.config.change import RebuildChange
    from engine.repair.config.plan import RebuildChoices

    return RebuildChange(RebuildChoices())


def plan_json(plan: Any) -> Json:
    """A plan as its command prints it."""
    document: Json = plan.to_json()
    return document


CHANGES = by_name(
    StoreChange("recover", recover_change, plan_json),
    StoreChange("undo", _undo, lambda plan: plan.to_json(done=False)),
    StoreChange("reindex", _reindex, plan_json),
    StoreChange("rebuild-config", _rebuild_config, lambda plan: plan.to_json(None)),
)
