"""What a drill has come to: its steps, how often each was interrupted, what did not hold, and the verdict.

Everything here turns into JSON and back: a drill runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from typing import Any, Literal

from engine.dataclass import dataclass

Verdict = Literal["passed", "failed", "not run"]
FAILURES_MAX = 20
"""So many are listed one by one; the rest is counted."""


CARRIED_OUT = "carried out"
"""What is expected of every step: that it does what its script says, without an error."""


@dataclass(slots=True)
class StepResult:
    """One step. `tried`: interruptions that were tried, `of` how many there are; `how` they came about."""

    number: int
    do: str
    summary: str = ""
    how: str | None = None
    tried: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that did not hold. `branch`: after which interruptions; empty for none."""

    step: int
    expectation: str
    wanted: str
    actual: str
    branch: str = ""

    @property
    def text(self) -> str:
        """What did not hold, in words."""
        if self.expectation == CARRIED_OUT:
            return f"step {self.step} failed unexpectedly" if self.step else "the drill failed unexpectedly"
        return f"step {self.step}: {self.expectation} should be {self.wanted}"


@dataclass(slots=True)
class DrillResult:
    """One drill.

    Attributes:
        verdict: "not run" when this system could not do it (`why`).
        store: what it ran on, in words.
        steps: what was done.
        failures: what did not hold, the first of them; `failed`: how many there were.
        judged: expectations that were looked at, over all interruptions.
        seconds: how long it took.
        scratch: where its stores still are, when they were kept.
    """

    name: str
    purpose: str
    verdict: Verdict = "passed"
    why: str | None = None
    store: str = ""
    steps: list[StepResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    failed: int = 0
    judged: int = 0
    seconds: float = 0.0
    scratch: str | None = None

    @property
    def tried(self) -> int:
        """Interruptions that were tried."""
        return sum(step.tried for step in self.steps)

    @property
    def of(self) -> int:
        """How many there are."""
        return sum(step.of for step in self.steps)

    def text_of(self, step: StepResult) -> str:
        """What a step did, in words; or that it was not carried out."""
        if step.summary or self.verdict != "failed":
            return step.summary or step.do
        failed = any(failure.step == step.number for failure in self.failures)
        return f"{step.do}: {'failed' if failed else 'not reached'}"

    def fail(self, failure: Failure) -> None:
        """Note what did not hold."""
        self.verdict = "failed"
        self.failed += 1
        if len(self.failures) < FAILURES_MAX:
            self.failures.append(failure)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `rstore drill --json`."""
        return {
            "name": self.name,
            "purpose": self.purpose,
            "verdict": self.verdict,
            "why": self.why,
            "store": self.store,
            "steps": [asdict(step) for step in self.steps],
            "interruptions": {"tried": self.tried, "of": self.of},
            "judged": self.judged,
            "failed": self.failed,
            "failures": [asdict(failure) for failure in self.failures],
            "seconds": round(self.seconds, 3),
            "scratch": self.scratch,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> DrillResult:
        """What `to_json` gave."""
        rest = {key: value for key, value in fields.items() if key not in ("interruptions", "steps", "failures")}
        steps = [StepResult(**step) for step in fields["steps"]]
        return cls(**rest, steps=steps, failures=[Failure(**failure) for failure in fields["failures"]])


@dataclass(frozen=True, slots=True)
class Original:
    """The store that was copied: SHA-256 over every file's path, bytes and time before and after."""

    path: str
    before: str
    after: str

    @property
    def untouched(self) -> bool:
        """Whether not a byte and not a time has changed."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class DrillReport:
    """A run of drills. `sample`: interruptions a step, None for all of them (`thorough`) or each script's own."""

    drills: Sequence[DrillResult]
    thorough: bool = False
    sample: int | None = None
    original: Original | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether something did not hold, or the original was touched."""
        touched = self.original is not None and not self.original.untouched
        return touched or any(drill.verdict == "failed" for drill in self.drills)

    @property
    def incomplete(self) -> bool:
        """Whether some drill could not be run here."""
        return any(drill.verdict == "not run" for drill in self.drills)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `rstore drill --json`."""
        original = self.original
        return {
            "ok": not self.failed and not self.incomplete,
            "drills": [drill.to_json() for drill in self.drills],
            "passed": sum(drill.verdict == "passed" for drill in self.drills),
            "failed": sum(drill.verdict == "failed" for drill in self.drills),
            "notRun": sum(drill.verdict == "not run" for drill in self.drills),
            "interruptions": {
                "tried": sum(drill.tried for drill in self.drills),
                "of": sum(drill.of for drill in self.drills),
            },
            "thorough": self.thorough,
            "sample": self.sample,
            "original": original and {**asdict(original), "untouched": original.untouched},
            "seconds": round(self.seconds, 3),
        }
