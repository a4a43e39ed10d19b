"""What a heal does: ranges that come back, out of which copy, proved by what; those that don't, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, RStoreError
from engine.format.quantities import counted
from engine.inspect import next_step
from engine.inspect.finding_codes import Fix
from engine.inspect.next_step import arguments, command_line
from engine.repair.recover.refusal import log_is_gone

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.heal.damage import LogDamage, LostPart
    from engine.heal.fetched import Readable, Store
    from engine.inspect.store.survey import StoreFiles
    from engine.log.derive import TopicQueue
    from engine.repair.recover.ledger import Ledger
    from engine.repair.recover.plan import RecoverPlan
    from engine.seals.seal import Seal

_NAMED = 3


class Proof(StrEnum):
    """What shows that fetched bytes are the log's."""

    SEAL = "seal"
    RECORDS = "records"

    @property
    def words(self) -> str:
        """In a sentence."""
        if self is Proof.SEAL:
            return "proved by the seal of the segment, to the last byte"
        return "proved by records; header and properties by no CRC"


@dataclass(frozen=True, slots=True)
class HealedPart:
    """A range that comes back. `copies`: those that have just these bytes; of a sealed one, those that gave pages.

    `writes`: ranges [start, end) (physical) that are written, as `fetched` has them.
    """

    part: LostPart
    copies: tuple[str, ...]
    proof: Proof
    records: int
    messages: int
    fetched: Readable
    writes: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """One of `healed`."""
        return {
            **_place(self.part),
            "from": list(self.copies),
            "provedBy": self.proof.value,
            "records": self.records,
            "messages": self.messages,
        }


@dataclass(frozen=True, slots=True)
class LeftPart:
    """A range that stays as it is. `why`: a sentence a copy. `differ`: copies that could be proved differ."""

    part: LostPart
    why: tuple[str, ...]
    differ: bool = False

    def to_json(self) -> dict[str, Any]:
        """One of `left`."""
        return {**_place(self.part), "differ": self.differ, "why": list(self.why)}


@dataclass(frozen=True, slots=True)
class Passed:
    """A group whose offset in a queue is after `messages` that came back: it won't read them. `first`: their lowest."""

    group: str
    queue: TopicQueue
    offset: int
    messages: int
    first: int
    config: StoreConfig

    @property
    def command(self) -> str:
        """What shows these messages."""
        words = arguments(self.queue.topic, str(self.queue.queue_id), str(self.first))
        return command_line(self.config, "get", "--count", str(self.messages), *words)

    def to_json(self) -> dict[str, Any]:
        """One of `passed`."""
        return {
            "group": self.group,
            "topic": self.queue.topic,
            "queueId": self.queue.queue_id,
            "offset": self.offset,
            "messages": self.messages,
            "first": self.first,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class HealPlan:
    """The plan.

    Attributes:
        files: the store as it lay when it was planned.
        damage: all that was looked for in copies.
        healed, left: ranges, in log order.
        repair: what writes them, with queues and index of what came back; None: nothing is written.
        log_only: the log alone is written, as damage stays in it: queues and index are a recovery's.
        ledger: what becomes of queues and groups.
        passed: groups that won't read what came back; `unread`: how many of these messages no group will read.
        problems: sentences.
        store: keeps the fetched bytes.
        sealed: segments (paths) that are as they were sealed afterwards, and their seals.
    """

    files: StoreFiles
    damage: LogDamage
    healed: tuple[HealedPart, ...]
    left: tuple[LeftPart, ...]
    repair: RecoverPlan | None
    log_only: bool
    ledger: Ledger | None
    passed: tuple[Passed, ...]
    unread: int
    problems: tuple[str, ...]
    store: Store
    sealed: tuple[tuple[str, Seal], ...] = ()

    @property
    def messages(self) -> int:
        """How many come back."""
        return sum(one.messages for one in self.healed)

    @property
    def length(self) -> int:
        """Bytes that are written into the log."""
        return sum(end - start for one in self.healed for start, end in one.writes)

    @property
    def would_change(self) -> bool:
        """Whether carrying it out changes a byte."""
        return self.repair is not None and self.repair.would_change

    @property
    def refusal(self) -> RStoreError | None:
        """Why it is not carried out."""
        if self.repair is not None:
            return self.repair.refusal
        if not self.files.log:
            return log_is_gone(self.files)
        if not self.left:
            return None
        first = self.left[0]
        what = counted(len(self.left), "damaged range")
        why = "; ".join(first.why[:_NAMED]) or "no source has it"
        return CannotRepair(
            f"no copy is taken for {what}, the first at {first.part.start}: {why}",
            path=first.part.segment.path,
            offset=first.part.start,
            hint="nothing was changed; name another source with --from",
            next_step=None if first.part.lost == "bridged" else next_step.step(self.files.config, Fix.BRIDGE),
        )

    def to_json(self, *, salvage: str | None = None) -> dict[str, Any]:
        """The JSON of `rstore heal`."""
        return {
            "healed": [one.to_json() for one in self.healed],
            "left": [one.to_json() for one in self.left],
            "bytes": self.length,
            "messages": self.messages,
            "passed": [one.to_json() for one in self.passed],
            "readByNoGroup": self.unread,
            "logOnly": self.log_only,
            "logEnd": self.damage.end,
            "bytesAfterLogEnd": self.damage.torn,
            "repair": None if self.repair is None else self.repair.to_json(salvage=salvage),
            "salvage": salvage,
            "changed": self.would_change,
            "problems": list(self.problems),
        }


def _place(part: LostPart) -> dict[str, Any]:
    return {
        "physicalOffset": part.start,
        "length": part.length,
        "file": part.segment.path.rpartition("/")[2],
        "was": part.lost.value,
        "reason": part.why,
    }
