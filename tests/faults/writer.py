"""A process that puts until it is killed: `python -m tests.faults.writer STORE SEED PUTS [STEP:NTH] [setting=value …]`.

Each message that was acknowledged is a line on standard output, written before the next put, with the whole record.
After PUTS puts (0: never) it closes the store and begins again, for ever. With STEP:NTH it kills itself when it reaches
the named step for the nth time.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from engine.files.disk import Disk
from engine.store import MessageStore
from tests.faults.ledger import DrillLedger, Stored, settings

ROOT = Path(__file__).resolve().parents[2]


class SuicidalDisk(Disk):
    """Kills the process, for real, when a step is reached for the nth time."""

    def __init__(self, step: str, nth: int) -> None:
        super().__init__()
        self._step = step
        self._left = nth

    def step(self, name: str) -> None:
        if name == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> None:
    """Put until killed; every put is waited for."""
    ledger, puts = DrillLedger(int(argv[1])), int(argv[2])
    given = [word.partition("=") for word in argv[3:] if "=" in word]
    changes = {name: json.loads(value) for name, _, value in given}
    steps = [word.rpartition(":") for word in argv[3:] if "=" not in word]
    disk = SuicidalDisk(steps[0][0], int(steps[0][2])) if steps else Disk()
    told = 0
    while True:
        with MessageStore.open(settings(Path(argv[0]), **changes), disk) as store:
            for _ in range(puts) if puts else itertools.count():
                ledger.put(store)
                for one in ledger.acknowledged[told:]:
                    line = [one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.unique]
                    sys.stdout.write(json.dumps([*line, one.properties.hex(), one.record.hex()]) + "\n")
                told = len(ledger.acknowledged)
                sys.stdout.flush()


def run_until_dead(root: Path, seed: int, puts: int, step: str, nth: int) -> list[Stored]:
    """Run the writer until it has killed itself at a step; what it was told is stored."""
    command = [sys.executable, "-m", "tests.faults.writer", str(root), str(seed), str(puts), f"{step}:{nth}"]
    process = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, timeout=60, check=False)
    assert process.returncode == -signal.SIGKILL, "it ended by itself"
    return [_stored(json.loads(line)) for line in process.stdout.splitlines(keepends=True) if line.endswith(b"\n")]


def run_and_kill(root: Path, seed: int, puts: int, changes: Iterable[str] = ()) -> list[Stored]:
    """Run the writer, kill it a moment after `puts` messages; what it was told is stored."""
    command = [sys.executable, "-m", "tests.faults.writer", str(root), str(seed), "0", *changes]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    seen = []
    try:
        for line in process.stdout:
            seen.append(line)
            if len(seen) >= puts:
                break
        time.sleep(random.Random(seed).random() * 0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        process.wait()
    assert process.returncode == -signal.SIGKILL, "it ended by itself"
    seen += [line for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    assert len(seen) >= puts
    return [_stored(json.loads(line)) for line in seen]


def _stored(line: list) -> Stored:
    *place, raw, record = line
    return Stored(*place, bytes.fromhex(raw), bytes.fromhex(record))


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(1)
