"""The report's part about the daemon under load."""

from __future__ import annotations

from collections.abc import Iterator

from engine.bench.brokers import OURS
from engine.bench.report_table import ratio_text, table, verdict_word
from engine.bench.served import LOADS, SIDES, ServedResults
from engine.bench.workload import MIB

_HOW = """\
Apache's own Java client loads both, on the machine that the broker runs on; each load is a JVM of its own, whose first
seconds are not counted. Times are of single calls, in ms, as the client sees them. Medians of the rounds. The broker's
processor seconds are those of the whole load, its memory what no file backs at its end.
"""


def served_lines(results: ServedResults) -> Iterator[str]:
    """The section; nothing when nothing was measured."""
    if not results.ones:
        return
    yield ""
    yield "## rstore serve beside Apache's broker"
    yield ""
    yield from _HOW.splitlines()
    yield ""
    yield from table(
        ["load", "required", "measured", ""],
        list(verdict_rows(results)),
        numbers=(1, 2),
    )
    yield ""
    yield from table(
        ["load", "side", "messages/s", "ratio", "p50", "p99", "p99.9", "failed", "broker CPU s", "broker MiB"],
        [row for load in LOADS for row in _rows(results, load.name)],
        numbers=range(2, 10),
    )
    yield ""
    for load in LOADS:
        yield f"- {load.name}: {load.what}"


def verdict_rows(results: ServedResults) -> Iterator[list[str]]:
    """A row for each floor: the load, what is asked for, what was found, the word for it."""
    for load, asked, measured, met in results.verdicts():
        yield [load, asked, measured, verdict_word(met)]


def _rows(results: ServedResults, load: str) -> Iterator[list[str]]:
    for side in SIDES:
        rate = results.median(load, side, lambda one: one.rate)
        if rate is None:
            continue
        times = [
            f"{results.median(load, side, of) or 0:.2f}"
            for of in (lambda one: one.p50, lambda one: one.p99, lambda one: one.p999)
        ]
        failed = results.median(load, side, lambda one: one.failed) or 0
        cpu = results.median(load, side, lambda one: one.broker_cpu) or 0
        rss = results.median(load, side, lambda one: one.broker_rss) or 0
        ratio = ratio_text(results.ratio(load)) if side == OURS else ""
        yield [load, side, f"{rate:,.0f}", ratio, *times, f"{failed:.0f}", f"{cpu:.1f}", f"{rss / MIB:.0f}"]
