"""The report's part about our client beside Apache's."""

from __future__ import annotations

from collections.abc import Iterator

from engine.bench.brokers import OURS
from engine.bench.clients import CLIENT_LOADS, SIDES, ClientResults, rate
from engine.bench.report_table import ratio_text, table, verdict_word
from engine.bench.workload import MIB

_HOW = """\
Both clients load Apache's broker, on the machine that it runs on; each load is a process of its own, whose first
seconds of sends are not counted; consuming is timed from the consumer's start. Times are of single sends, in ms.
Memory is the client's highest that no file backs. Medians of the rounds.
"""


def client_lines(results: ClientResults) -> Iterator[str]:
    """The section; nothing when nothing was measured."""
    if not results.ones:
        return
    yield ""
    yield "## The client beside Apache's"
    yield ""
    yield from _HOW.splitlines()
    yield ""
    rows = [[load, asked, measured, verdict_word(met)] for load, asked, measured, met in results.verdicts()]
    yield from table(["load", "required", "measured", ""], rows, numbers=(1, 2))
    yield ""
    yield from table(
        ["load", "client", "messages/s", "ratio", "p50", "p99", "p99.9", "failed", "client CPU s", "client MiB"],
        [row for load in CLIENT_LOADS for row in _rows(results, load.name)],
        numbers=range(2, 10),
    )
    yield ""
    for load in CLIENT_LOADS:
        yield f"- {load.name}: {load.what}"


def _rows(results: ClientResults, load: str) -> Iterator[list[str]]:
    for side in SIDES:
        messages = results.median(load, side, rate)
        if messages is None:
            continue
        more = [
            results.median(load, side, lambda one, name=name: one.more.get(name, 0.0)) or 0.0  # type: ignore[misc]
            for name in ("p50", "p99", "p999", "failed")
        ]
        cpu = results.median(load, side, lambda one: one.wall_cpu) or 0.0
        memory = results.median(load, side, lambda one: one.peak_anon) or 0.0
        ratio = ratio_text(results.ratio(load)) if side == OURS else ""
        times = [f"{one:.2f}" for one in more[:3]]
        yield [
            *(load, side, f"{messages:,.0f}", ratio, *times),
            *(f"{more[3]:.0f}", f"{cpu:.1f}", f"{memory / MIB:.0f}"),
        ]
