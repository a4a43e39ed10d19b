"""A drill as its script says it: what the store is, what happens to it, and what must hold after each step.

The TOML of a script has just these names (DRILLS.md explains them); `read_script` reads it strictly. Sizes and offsets
are bytes, times ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from engine.dataclass import dataclass

How = Literal["kill", "power-cut", "disk-full"]
Lose = Literal["random", "all", "none"]
Where = Literal["commitlog", "consumequeue", "index", "repository"]
Damage = Literal["bit-rot", "lost-page", "torn-write", "remove", "stray", "not-closed", "lost-disk"]


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The store that a drill makes: sizes as `rstore init` takes them.

    `made`: False: there is an empty directory, and `init` is the script's. `own`: the drill needs the store that it
    makes, and no copy of another. `file_system`: bytes of a small file system of its own that the store lies on (a
    tmpfs in a user namespace), so that it can be full for real. `channel`: write by calls instead of through maps.
    """

    commitlog_file_size: int = 16384
    queue_file_units: int = 20
    index_slots: int = 10
    index_entries: int = 40
    made: bool = True
    own: bool = False
    file_system: int | None = None
    channel: bool = False


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a step is made to fail: at every operation of it, one after the other, each on a copy of its own.

    `how`: "kill" (what was written stays), "power-cut" (what was not synced may be lost) or "disk-full" (ENOSPC from
    there on). `lose` and `torn` are the power cut's: which of what was not synced is lost, and whether by 512-byte
    sector instead of by 4 KiB page. `sample`: so many of the operations, unless all are asked for.
    """

    how: How
    lose: Lose = "random"
    torn: bool = False
    sample: int = 8


@dataclass(frozen=True, slots=True)
class Expect:
    """What must hold after a step; what is not given is not looked at (but see `exit` and `refused`).

    `exit`: a command's exit code, or those that are right (default: 0); `error`: its error's code. `changed`: whether
    it had anything to change. `findings`: codes that must be among what it found. `refused`: whether puts were
    refused (default: none was). `check`: whether `rstore check` finds anything, but for notes and the codes
    `may_find`. `acknowledged`: which of the acknowledged messages are read by queue, key and offset; those that may
    be gone now are not looked for later, and may not come back. `nothing_new`: no message is read that was never put.
    `store`: the state that the store is in again, one of these names: the same bytes of log and queues, the same
    entries of the index, the same marks. `bytes`: the same to the byte, in every file. `settled`: recovery has
    nothing to do. `takes_puts`: so many messages can be put after what is there, and are read. `by_time`: searching
    by store time ends at a message of that time or later, with an earlier one before it.
    """

    exit: tuple[int, ...] | None = None
    error: str | None = None
    changed: bool | None = None
    findings: tuple[str, ...] | None = None
    refused: bool | None = None
    check: Literal["clean", "problems"] | None = None
    may_find: tuple[str, ...] | None = None
    acknowledged: Literal["all", "all-but-damaged", "before-the-cut", "not-expired"] | None = None
    nothing_new: bool | None = None
    store: tuple[str, ...] | None = None
    bytes: tuple[str, ...] | None = None
    settled: bool | None = None
    takes_puts: int | None = None
    by_time: bool | None = None
    consumed: bool | None = None
    tables: bool | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What all steps have. `remember`: a name for the state that the store is in when the step is done."""

    expect: Expect = field(default_factory=Expect)
    remember: str | None = None


@dataclass(frozen=True, slots=True)
class Put(Step):
    """Puts messages: into the open store, or into one that is opened and closed for it.

    `body`: bytes that no body exceeds. `flush`: when a put is answered. `patience_ms`: how long a refused put is tried
    again (not at all; after a `disk` step with `free`, and with space again after `crash`, read_script.PATIENCE_MS).
    `clients`: so many at a time, where the store is served.
    """

    count: int = 50
    topics: tuple[str, ...] = ("Orders", "Audit", "T")
    queues: int = 2
    body: int = 900
    flush: Literal["sync", "async"] = "sync"
    patience_ms: int = 0
    clients: int = 4
    crash: Crash | None = None

    @property
    def waits(self) -> bool:
        """Whether a put is answered when it is durable: only then it is acknowledged."""
        return self.flush == "sync"


@dataclass(frozen=True, slots=True)
class Open(Step):
    """Opens the store, and leaves it open for the steps that follow.

    `cleaning`: as a broker does, which looks at its disks; each `disk` step is followed by such a look. `serve`: after
    the daemon, with a consumer of `topics`; puts come from clients, over sockets. It looks at its disks, too.
    """

    flush: Literal["sync", "async"] = "sync"
    cleaning: bool = False
    serve: bool = False
    topics: tuple[str, ...] = ("Orders", "Audit", "T")
    queues: int = 2


@dataclass(frozen=True, slots=True)
class Close(Step):
    """Closes the store that `open` has opened."""


@dataclass(frozen=True, slots=True)
class RunCommand(Step):
    """Runs a command of rstore, with its options (`-` written as `_`)."""

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    crash: Crash | None = None


@dataclass(frozen=True, slots=True)
class DamageStep(Step):
    """Damages the store, or (`where` = "repository", bit rot alone) pieces of its backups.

    `where` and `at` (0 to 1) say in what and how far from its front, for bit rot and lost pages; `last_files`: only
    in the last three files of the log, which a normal start reads. `path`: what is removed, a pattern below the
    store; or the name of the stray.
    """

    kind: Damage = "bit-rot"
    where: Where = "commitlog"
    at: float = 0.5
    count: int = 1
    last_files: bool = False
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ShiftClock(Step):
    """Sets the clock that gives store times."""

    shift_ms: int = 0


@dataclass(frozen=True, slots=True)
class Room(Step):
    """Sets what room the disk has.

    `used_ratio` (0 to 1): what the disk seems to be used; `leave`: fill the drill's own file system but for so many
    bytes (less than a block of them may stay or go); `free`: there is space again.
    """

    used_ratio: float | None = None
    leave: int | None = None
    free: bool = False


@dataclass(frozen=True, slots=True)
class LookStep(Step):
    """Does nothing: for what is expected."""


AnyStep = Put | Open | Close | RunCommand | DamageStep | ShiftClock | Room | LookStep
STEPS: Mapping[str, type[AnyStep]] = {
    "put": Put,
    "open": Open,
    "close": Close,
    "command": RunCommand,
    "damage": DamageStep,
    "clock": ShiftClock,
    "disk": Room,
    "look": LookStep,
}
"""What a step's `do` may be."""


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill. `source`: the file that it was read from; `text`: what it says."""

    name: str
    purpose: str
    steps: tuple[AnyStep, ...]
    store: StoreSpec = field(default_factory=StoreSpec)
    source: str = ""
    text: str = field(default="", repr=False)


def name_of(step: AnyStep) -> str:
    """The step's `do`."""
    return next(name for name, kind in STEPS.items() if type(step) is kind)
