"""The report's part about replication."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from engine.bench.replicated import COPIES, NONE, SENDS, ReplicationResults
from engine.bench.report_table import ratio_text, table
from engine.bench.workload import MIB

_HOW = """\
Copies: a slave with an empty store, of a master that has a log of 1 KiB messages already; from the first record on
the slave to the last, so that neither's start counts. The ratio is against Apache's slave of the same master.
Sends: Apache's own Java client, 8 threads, each call waited for, 1 KiB; all processes share the machine.
What is left is the share of the sends of the same master as an ASYNC_MASTER without a slave. Medians of the rounds.
"""
COPY_HEADS = ("master", "slave", "MiB", "MiB/s", "lowest", "highest", "ratio", "slave CPU s")
COPY_NUMBERS = tuple(range(2, 8))
SEND_HEADS = ("master", "role", "slave", "sends/s", "left", "p50", "p99", "failed")
SEND_NUMBERS = tuple(range(3, 8))
"""Of the tables of `copy_rows` and `send_rows`: the columns' heads, and which of them hold numbers."""


def replication_lines(results: ReplicationResults) -> Iterator[str]:
    """The section; nothing when nothing was measured."""
    if not results.copies and not results.sends:
        return
    yield ""
    yield "## Replication beside Apache's"
    yield ""
    yield from _HOW.splitlines()
    yield ""
    yield from table(
        COPY_HEADS,
        list(copy_rows(results)),
        numbers=COPY_NUMBERS,
    )
    yield ""
    yield from table(
        SEND_HEADS,
        list(send_rows(results)),
        numbers=SEND_NUMBERS,
    )


def copy_rows(results: ReplicationResults) -> Iterator[list[str]]:
    """A row for each that copied."""
    for master, slave in COPIES:
        copies = results.copies.get((master, slave))
        if copies:
            rates = [one.rate / MIB for one in copies]
            cpu = statistics.median(one.slave_cpu for one in copies)
            ratio = results.copy_ratio(master, slave)
            values = [f"{value:,.0f}" for value in (statistics.median(rates), min(rates), max(rates))]
            size = f"{copies[0].size / MIB:.0f}"
            yield [master, slave, size, *values, ratio_text(ratio), f"{cpu:.1f}"]


def send_rows(results: ReplicationResults) -> Iterator[list[str]]:
    """A row for each load."""
    for master, role, slave in SENDS:
        sends = results.sends.get((master, role, slave))
        if sends:
            kept = results.kept(master, role, slave)
            left = "" if slave == NONE or kept is None else f"{kept:.0%}"
            times = [
                f"{statistics.median(values):.2f}" for values in zip(*((o.p50, o.p99) for o in sends), strict=True)
            ]
            rate = statistics.median(one.rate for one in sends)
            failed = statistics.median(one.failed for one in sends)
            yield [master, role, slave, f"{rate:,.0f}", left, *times, f"{failed:.0f}"]
