"""What each step does to a scene. An interrupted step yields a scene for each try, any other the same scene."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from engine.config import FlushDiskType
from engine.dataclass import dataclass
from engine.drill.commands import execute
from engine.drill.crash import (
    MODEL_MAX,
    StepFailed,
    Tell,
    interrupted_command,
    interrupted_puts,
    opened,
    put_patiently,
)
from engine.drill.damage import harm
from engine.drill.files import apparent_bytes
from engine.drill.script import (
    AnyStep,
    Close,
    Crash,
    DamageStep,
    LookStep,
    Open,
    Put,
    Room,
    RunCommand,
    ShiftClock,
)
from engine.errors import DiskFull
from engine.files.disk import Disk
from engine.format.quantities import counted
from engine.store import MessageStore

if TYPE_CHECKING:
    from engine.drill.scene import Scene
    from engine.drill.served import Served
    from engine.files.raw_file import RawFile

BALLAST = "ballast"
_CHUNK = 1 << 16
_BLOCK = 1 << 12
"""Bytes of a block, as file systems have it: less is no room."""


class NotHere(Exception):
    """This system can't do it."""


@dataclass(frozen=True, slots=True)
class How:
    """How steps are done: `sample` and `thorough` as asked for; `own_place`: the drill's own file system."""

    sample: int | None = None
    thorough: bool = False
    own_place: str | None = None

    def sample_of(self, crash: Crash) -> int | None:
        """How many interruptions; None: all."""
        return None if self.thorough else self.sample or crash.sample


def perform(scene: Scene, step: AnyStep, number: int, how: How, tell: Tell, notes: list[str]) -> Iterator[Scene]:
    """Do it. What was done is added to `said`.

    Raises:
        StepFailed, RStoreError: it was not carried out. NotHere.
    """
    crash = step.crash if isinstance(step, Put | RunCommand) else None
    if isinstance(step, Put):
        ledger = scene.ledger
        ledger.topics, ledger.queues, ledger.body = step.topics, step.queues, step.body
    if isinstance(step, Put | Open):
        kind = FlushDiskType.SYNC_FLUSH if step.flush == "sync" else FlushDiskType.ASYNC_FLUSH
        scene.config = scene.config.with_changes(flush_disk_type=kind)
    if crash is None:
        notes.append(_plain(scene, step, how))
        yield scene
        return
    rng = Random(f"{number} {scene.branch}")
    if crash.how == "power-cut" and apparent_bytes(scene.new_disk(), scene.root) > MODEL_MAX:
        raise NotHere(f"power cuts are modelled in memory, for stores of up to {MODEL_MAX >> 20} MiB")
    sample = how.sample_of(crash)
    if isinstance(step, RunCommand):
        notes.append(f"{_command_line(step)}, {_WORDS[crash.how]} at each operation in turn")
        yield from interrupted_command(scene, step, crash, sample, rng, tell)
    elif isinstance(step, Put):
        notes.append(f"{counted(step.count, 'put')}, {_WORDS[crash.how]} at each operation in turn")
        yield from interrupted_puts(scene, step, crash, sample, rng, tell)


_WORDS = {"kill": "killed", "power-cut": "cut from power", "disk-full": "with a full disk"}


def _plain(scene: Scene, step: AnyStep, how: How) -> str:
    scene.answers, scene.refusals = [], []
    match step:
        case Put():
            return _put(scene, step)
        case Open():
            return _open(scene, step)
        case Close():
            return _close(scene)
        case RunCommand():
            outcome = execute(step.name, scene.new_disk(), scene.config, step.options)
            scene.outcome = outcome
            scene.left_by(outcome)
            return f"{_command_line(step)}: " + (
                f"exit {outcome.exit}, {outcome.summary}" if outcome.exit else outcome.summary
            )
        case DamageStep():
            return harm(scene, step)
        case ShiftClock():
            scene.clock.now += step.shift_ms
            return f"the clock is set {abs(step.shift_ms)} ms {'back' if step.shift_ms < 0 else 'forward'}"
        case Room():
            note = _room(scene, step, how)
            if scene.session is not None and scene.disk is not None:
                scene.disk.used_ratio = scene.used_ratio
                if scene.session.clean.running:
                    scene.session.clean.look()  # as it does every ten seconds
            return note
        case LookStep():
            return "a look at what is there"


