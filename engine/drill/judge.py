"""Whether what a script expects after a step holds. Each expectation is a question to the engine's own readers.

What may be gone by the script's word (`acknowledged` other than "all") is forgotten then: it isn't looked for later,
and when it comes back all the same, it is a message that was never put.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.drill.content import content
from engine.drill.ledger import Stored, missing, strangers
from engine.drill.script import Expect, Put, RunCommand
from engine.errors import DiskFull
from engine.format import fastjson
from engine.format.quantities import counted
from engine.inspect.check.check import check
from engine.inspect.finding_codes import Severity
from engine.read_store import ReadStore
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore

if TYPE_CHECKING:
    from engine.drill.scene import Scene
    from engine.drill.script import AnyStep
    from engine.log.message_reader import MessageReader

_PATIENCE_MS = 10_000
_LOOK_S = 0.1
_NAMED = 3
_TIMES = 12
"""Places of a queue whose store times are searched for."""


class Unmet(NamedTuple):
    """An expectation that did not hold."""

    expectation: str
    wanted: str
    actual: str


class Judge:
    """Looks at one scene after one step. `judged` counts what was looked at."""

    def __init__(self, scene: Scene, step: AnyStep) -> None:
        self._scene = scene
        self._step = step
        self._expect: Expect = step.expect
        self.judged = 0

    def unmet(self) -> Iterator[Unmet]:
        """What does not hold. Raises what the readers raise: a store that can't be read has failed, too."""
        expect = self._expect
        parts = (
            *((self._command,) if isinstance(self._step, RunCommand) and self._scene.outcome else ()),
            *((self._answers,) if isinstance(self._step, Put) and self._scene.answers else ()),
            *((self._refusals,) if isinstance(self._step, Put) and self._scene.served else ()),
            *((self._store,) if expect.store or expect.bytes else ()),
            *((self._settled,) if expect.settled is not None else ()),
            *((self._check,) if expect.check else ()),
            *((self._messages,) if expect.acknowledged or expect.nothing_new else ()),
            *((self._consumed,) if expect.consumed else ()),
            *((self._tables,) if expect.tables else ()),
            *((self._by_time,) if expect.by_time else ()),
            *((self._takes_puts,) if expect.takes_puts else ()),
        )
        for part in parts:
            self.judged += 1
            yield from part()

    # --- what the step answered -------------------------------------------------------------------------------------

    def _command(self) -> Iterator[Unmet]:
        outcome, expect = self._scene.outcome, self._expect
        assert outcome is not None
        wanted = expect.exit or (0,)
        if outcome.exit not in wanted:
            outcome_text = f"{outcome.exit}" + (
                f" ({outcome.error}: {outcome.summary})" if outcome.error else f" ({outcome.summary})"
            )
            yield Unmet("exit", " or ".join(map(str, wanted)), outcome_text)
        if expect.error is not None and outcome.error != expect.error:
            yield Unmet("error", expect.error, f"{outcome.error}: {outcome.summary}" if outcome.error else "none")
        if expect.changed is not None and outcome.changed != expect.changed:
            yield Unmet("changed", str(expect.changed).lower(), str(outcome.changed).lower())
        absent = [code for code in expect.findings or () if code not in outcome.findings]
        if absent:
            yield Unmet("findings", ", ".join(absent), ", ".join(outcome.findings) or "none")

    def _answers(self) -> Iterator[Unmet]:
        refused = [answer for answer in self._scene.answers if not answer.ok]
        wanted = bool(self._expect.refused)
        if bool(refused) != wanted:
            if refused:
                answers_text = f"{len(refused)} refused: {refused[0].status.value} ({refused[0].error})"
            else:
                answers_text = f"all {len(self._scene.answers)} were stored"
            yield Unmet("refused", str(wanted).lower(), answers_text)
        unclear = [one for one in refused if one.append is not None or not isinstance(one.error, DiskFull)]
        if wanted and unclear:
            yield Unmet("refused", "a status that names the full disk as the reason", str(unclear[0]))

    def _refusals(self) -> Iterator[Unmet]:
        refused, wanted = self._scene.refusals, bool(self._expect.refused)
        if bool(refused) != wanted and not (refused and self._patient):
            yield Unmet("refused", str(wanted).lower(), str(refused[0]) if refused else "all were stored")
        unclear = [one for one in refused if not one.clear]
        if unclear:
            yield Unmet("refused", "a refusal that names the full disk", str(unclear[0]))

    @property
    def _patient(self) -> bool:
        """Whether refusals are tried again until they are over: what was refused at first is no failure."""
        step = self._step
        return isinstance(step, Put) and bool(step.patience_ms) and self._expect.refused is None

    # --- the state --------------------------------------------------------------------------------------------------

    def _store(self) -> Iterator[Unmet]:
        scene, expect = self._scene, self._expect
        now = content(scene.new_disk(), scene.config)
        for expectation, names in (("store", expect.store), ("bytes", expect.bytes)):
            differences: list[str] = []
            for name in names or ():
                differs = now.differs(scene.states[name], to_the_byte=expectation == "bytes")
                differences += [] if differs is None else [f"against {name}: {differs}"]
            if names and len(differences) == len(names):
                yield Unmet(expectation, " or ".join(names), "; ".join(differences))

    def _settled(self) -> Iterator[Unmet]:
        scene = self._scene
        plan = plan_recover(scene.new_disk(), scene.config)
        settled = plan.refusal is None and not plan.changed and not plan.files.abort
        if settled != self._expect.settled:
            state = "recovery has nothing to do" if settled else str(plan.refusal or "recovery would change the store")
            yield Unmet("settled", str(self._expect.settled).lower(), state)

    def _check(self) -> Iterator[Unmet]:
        scene = self._scene
        checked = check(scene.new_disk(), scene.config)
        may = self._expect.may_find or ()
        wrong = [one for one in checked.findings if one.severity is not Severity.INFO and one.code not in may]
        if bool(wrong) != (self._expect.check == "problems"):
            some = "; ".join(f"{one.code} {one.where}: {one.message}" for one in wrong[:_NAMED])
            yield Unmet("check", self._expect.check or "", some or "nothing is wrong")

    # --- messages ---------------------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[Unmet]:
        scene = self._scene
        self._forget()
        if scene.session is not None:
            yield from self._in_open_store(scene.session)
            return
        disk = scene.new_disk()
        with ReadStore(scene.config, disk) as store:
            if self._expect.acknowledged:
                yield from _some("acknowledged", self._expect.acknowledged, missing(store, scene.ledger.acknowledged))
            if self._expect.nothing_new and scene.baseline is None:
                queues = [(queue.topic, queue.queue_id) for queue in store.queues()]
                strange = strangers(store, queues, scene.ledger, repeats=bool(scene.hurt))
                yield from _some("nothing_new", "only messages that were put", strange)
        if scene.baseline is not None:
            lost, new = scene.baseline.differences(disk, scene.config, scene.ledger)
            if self._expect.acknowledged:
                yield from _some("acknowledged", self._expect.acknowledged, lost)
            if self._expect.nothing_new:
                yield from _some("nothing_new", "only messages of the store", new)

    def _forget(self) -> None:
        """What may be gone now."""
        scene = self._scene
        match self._expect.acknowledged:
            case "all-but-damaged":
                hurt = tuple(scene.hurt)

                def damaged(one: Stored) -> bool:
                    return any(one.physical_offset < end and start < one.end for start, end in hurt)

                scene.ledger.forget(damaged)
                if scene.baseline is not None:
                    scene.baseline.forget(hurt, None)
            case "before-the-cut" if scene.cut is not None:
                cut = scene.cut
                scene.ledger.forget(lambda one: one.end > cut)
                if scene.baseline is not None:
                    scene.baseline.forget((), cut)
            case "not-expired" if scene.begin is not None:
                begin = scene.begin
                scene.ledger.forget(lambda one: one.physical_offset < begin)
                if scene.baseline is not None:
                    scene.baseline.forget([(0, begin)], None)
            case _:
                pass

    def _in_open_store(self, store: MessageStore) -> Iterator[Unmet]:
        """By its place each message, at once; by queue and key those that dispatch has reached: it may lack space."""
        ledger = self._scene.ledger
        position = store.dispatch.position
        if self._expect.acknowledged:
            there = [one for one in ledger.acknowledged if one.end <= position]
            yield from _some("acknowledged", self._expect.acknowledged, missing(store, there))
            yield from _some("acknowledged", self._expect.acknowledged, _by_place(store, ledger.acknowledged))
        if self._expect.nothing_new and self._scene.baseline is None:
            queues = itertools.product(ledger.topics, range(ledger.queues))
            yield from _some("nothing_new", "only messages that were put", strangers(store, queues, ledger))

    # --- the daemon -------------------------------------------------------------------------------------------------

    def _consumed(self) -> Iterator[Unmet]:
        scene = self._scene
        assert scene.served is not None
        assert scene.session is not None
        position = scene.session.dispatch.position
        wanted = {one.unique: one.name for one in scene.ledger.acknowledged if one.end <= position}
        missing = scene.served.wait_consumed(set(wanted), _PATIENCE_MS / 1000)
        yield from _some("consumed", "all that the queues have", [f"{wanted[one]}: not consumed" for one in missing])

    def _tables(self) -> Iterator[Unmet]:
        scene = self._scene
        assert scene.served is not None
        end = time.monotonic() + _PATIENCE_MS / 1000
        wrong = list(self._unwritten())
        while wrong and time.monotonic() < end:
            time.sleep(_LOOK_S)
            wrong = list(self._unwritten())
        yield from _some("tables", "files with the daemon's topics and offsets", wrong)

    def _unwritten(self) -> Iterator[str]:
        """What the files in config/ don't say."""
        scene = self._scene
        assert scene.served is not None
        config = os.path.join(scene.root, "config")
        tables: dict[str, Any] = {}
        for name in ("topics.json", "consumerOffset.json"):
            path = os.path.join(config, name)
            disk = scene.new_disk()
            tables[name] = fastjson.loads(disk.read_file(path).decode()) if disk.exists(path) else {}
        known = tables["topics.json"].get("topicConfigTable", {})
        for topic in {one.topic for one in scene.ledger.acknowledged} - known.keys():
            yield f"topics.json has no {topic}"
        offsets = tables["consumerOffset.json"].get("offsetTable", {})
        for (topic, queue_id), offset in scene.served.committed().items():
            there = offsets.get(f"{topic}@drill", {}).get(str(queue_id), 0)
            if there != offset:
                yield f"consumerOffset.json has {there} for {topic}/{queue_id}, it is {offset}"

    def _by_time(self) -> Iterator[Unmet]:
        """A search ends where a message is not older than asked, and the one before it is. True of any clock."""
        scene = self._scene
        with ReadStore(scene.config, scene.new_disk()) as store:
            for queue in store.queues():
                yield from _some("by_time", "the boundary of a time", _bounds(store, queue.topic, queue.queue_id))

    def _takes_puts(self) -> Iterator[Unmet]:
        scene = self._scene
        count = self._expect.takes_puts or 0
        before = len(scene.ledger.acknowledged)
        with MessageStore.open(scene.config, scene.new_disk(), scene.clock) as store:
            for _ in range(count):
                answer = scene.ledger.put(store)
                if not answer.ok:
                    yield Unmet("takes_puts", counted(count, "put"), f"{answer.status.value}: {answer.error}")
                    return
            if not store.wait_dispatched(_PATIENCE_MS):
                yield Unmet("takes_puts", "messages that can be read", f"dispatch lag is {store.dispatch_lag} bytes")
                return
            yield from _some("takes_puts", counted(count, "put"), missing(store, scene.ledger.acknowledged[before:]))
            for error in store.errors:
                yield Unmet("takes_puts", "no errors", str(error))


