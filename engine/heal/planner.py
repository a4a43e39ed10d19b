"""Planning a heal: find what is damaged, fetch it, prove it, compare copies; then a recovery of the log as it will be.

Every copy is asked for every range: where two that could be proved differ, none is taken. A copy that is damaged
itself, that is another log's or that ends earlier is named and passed over.

What is written is planned by recovery (engine.repair.recover), over the log with the fetched bytes in their places:
queues and index get what came back, old bytes are saved, undo takes all of it back. Where damage stays in the log, a
recovery would refuse; the log alone is written then, and all else stays as it is.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import DamageInTheMiddle, RStoreError, StorageError
from engine.heal.continuity import Continuity, judge_continuity
from engine.heal.damage import LogDamage, LostKind, LostPart, LostRun, find_damage
from engine.heal.fetched import Joined, Store, patches
from engine.heal.plan import HealedPart, HealPlan, LeftPart, Passed, Proof
from engine.heal.proof import NeighbourJudge, Proved, Unproved, judge_records, prove
from engine.heal.sealed import SealedLog, SealHealer
from engine.inspect.store.consumers import read_consumers
from engine.inspect.store.intervals import Intervals
from engine.inspect.store.layout import arranged, layout_of
from engine.inspect.store.queue_rows import row_dtype
from engine.inspect.store.repairs import repairs, unfinished
from engine.inspect.store.spool import Spool
from engine.log.source import ClosedLog
from engine.repair.recover.bridge import Bridge, BridgedLog
from engine.repair.recover.ledger import ledger_of
from engine.repair.recover.plan import FromCopies
from engine.repair.recover.planned_rows import PlannedRows
from engine.repair.recover.recover import plan_recover
from engine.seals.directory import sealed_offsets, seals_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.files.disk import Disk
    from engine.heal.sources import HealCopy, HealSource
    from engine.inspect.store.repairs import Repair
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment
    from engine.repair.change import Caller
    from engine.repair.recover.plan import RecoverPlan
    from engine.seals.seal import Seal

PAGE = 4096
CHANGED = "pages changed since the segment was sealed"


@dataclass(slots=True)
class HealPlanner:
    """One planning.

    Args:
        disk: how files are reached.
        surveyed: the store.
        sources: in the order in which they were given.
        caller: told how far it is.
        locked: whether the store's lock is held.
        jobs: threads that read the log (None: one a core).
        seals: the directory of the seals (None: the store's own).
    """

    disk: Disk
    surveyed: StoreFiles
    sources: Sequence[HealSource]
    caller: Caller[HealPlan]
    locked: bool
    jobs: int | None
    seals: str | None = None

    def plan(self) -> HealPlan:
        """Raises RStoreError: the store can't be read. What a source can't give is in the plan."""
        store = Store()
        try:
            return self._plan(store)
        except BaseException:
            store.close()
            raise

    def _plan(self, store: Store) -> HealPlan:
        files = arranged(self.surveyed, layout_of(self.disk, self.surveyed))
        with self.caller.progress("reading the log") as tick:
            damage = find_damage(self.disk, files, jobs=self.jobs, progress=tick)
        killed = [one for one in unfinished(repairs(self.disk, files.root)) if one.manifest["command"] == "heal"]
        healed, left, sealed = self._fetch_all(files, damage, store, killed)
        continuity = Continuity()
        while any(one.part.lost is not LostKind.CHANGED for one in healed):
            with self.caller.progress("comparing queue offsets"):
                continuity = self._continuity(files, healed)
            many = len(healed)
            healed, left = _without(healed, left, continuity)
            if len(healed) == many:
                break
        repair, log_only = self._repair(healed, left, bool(killed))
        passed, unread = self._passed(continuity if healed else Continuity())
        return HealPlan(
            self.surveyed,
            damage,
            tuple(healed),
            tuple(sorted(left, key=lambda one: one.part.start)),
            repair,
            log_only,
            None if repair is None or log_only else ledger_of(self.disk, repair),
            passed,
            unread,
            (*sealed.problems, *self._problems(damage)),
            store,
            tuple(_kept(sealed, repair)),
        )

    # --- fetching ---------------------------------------------------------------------------------------------------

    def _fetch_all(
        self, files: StoreFiles, damage: LogDamage, store: Store, killed: Sequence[Repair]
    ) -> tuple[list[HealedPart], list[LeftPart], SealedLog]:
        with ClosedLog(self.disk, files.log) as log:
            sealed = self._compare_with_seals(files, damage, log, store, killed)
            healed, left = self._fetch_lost(files, damage, log, sealed, store)
        written = Intervals()
        for one in healed:
            for low, high in one.writes:
                written.add(low, high)
        missing = {part.segment.offset for part in damage.parts if part.lost is LostKind.MISSING}
        for piece in sealed.pieces.values():
            if piece.segment.offset in missing:
                continue
            for start, end in piece.changed:
                for low, high in written.missing(start, end):
                    part = LostPart(piece.segment, low, high, LostKind.CHANGED, CHANGED)
                    healed.append(HealedPart(part, piece.copies, Proof.SEAL, 0, 0, piece.fetched, ((low, high),)))
        for pages in sealed.left:
            if not any(one.start < pages.end and pages.start < one.end for one in damage.parts):
                left.append(
                    LeftPart(LostPart(pages.segment, pages.start, pages.end, LostKind.CHANGED, CHANGED), pages.why)
                )
        return sorted(healed, key=lambda one: one.part.start), left, sealed

    def _compare_with_seals(
        self, files: StoreFiles, damage: LogDamage, log: ClosedLog, store: Store, killed: Sequence[Repair]
    ) -> SealedLog:
        missing = [part.segment for part in damage.parts if part.lost is LostKind.MISSING]
        segments = sorted((*files.log, *missing), key=lambda one: one.offset)
        directory = self.seals or seals_directory(files.root)
        with_seal = set(sealed_offsets(self.disk, directory))
        segments = [one for one in segments if one.offset in with_seal and one.end <= damage.end]
        if not segments:
            return SealedLog()
        lost = Intervals()
        for part in damage.parts:
            lost.add(part.start, part.end)
        root = os.path.abspath(files.root)
        resumed = frozenset(os.path.join(root, piece["path"]) for one in killed for piece in one.pieces)
        healer = SealHealer(self.disk, directory, self.sources, store, log, resumed)
        with self.caller.progress("comparing with the seals") as tick:
            return healer.heal(segments, lost, tick)

    def _fetch_lost(
        self, files: StoreFiles, damage: LogDamage, log: ClosedLog, sealed: SealedLog, store: Store
    ) -> tuple[list[HealedPart], list[LeftPart]]:
        healed: list[HealedPart] = []
        left: list[LeftPart] = []
        total = sum(part.length for part in damage.parts)
        done = 0
        judge = NeighbourJudge(log, damage.runs)
        largest = files.config.max_message_size
        with self.caller.progress("fetching") as tick:
            for run in damage.runs:
                for part in run.parts:
                    one: HealedPart | LeftPart | None = self._from_seal(run, part, sealed, largest)
                    if one is None:
                        one = self._fetch(run, part, judge, sealed, store, largest)
                    (healed if isinstance(one, HealedPart) else left).append(one)  # type: ignore[arg-type]
                    done += part.length
                    if tick is not None:
                        tick(done, total)
        return healed, left

    def _from_seal(self, run: LostRun, part: LostPart, sealed: SealedLog, largest: int) -> HealedPart | None:
        """A range that is as it was sealed, once the pieces that it lies in are healed."""
        if not sealed.is_proved(part.start, part.end):
            return None
        pieces = [
            one for one in sealed.pieces.values() if one.fetched.start < part.end and part.start < one.fetched.end
        ]
        if not pieces:
            return None
        writes = Intervals()
        writes.add(part.start, part.end)
        for piece in pieces:
            for start, end in piece.changed:
                if start < part.end and part.start < end:
                    writes.add(start, end)
        segment = part.segment

        def own(offset: int, length: int) -> bytes:
            with ClosedLog(self.disk, [segment]) as log:
                return bytes(log.read(offset, length))

        fetched = Joined(tuple(one.fetched for one in pieces), own)
        counted = judge_records(run, part, fetched, largest)
        records, messages = (counted.records, counted.messages) if isinstance(counted, Proved) else (0, 0)
        names = tuple(dict.fromkeys(name for one in pieces for name in one.copies))
        return HealedPart(part, names, Proof.SEAL, records, messages, fetched, tuple(writes))

    def _fetch(
        self, run: LostRun, part: LostPart, judge: NeighbourJudge, sealed: SealedLog, store: Store, largest: int
    ) -> HealedPart | LeftPart:
        """What the copies have for a range, all of them asked."""
        proved: list[tuple[str, Proved]] = []
        why: list[str] = []
        for copy in self._copies(part, why):
            same = judge.judge(run, copy)
            outcome = same if isinstance(same, Unproved) else prove(run, part, copy, same, store, largest)
            if isinstance(outcome, Proved) and sealed.contradicts(
                judge.log, part.segment, outcome.fetched, outcome.part.start, outcome.part.end
            ):
                outcome = Unproved("has other bytes there than were sealed")
            if isinstance(outcome, Proved):
                proved.append((copy.name, outcome))
            else:
                why.append(_sentence(copy, outcome))
        if not proved:
            return LeftPart(part, tuple(why))
        first = proved[0][1]
        others = [name for name, one in proved if not one.is_same(first)]
        if others:
            alike = [name for name, one in proved if one.is_same(first)]
            differ = f"the copies differ there, none is taken: {', '.join(alike)} against {', '.join(others)}"
            return LeftPart(part, (differ, *why), differ=True)
        copies = tuple(name for name, _ in proved)
        writes = ((first.part.start, first.part.end),)
        return HealedPart(first.part, copies, Proof.RECORDS, first.records, first.messages, first.fetched, writes)

    def _copies(self, part: LostPart, why: list[str]) -> Iterator[HealCopy]:
        for source in self.sources:
            some = False
            try:
                for copy in source.copies(part.start):
                    some = True
                    yield copy
            except RStoreError as error:
                why.append(f"{source.name} can't be read: {error.message}")
                continue
            if not some:
                why.append(f"{source.name} does not have it")

    # --- the log as it will be --------------------------------------------------------------------------------------

    def _continuity(self, files: StoreFiles, healed: Sequence[HealedPart]) -> Continuity:
        copies = self._from_copies(healed)
        segments = sorted((*files.log, *copies.added), key=lambda one: one.offset)
        ranges = ((one.part.start, one.part.end) for one in healed if one.part.lost is not LostKind.CHANGED)
        with contextlib.closing(BridgedLog(self.disk, segments, copies.taken)) as log:
            return judge_continuity(files.config, log, ranges, jobs=self.jobs)

    def _from_copies(self, healed: Sequence[HealedPart]) -> FromCopies:
        taken = tuple(
            Bridge(
                start,
                end - start,
                one.part.segment,
                one.part.why,
                patches(one.fetched, start, end),
                self._unreadable(one.part, start, end),
            )
            for one in healed
            for start, end in one.writes
        )
        added = tuple(one.part.segment for one in healed if one.part.lost is LostKind.MISSING)
        return FromCopies(taken, added)

    def _unreadable(self, part: LostPart, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """Pages of [start, end) (physical offset, length) that the disk can't read: nothing of them can be saved."""
        if part.lost not in (LostKind.DAMAGED, LostKind.CHANGED):
            return ()
        segment: Segment = part.segment
        pages: list[tuple[int, int]] = []
        with ClosedLog(self.disk, [segment]) as log:
            at = start
            while at < end:
                some = min(end - at, 1 << 20)
                try:
                    log.read(at, some)
                except StorageError:
                    pages += _bad_pages(log, segment, at, at + some)
                at += some
        return tuple(pages)

    def _repair(
        self, healed: Sequence[HealedPart], left: Sequence[LeftPart], was_killed: bool
    ) -> tuple[RecoverPlan | None, bool]:
        """What carries it out, and whether that is the log alone."""
        if not healed and not was_killed:
            return None, False
        with self.caller.progress("planning") as tick:
            repair = plan_recover(
                self.disk,
                self.surveyed,
                whole=True,
                locked=self.locked,
                jobs=self.jobs,
                copies=self._from_copies(healed),
                progress=tick,
            )
        if left and isinstance(repair.refusal, DamageInTheMiddle):
            return (_log_alone(repair), True) if healed else (None, False)
        return repair, False

    # --- what is told -----------------------------------------------------------------------------------------------

    def _passed(self, continuity: Continuity) -> tuple[tuple[Passed, ...], int]:
        """Groups that are past what came back, and how many of these messages no group will read."""
        came_back = continuity.came_back
        consumers = read_consumers(self.disk, self.surveyed.root, came_back)
        passed: list[Passed] = []
        unread = 0
        for queue, offsets in sorted(came_back.items()):
            groups: dict[str, int] = consumers.offsets.get(queue, {})
            for group, offset in sorted(groups.items()):
                messages = offsets.overlap(0, offset)
                if messages:
                    passed.append(Passed(group, queue, offset, messages, offsets.start, self.surveyed.config))
            unread += min((offsets.overlap(0, offset) for offset in groups.values()), default=0)
        return tuple(passed), unread

    def _problems(self, damage: LogDamage) -> Iterator[str]:
        if damage.torn:
            yield (
                f"the log ends at {damage.end}, {damage.torn} bytes after it are no whole record: heal fills in what"
                " lies before the log end; where a master's log continues, rstore replicate copies the rest"
            )


def _kept(sealed: SealedLog, repair: RecoverPlan | None) -> Iterator[tuple[str, Seal]]:
    """Seals that stay true: of segments in which nothing else is written."""
    others = () if repair is None else (*repair.log.mends, *(one.physical_offset for one in repair.log.requeued))
    for path, seal in sealed.whole.items():
        if not any(seal.offset <= offset < seal.end for offset in others):
            yield path, seal


def _sentence(copy: HealCopy, outcome: Unproved) -> str:
    return f"{copy.name} {outcome.why}"


def _bad_pages(log: ClosedLog, segment: Segment, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    while at < end:
        until = min(end, at + PAGE - (at - segment.offset) % PAGE)
        try:
            log.read(at, until - at)
        except StorageError:
            yield at, until - at
        at = until


def _without(
    healed: Sequence[HealedPart], left: Sequence[LeftPart], continuity: Continuity
) -> tuple[list[HealedPart], list[LeftPart]]:
    """Ranges next to which queue offsets don't continue are not taken."""
    keep: list[HealedPart] = []
    more = list(left)
    for one in healed:
        broken = None
        if one.proof is Proof.RECORDS:
            broken = next((what for at, what in continuity.breaks if one.part.start <= at < one.part.end), None)
        if broken is None:
            keep.append(one)
        else:
            more.append(LeftPart(one.part, (f"{', '.join(one.copies)} has other queue offsets: {broken}",)))
    return keep, more


def _log_alone(plan: RecoverPlan) -> RecoverPlan:
    """The same, but nothing is changed beside the fetched bytes and the files that they are in."""
    log = replace(
        plan.log, tail=None, removed=(), bytes_cut=0, mends=(), requeued=(), bridges=(), shifts=(), blank=None
    )
    return replace(
        plan,
        refusal=None,
        log=log,
        queues=(),
        writes=PlannedRows(Spool(row_dtype()), None),
        index=replace(plan.index, enabled=False, removed=(), rewinds=(), inserts=(), keys_put=0),
        set_aside=(),
        accepted=(),
        trap=None,
        ext=(),
    )