def _open(scene: Scene, step: Open) -> str:
    scene.disk = scene.new_disk()
    if not step.serve:
        scene.session = MessageStore.open(scene.config, scene.disk, scene.clock, cleaning=step.cleaning)
        return "the store is open"
    try:
        from engine.drill.served import Served
    except ModuleNotFoundError as missing:
        raise NotHere(f"the daemon requires {missing.name}, which is not installed") from None

    # The daemon's puts overlap, and its flow control measures them: by a clock that goes as it should.
    scene.session = MessageStore.open(scene.config, scene.disk, cleaning=True)
    scene.served = Served(scene.session, step.topics, step.queues)
    return f"the store is served on {scene.served.address}"


def _put_served(scene: Scene, served: Served, step: Put) -> str:
    ledger = scene.ledger
    before = len(ledger.acknowledged)
    scene.refusals = served.put(ledger, step.count, step.clients, step.patience_ms)
    note = f"{counted(step.count, 'put')} by {counted(step.clients, 'client')}"
    if scene.refusals:
        note += f", {len(scene.refusals)} refused ({scene.refusals[0]})"
    return f"{note}, {counted(len(ledger.acknowledged) - before, 'message')} acknowledged"


def _put(scene: Scene, step: Put) -> str:
    if scene.served is not None:
        return _put_served(scene, scene.served, step)
    if scene.session is not None:
        return _put_into(scene, scene.session, step)
    with opened(scene, scene.new_disk()) as store:
        return _put_into(scene, store, step)


def _put_into(scene: Scene, store: MessageStore, step: Put) -> str:
    ledger = scene.ledger
    before = len(ledger.acknowledged)
    if step.patience_ms:
        put_patiently(scene, store, step.count, step.patience_ms)
    else:
        scene.answers = [ledger.put(store, wait=step.waits) for _ in range(step.count)]
    refused = sum(not answer.ok for answer in scene.answers)
    note = f"{counted(step.count, 'put')}" + (f", {refused} refused" if refused else "")
    new = len(ledger.acknowledged) - before
    return f"{note}, {counted(new, 'message')} acknowledged" if new else note


def _close(scene: Scene) -> str:
    session, scene.session = scene.session, None
    served, scene.served = scene.served, None
    assert session is not None
    if served is not None:
        served.stop()
    session.wait_dispatched(5000)
    session.close()
    return "the store is closed"


def _command_line(step: RunCommand) -> str:
    words = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in step.options.items()
    ]
    return " ".join(["rstore", step.name, *words])


# --- room -------------------------------------------------------------------------------------------------------------


def _room(scene: Scene, step: Room, how: How) -> str:
    if step.used_ratio is not None:
        scene.used_ratio = step.used_ratio
        return f"the disk usage is shown as {step.used_ratio:.0%}"
    ballast = None if how.own_place is None else os.path.join(how.own_place, BALLAST)
    if step.free:
        scene.used_ratio = scene.usual_ratio
        if ballast is not None:
            Disk().unlink(ballast, missing_ok=True)
        return "there is space again"
    assert ballast is not None
    assert step.leave is not None
    usable = Disk().writable(scene.root)
    if usable < step.leave:
        raise StepFailed(f"the file system has {usable} bytes left, fewer than {step.leave}")
    _fill(ballast, scene.root, step.leave)
    return "the file system is full" if not step.leave else f"the file system has {step.leave} bytes left"


def _fill(path: str, root: str, leave: int) -> None:
    """A file with blocks for every byte that there is, but for `leave`.

    A file system may say that it has room which it doesn't give for one file (its own tables, a size that is no whole
    number of pages), and the open store takes some meanwhile: so it is asked again, for less.
    """
    disk = Disk()
    file: RawFile = disk.open_raw(path, writable=True, create=True)
    try:
        most = disk.writable(root)
        while most >= _BLOCK and (spare := min(most, disk.writable(root) - leave)) >= _BLOCK:
            start = file.size()
            try:
                if not file.allocate(start, start + spare):
                    for at in range(start, start + spare, _CHUNK):
                        file.write(at, bytes(min(_CHUNK, start + spare - at)))
            except DiskFull:
                most = spare // 2
    finally:
        file.close()