def _some(expectation: str, wanted: str, wrong: Iterator[str] | list[str]) -> Iterator[Unmet]:
    """One Unmet for all of a kind: the first few, and how many there are."""
    faults = list(wrong)
    if faults:
        more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        yield Unmet(expectation, wanted, "; ".join(faults[:_NAMED]) + more)


def _by_place(store: MessageStore, expected: list[Stored]) -> Iterator[str]:
    for one in expected:
        there = store.look_message(one.physical_offset)
        if there is None or there.properties.get("UNIQ_KEY") != one.unique:
            yield f"{one.name}, log {one.physical_offset}: not read by its physical offset"


def _bounds(store: MessageReader, topic: str, queue_id: int) -> Iterator[str]:
    first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    step = max(1, (end - first) // _TIMES)
    for probe in range(first, end, step):
        stored = store.message_store_timestamp(topic, queue_id, probe)
        for at_time in (stored - 1, stored, stored + 1):
            at = store.lower_bound(topic, queue_id, at_time)
            if not first <= at <= end:
                yield f"{topic}/{queue_id}: {at_time} is at {at}, outside of {first} to {end}"
                continue
            reached = at == end or store.message_store_timestamp(topic, queue_id, at) >= at_time
            before = at == first or store.message_store_timestamp(topic, queue_id, at - 1) < at_time
            if not (reached and before):
                yield f"{topic}/{queue_id}: {at_time} is not at {at}"
