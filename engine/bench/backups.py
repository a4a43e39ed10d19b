"""Backups beside restic and borg: the same store, the same machine, one after the other.

Each round makes new repositories: `create`; some messages are put; `again`, a backup of what came since; `check`, which
reads all that the repository has; `restore`, after which all is on the disk (the peers leave that to the system, so a
sync(1) of its file system follows them); `restore and read`, which then reads what was restored once more. All three
compress with zstd and encrypt. The peers back the store's directory up as it is; rstore leaves out what it makes again,
and its restore makes queues and index. So it does more there than they do.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from engine.bench.measure import Measurement, measure
from engine.bench.stores import KeptStore, remove, warm
from engine.bench.workload import KIB, Workload, bodies
from engine.dataclass import dataclass
from engine.store import MessageStore

NAME = "backup"
FILES = 4
"""Files of the log."""
OURS = "rstore"
PEERS = ("restic", "borg")
RESTORE = "restore"
RESTORE_AND_READ = "restore and read"
"""borg has no such thing."""
STEPS = ("create", "again", "check", RESTORE, RESTORE_AND_READ)
MORE = 1 / 64
"""The share of the log that is put before `again`."""
_SECRET = "a key for the bench"
_LIMIT_S = 3600


def workload(size: int) -> Workload:
    """The store: bodies of words, as compressible as text."""
    return Workload(NAME, KIB, size=FILES * size, segment=size, is_text=True)


@dataclass(slots=True)
class BackupResults:
    """Measures by step and tool, a round each; `sizes`: bytes of a tool's repository after `again`."""

    steps: dict[tuple[str, str], list[Measurement]] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def seconds(self, step: str, tool: str) -> float | None:
        """The median; None: not measured."""
        measured = self.steps.get((step, tool))
        return statistics.median(one.wall for one in measured) if measured else None

    def ratio(self, step: str, tool: str) -> float | None:
        """How many times as fast as this peer rstore is."""
        ours, theirs = self.seconds(step, OURS), self.seconds(step, tool)
        return None if ours is None or theirs is None else theirs / ours

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {
            "measures": [
                {"step": step, "tool": tool, "samples": [one.to_json() for one in measured]}
                for (step, tool), measured in self.steps.items()
            ],
            "sizes": self.sizes,
            "missing": self.missing,
        }


class BackupBench:
    """See the module.

    Args:
        program: the words that run the command line.
        work: where repositories go.
        kept: the store; it grows.
        told: what is measured now.
    """

    def __init__(self, program: tuple[str, ...], work: Path, kept: KeptStore, told: Callable[[str], None]) -> None:
        self._program = program
        self._work = work / "backups"
        self._kept = kept
        self._told = told
        self._tools = (OURS, *(one for one in PEERS if shutil.which(one)))
        self._put = 0
        self._results = BackupResults(missing=[one for one in PEERS if not shutil.which(one)])

    def measure(self, rounds: int) -> BackupResults:
        """All rounds. Raises StorageError: one of them failed."""
        for _ in range(rounds):
            try:
                self._round()
            finally:
                remove(self._work)
        return self._results

    def _round(self) -> None:
        remove(self._work)
        self._work.mkdir(parents=True)
        (self._work / "home").mkdir()
        for tool in self._tools:
            self._run(tool, "init")
        warm(self._kept.root)
        for tool in self._tools:
            self._step(tool, "create")
        self._put_more()
        warm(self._kept.root)
        for step in STEPS[1:]:
            for tool in self._tools:
                (self._work / "restored").mkdir()
                self._step(tool, step)
                remove(self._work / "restored")
        for tool in self._tools:
            files = (path for path in (self._work / tool).rglob("*") if path.is_file())
            self._results.sizes.setdefault(tool, []).append(sum(path.stat().st_size for path in files))

    def _step(self, tool: str, step: str) -> None:
        if (tool, step) == ("borg", RESTORE_AND_READ):
            return
        self._told(f"backups: {tool} {step}")
        measured = self._run(tool, step)
        if tool != OURS and step in (RESTORE, RESTORE_AND_READ):
            measured = _both(measured, self._measured(["sync", "-f", str(self._work / "restored")]))
        self._results.steps.setdefault((step, tool), []).append(measured)

    def _run(self, tool: str, step: str) -> Measurement:
        return self._measured({"restic": self._restic, "borg": self._borg}.get(tool, self._rstore)(step))

    def _measured(self, words: list[str]) -> Measurement:
        return measure(words, answers=False, timeout=_LIMIT_S, env={**os.environ, **self._environment()})

    def _environment(self) -> Mapping[str, str]:
        home = str(self._work / "home")
        return {
            "RSTORE_REPO": str(self._work / OURS),
            "RSTORE_REPO_KEY": _SECRET,
            "RESTIC_REPOSITORY": str(self._work / "restic"),
            "RESTIC_PASSWORD": _SECRET,
            "RESTIC_CACHE_DIR": home,
            "BORG_REPO": str(self._work / "borg"),
            "BORG_PASSPHRASE": _SECRET,
            "BORG_BASE_DIR": home,
        }

    def _rstore(self, step: str) -> list[str]:
        store, restored = str(self._kept.root), str(self._work / "restored")
        words = {
            "init": ["backup", "init"],
            "create": ["--store", store, "--follow-links", "backup", "create", "--quiet"],
            "again": ["--store", store, "--follow-links", "backup", "create", "--quiet"],
            "check": ["backup", "check", "--all"],
            RESTORE: ["--store", restored, "restore", "--quiet", "--no-check"],
            RESTORE_AND_READ: ["--store", restored, "restore", "--quiet"],
        }
        return [*self._program, *words[step]]

    def _restic(self, step: str) -> list[str]:
        words = {
            "init": ["init"],
            "create": ["backup", str(self._kept.root)],
            "again": ["backup", str(self._kept.root)],
            "check": ["check", "--read-data"],
            RESTORE: ["restore", "latest", "--target", str(self._work / "restored")],
            RESTORE_AND_READ: ["restore", "latest", "--verify", "--target", str(self._work / "restored")],
        }
        return ["restic", "--quiet", *words[step]]

    def _borg(self, step: str) -> list[str]:
        words = {
            "init": ["init", "--encryption", "repokey-blake2"],
            "create": ["create", "--compression", "zstd,3", "::first", str(self._kept.root)],
            "again": ["create", "--compression", "zstd,3", "::again", str(self._kept.root)],
            "check": ["check", "--verify-data"],
        }
        if step == RESTORE:  # it restores into the working directory
            return ["sh", "-c", 'cd "$1" && exec borg extract ::again', "sh", str(self._work / "restored")]
        return ["borg", *words[step]]

    def _put_more(self) -> None:
        """Messages that no backup has yet."""
        made = self._kept.workload
        count = int(made.size * MORE) // made.record_size
        with MessageStore.open(made.config(self._kept.root)) as store:
            for number, body in enumerate(islice(bodies(made, self._put + count), self._put, None), self._put):
                store.put(made.message(number, body))
        self._put += count


def _both(first: Measurement, then: Measurement) -> Measurement:
    """Two processes, one after the other, as one."""
    return replace(
        first,
        wall=first.wall + then.wall,
        wall_cpu=first.wall_cpu + then.wall_cpu,
        peak_rss=max(first.peak_rss, then.peak_rss),
        peak_anon=max(first.peak_anon, then.peak_anon),
    )
