"""Interruptions, enumerated by the code: a dry pass counts a step's operations, then it fails at one after the other.

Three kinds, each of which leaves scenes for the steps that follow:
- *kill*: a command dies before its n-th change (`Killed`, which nothing cleans up after); a store that takes puts is
  copied as it is before one, since its threads can't die in the middle of this process. What was written stays.
- *power-cut*: the same moments, in a copy that lacks what was not synced (engine.files.durable). A last one cuts
  when a command has returned: what it promised must be durable.
- *disk-full*: from the n-th operation on that takes space there is none (ENOSPC).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Protocol

from engine.drill.commands import execute
from engine.drill.content import content
from engine.drill.disk import CuttingDisk
from engine.drill.read_script import BEFORE, PLANNED
from engine.errors import RStoreError
from engine.files.faults import Killed
from engine.store import MessageStore

if TYPE_CHECKING:
    from engine.drill.disk import DrillDisk
    from engine.drill.ledger import Stored
    from engine.drill.scene import Scene
    from engine.drill.script import Crash, Put, RunCommand
    from engine.files.disk import Disk
    from engine.files.durable import Lose

MODEL_MAX = 256 << 20
"""Bytes of a store whose power can be cut: the model keeps all of it in memory."""
_FOR_EVER = 10
"""So many times the script's puts must bring a full disk to light."""
_AFTER_SPACE = 20
"""Puts that must work once there is space again."""


class StepFailed(RStoreError):
    """A step was not carried out as its script says."""

    code = "drill"


class Tell(Protocol):
    """Takes how many interruptions a step has, and how many of them are tried."""

    def __call__(self, tried: int, of: int) -> None:
        """They are known now."""


