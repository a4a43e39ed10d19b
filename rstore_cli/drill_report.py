"""A run of drills as a document in Markdown: what was done, how often it was interrupted, the verdict."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.drill.result import DrillReport, DrillResult


def markdown(drilled: DrillReport) -> str:
    """The document."""
    return "\n".join(_lines(drilled)) + "\n"


def _lines(drilled: DrillReport) -> Iterator[str]:
    document = drilled.to_json()
    tried = document["interruptions"]
    how = "every one" if drilled.thorough else f"{drilled.sample} a step" if drilled.sample else "as the scripts say"
    yield "# Drills of rstore"
    yield ""
    yield f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}, {platform.node()}, {platform.system()} {platform.release()}, "
    yield f"Python {platform.python_version()}: {'PASSED' if document['ok'] else 'NOT PASSED'}."
    yield ""
    yield f"- {document['passed']} passed, {document['failed']} failed, {document['notRun']} not run"
    yield f"- interruptions tried: {tried['tried']} of {tried['of']} ({how})"
    yield f"- {drilled.seconds:.0f} seconds"
    if drilled.original is not None:
        state = "unchanged" if drilled.original.untouched else "CHANGED"
        yield f"- the store `{_cell(drilled.original.path)}` is {state}: SHA-256 over every path, byte and time"
        yield f"  before `{drilled.original.before}`, after `{drilled.original.after}`"
    yield ""
    yield "| drill | verdict | interrupted | judged | seconds |"
    yield "|---|---|---:|---:|---:|"
    for one in drilled.drills:
        interrupted = f"{one.tried} of {one.of}" if one.of else "-"
        yield f"| {one.name} | {one.verdict} | {interrupted} | {one.judged} | {one.seconds:.1f} |"
    for one in drilled.drills:
        yield ""
        yield from _drill(one)


def _drill(one: DrillResult) -> Iterator[str]:
    yield f"## {one.name}: {one.verdict}"
    yield ""
    yield _cell(one.purpose)
    if one.why is not None:
        yield ""
        yield f"Not run: {_cell(one.why)}."
        return
    yield ""
    yield f"The store: {_cell(one.store)}."
    yield ""
    for step in one.steps:
        times = f" ({step.tried} of {step.of})" if step.of else ""
        yield f"{step.number}. {_cell(one.text_of(step))}{times}"
    if one.failures:
        yield ""
        yield "| step | expected | found | after |"
        yield "|---|---|---|---|"
    for failure in one.failures:
        expected = f"{failure.expectation}: {failure.wanted}"
        yield f"| {failure.step} | {_cell(expected)} | {_cell(failure.actual)} | {_cell(failure.branch or '-')} |"
    if one.failed > len(one.failures):
        yield ""
        yield f"And {one.failed - len(one.failures)} more."


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return printable(text).replace("|", "\\|")
