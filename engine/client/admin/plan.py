"""A change of a running cluster: the requests that it sends, shown before one is sent, and what became of each.

Requests go one after another. One that fails does not keep the others from being sent, but those that `follows` marks:
they only make sense after all before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.client.sending import STORED, SendStatus
from engine.dataclass import dataclass
from engine.errors import RStoreError

if TYPE_CHECKING:
    from engine.client.admin.cluster_map import BrokerAt
    from engine.client.admin.session import AdminSession


@dataclass(frozen=True, slots=True)
class AdminStep:
    """One request of a change.

    Attributes:
        where: whom it goes to, as it is shown.
        what: what it does, as it is shown.
        address: `host:port`.
        code, ext, body: the request.
        follows: only sent when all before it were done.
        sends: it stores a message: a broker that did so, and did not flush or copy it in time, has done it.
    """

    where: str
    what: str
    address: str
    code: int
    ext: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)
    follows: bool = False
    sends: bool = False

    @classmethod
    def at(
        cls,
        broker: BrokerAt,
        what: str,
        code: int,
        ext: Mapping[str, str],
        body: bytes = b"",
        *,
        follows: bool = False,
        sends: bool = False,
    ) -> AdminStep:
        """A request to a broker."""
        return cls(str(broker), what, broker.address, code, ext, body, follows, sends)

    @classmethod
    def at_names(
        cls, address: str, what: str, code: int, ext: Mapping[str, str], body: bytes = b"", *, follows: bool = False
    ) -> AdminStep:
        """A request to a name server."""
        return cls(f"name server {address}", what, address, code, ext, body, follows)


@dataclass(frozen=True, slots=True)
class AdminPlan:
    """See the module.

    Attributes:
        change: what it is about, in a line.
        steps: nothing is to be changed where there is none.
        notes: what else is to be known before.
    """

    change: str
    steps: tuple[AdminStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether it changes anything."""
        return bool(self.steps)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        steps = [{"where": one.where, "what": one.what} for one in self.steps]
        return {"change": self.change, "steps": steps, "notes": list(self.notes), "changed": self.changed}


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What became of a step.

    Attributes:
        problem: None: it is done.
        told: fields of the answer.
        status: of a message that is stored, where it is not SEND_OK.
    """

    step: AdminStep
    problem: RStoreError | None = None
    skipped: bool = False
    told: Mapping[str, str] = field(default_factory=dict)
    status: SendStatus = SendStatus.SEND_OK

    @property
    def is_done(self) -> bool:
        """Whether the broker did it."""
        return self.problem is None and not self.skipped

    @property
    def words(self) -> str:
        """In a line."""
        if self.skipped:
            return "not sent, because one before it failed"
        if self.problem is not None:
            return self.problem.message
        return "done" if self.status is SendStatus.SEND_OK else self.status.words

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "where": self.step.where,
            "what": self.step.what,
            "done": self.is_done,
            "outcome": self.words,
            "answer": dict(self.told),
        }


async def carry_out_plan(admin: AdminSession, plan: AdminPlan) -> list[StepOutcome]:
    """Send the requests of a plan; what became of each."""
    outcomes: list[StepOutcome] = []
    for step in plan.steps:
        if step.follows and any(one.problem is not None or one.skipped for one in outcomes):
            outcomes.append(StepOutcome(step, skipped=True))
            continue
        try:
            also = STORED if step.sends else None
            answer = await admin.ask(step.address, step.code, step.ext, step.body, also=also)
        except RStoreError as error:
            outcomes.append(StepOutcome(step, error))
        else:
            status = SendStatus(answer.code) if step.sends else SendStatus.SEND_OK
            outcomes.append(StepOutcome(step, told=dict(answer.fields), status=status))
    return outcomes
