"""The report's part about backups."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from engine.bench.backups import OURS, PEERS, STEPS, BackupResults
from engine.bench.report_table import ratio_text, table
from engine.bench.workload import MIB

_HOW = """\
The same store for all, with a warm page cache; zstd and encryption; a directory on the same disk; whole processes.
`again`: a backup after some messages more. `check` reads all data. `restore`: rstore (`--no-check`) makes queues and
index from the log, the others write files; all is on the disk then (`sync -f` after the others). `restore and read`:
rstore checks the store after that, restic verifies its files (`--verify`), then `sync -f`; borg has no such option.
Medians of the rounds; memory is the highest, without mapped files.
"""
HEADS = ("step", "tool", "seconds", "lowest", "highest", "rstore is", "CPU s", "memory MiB")


def backup_lines(results: BackupResults) -> Iterator[str]:
    """The section; nothing when nothing was measured."""
    if not results.steps:
        return
    yield ""
    yield "## Backups beside restic and borg"
    yield ""
    yield from _HOW.splitlines()
    yield ""
    yield from table(HEADS, list(step_rows(results)), numbers=tuple(range(2, 8)))
    yield ""
    yield from table(
        ("tool", "repository MiB"),
        [[tool, f"{statistics.median(sizes) / MIB:,.0f}"] for tool, sizes in results.sizes.items()],
        numbers=(1,),
    )
    for tool in results.missing:
        yield ""
        yield f"Not measured: {tool} is not installed (Debian: apt-get install {_PACKAGES[tool]})."


_PACKAGES = {"restic": "restic", "borg": "borgbackup"}
assert set(_PACKAGES) == set(PEERS)


def step_rows(results: BackupResults) -> Iterator[list[str]]:
    """A row for each step and tool."""
    for step in STEPS:
        for tool in (OURS, *PEERS):
            measured = results.steps.get((step, tool))
            if measured:
                walls = [one.wall for one in measured]
                values = [f"{value:.2f}" for value in (statistics.median(walls), min(walls), max(walls))]
                ratio = "" if tool == OURS else ratio_text(results.ratio(step, tool))
                cpu = statistics.median(one.wall_cpu for one in measured)
                memory = max(one.peak_anon for one in measured) / MIB
                yield [step, tool, *values, ratio, f"{cpu:.1f}", f"{memory:.0f}"]