def choose(total: int, sample: int | None, rng: Random) -> list[int]:
    """Which of 1 … total: all, or `sample` of them with the first and the last."""
    if sample is None or sample >= total:
        return list(range(1, total + 1))
    inner = rng.sample(range(2, total), max(0, min(sample - 2, total - 2)))
    return sorted({1, total, *inner}) if sample > 1 else [rng.randint(1, total)]


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """A thread of a killed command says nothing about it."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Killed):
            before(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


# --- commands ---------------------------------------------------------------------------------------------------------


def interrupted_command(
    scene: Scene, step: RunCommand, crash: Crash, sample: int | None, rng: Random, tell: Tell
) -> Iterator[Scene]:
    """Scenes of a command that fails at each of the chosen operations. Raises StepFailed when it fails by itself."""
    whole = scene.fork()
    disk = whole.new_disk()
    scene.states[BEFORE] = content(disk, scene.config)
    outcome = execute(step.name, disk, whole.config, step.options)
    if outcome.exit != 0:
        raise StepFailed(f"{step.name} fails without an interruption: {outcome.summary}")
    scene.states[PLANNED] = content(whole.new_disk(), whole.config)
    scene.left_by(outcome)
    total = disk.taken if crash.how == "disk-full" else disk.changes_seen
    whole.close()
    moments = choose(total, sample, rng)
    if crash.how != "power-cut":
        tell(len(moments), total)
    match crash.how:
        case "kill":
            yield from _killed(scene, step, moments, total)
        case "disk-full":
            yield from _full(scene, step, moments, total)
        case "power-cut":
            yield from _cut_command(scene, step, crash, moments, total, rng, tell)


def _killed(scene: Scene, step: RunCommand, moments: list[int], total: int) -> Iterator[Scene]:
    for moment in moments:
        copy = scene.fork()
        disk = copy.new_disk()
        disk.kill_before(moment)
        try:
            execute(step.name, disk, copy.config, step.options)
            where = "it ended before"
        except Killed as killed:
            where = _inside(str(killed), copy.root)
        copy.outcome = None
        copy.branch = (*scene.branch, f"{step.name} killed at change {moment} of {total} ({where})")
        yield copy


def _full(scene: Scene, step: RunCommand, moments: list[int], total: int) -> Iterator[Scene]:
    for moment in moments:
        copy = scene.fork(f"{step.name} with a full disk from operation {moment} of {total} on that takes space")
        disk = copy.new_disk()
        disk.fail_after(moment - 1)
        copy.outcome = execute(step.name, disk, copy.config, step.options)
        yield copy


def _cut_command(
    scene: Scene, step: RunCommand, crash: Crash, moments: list[int], total: int, rng: Random, tell: Tell
) -> Iterator[Scene]:
    runs = scene.fork()
    cuts: list[tuple[int, str]] = []
    disk = _cutting(runs, moments, lambda moment, root: cuts.append((moment, root)), crash.lose, crash.torn, rng)
    execute(step.name, disk, runs.config, step.options)
    last = scene.place.new()
    disk.crash_copy(last, rng, "all")
    runs.close()
    tell(len(cuts) + 1, total + 1)
    for moment, root in cuts:
        yield _left(scene, root, f"power cut in {step.name} before change {moment} of {total}")
    yield _left(scene, last, f"power cut when {step.name} had ended")


def _left(scene: Scene, root: str, why: str) -> Scene:
    copy = scene.fork(why, root=root)
    copy.outcome = None
    return copy


# --- puts -------------------------------------------------------------------------------------------------------------


def interrupted_puts(
    scene: Scene, step: Put, crash: Crash, sample: int | None, rng: Random, tell: Tell
) -> Iterator[Scene]:
    """Scenes of a store that is opened, takes puts and is closed, and that fails at each of the chosen operations."""
    dry = scene.fork()
    disk = dry.new_disk()
    with opened(dry, disk) as store:
        opening = disk.taken
        for _ in range(step.count):
            dry.ledger.put(store, wait=step.waits)
    # A full disk while the store is opened is an error of opening it: what puts take begins after that.
    total = disk.taken - opening if crash.how == "disk-full" else disk.changes_seen
    dry.close()
    moments = choose(total, sample, rng)
    if crash.how == "disk-full":
        tell(len(moments), total)
        yield from _puts_on_a_full_disk(scene, step, moments, total)
    else:
        yield from _puts_cut(scene, step, crash, moments, total, rng, tell)


def _puts_cut(
    scene: Scene, step: Put, crash: Crash, moments: list[int], total: int, rng: Random, tell: Tell
) -> Iterator[Scene]:
    """One run, copied at each moment: what is acknowledged by then must be in the copy."""
    runs = scene.fork()
    lose: Lose = "none" if crash.how == "kill" else crash.lose
    cuts: list[tuple[int, str, list[Stored]]] = []

    def note(moment: int, root: str) -> None:
        cuts.append((moment, root, list(runs.ledger.acknowledged)))

    disk = _cutting(runs, moments, note, lose, crash.torn, rng)
    with opened(runs, disk) as store:
        for _ in range(step.count):
            answer = runs.ledger.put(store, wait=step.waits)
            if not answer.ok:
                raise StepFailed(f"a put was refused: {answer.status.value} ({answer.error})")
    ended = disk.changes_seen
    # Threads flush as they please: this run may have made fewer changes than the dry one. It ends before its last
    # moments then, and is interrupted there once.
    late = next((moment for moment in moments if moment > ended), None)
    if late is not None:
        last = scene.place.new()
        disk.crash_copy(last, rng, lose, torn=crash.torn)
        note(late, last)
    tell(len(cuts), total)
    word = "killed" if crash.how == "kill" else "power cut"
    for moment, root, acknowledged in cuts:
        # What was put later is in the ledger, too: a message may be in the log before its put has returned.
        when = f"before change {moment} of about {total} of the puts" if moment <= ended else "when the puts had ended"
        copy = runs.fork(f"{word} {when}", root=root)
        copy.ledger.acknowledged = acknowledged
        yield copy
    runs.close()


def _puts_on_a_full_disk(scene: Scene, step: Put, moments: list[int], total: int) -> Iterator[Scene]:
    """Refused in a clear word, nothing acknowledged lost; and with space again puts continue in the same open store."""
    for moment in moments:
        copy = scene.fork(f"disk full from operation {moment} of about {total} on that takes space")
        disk = copy.new_disk()
        with opened(copy, disk) as store:
            disk.fail_after(moment - 1)
            copy.answers = []
            while len(copy.answers) < step.count or _goes_on(copy, step.count):
                copy.answers.append(copy.ledger.put(store, wait=step.waits))
            for one in copy.ledger.acknowledged:
                there = store.look_message(one.physical_offset)
                if there is None or there.properties.get("UNIQ_KEY") != one.unique:
                    raise StepFailed(f"{one.name} was acknowledged and can't be read on a full disk")
            disk.heal()
            put_patiently(copy, store, _AFTER_SPACE, step.patience_ms)
        yield copy


def _goes_on(scene: Scene, count: int) -> bool:
    """Whether nothing is refused yet: what was allocated before takes some puts more, but not for ever."""
    return all(answer.ok for answer in scene.answers) and len(scene.answers) < count * _FOR_EVER


def put_patiently(scene: Scene, store: MessageStore, count: int, patience_ms: int) -> None:
    """Put so many; each refused one is tried again for so long. Raises StepFailed when it was too long."""
    import time

    until = time.monotonic() + patience_ms / 1000
    for _ in range(count):
        while not (answer := scene.ledger.put(store)).ok:
            if time.monotonic() > until:
                raise StepFailed(f"a put is still refused: {answer.status.value} ({answer.error})")
            time.sleep(0.01)


@contextlib.contextmanager
def opened(scene: Scene, disk: Disk) -> Iterator[MessageStore]:
    """The scene's store, open; at the end dispatched and closed."""
    with MessageStore.open(scene.config, disk, scene.clock) as store:
        yield store
        store.wait_dispatched(5000)


def _cutting(
    scene: Scene,
    moments: list[int],
    note: Callable[[int, str], object],
    lose: Lose,
    torn: bool,
    rng: Random,
) -> DrillDisk:
    def copy_to(moment: int) -> str:
        root = scene.place.new()
        note(moment, root)
        return root

    return CuttingDisk(scene.root, moments, copy_to, lose=lose, torn=torn, rng=rng, mapped=not scene.channel)


def _inside(text: str, root: str) -> str:
    """Without the scratch directory's name."""
    return text.replace(root + "/", "").replace(root, "the store")
