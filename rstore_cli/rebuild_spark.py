"""Rebuilding on Spark, as `pipeline reindex` and `reindex --spark` do it: built aside, shown, asked, swapped in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rstore_cli._common import FOUND, OK, Settings
from rstore_cli._spark import SparkOptions, on_spark, watching
from rstore_cli.change import agreed

if TYPE_CHECKING:
    from engine.pipeline.jobs.reindex import Rebuilt, ReindexOptions
    from engine.pipeline.stores import StoreRef

_LABEL = "reindex"


def rebuild(
    settings: Settings,
    given: SparkOptions,
    stores: Sequence[StoreRef],
    options: ReindexOptions,
    *,
    dry_run: bool,
    yes: bool,
    text: Callable[[Rebuilt, bool], None],
    json: Callable[[Rebuilt], dict[str, Any]],
) -> int:
    """The exit code.

    Args:
        settings: of this run.
        given: Spark's options.
        stores: which.
        options: what is rebuilt, and where to; `apply` is for us to say.
        dry_run: only show what differs.
        yes: don't ask.
        text: prints what is to be done, or (True) what was done.
        json: the same as a document.
    """
    from engine.errors import NextStep
    from engine.pipeline.jobs.reindex import rebuilding
    from engine.pipeline.stores import demand_idle

    elsewhere = options.output is not None and not dry_run
    wanted = replace(options, output=options.output if elsewhere else None, apply=not (dry_run or elsewhere))
    output = settings.output()
    demand_idle(stores)  # before Spark starts

    def show(rebuilt: Rebuilt, *, done: bool) -> None:
        if not output.json:
            text(rebuilt, done)
        elif done or not rebuilt.changed or not wanted.apply:
            output.document(json(rebuilt))

    if elsewhere:
        settings.on_interrupt = "no store was changed, and nothing is left of what was built"
    with on_spark(settings, given, _LABEL, bar=False) as spark, contextlib.ExitStack() as stack:
        with watching(settings, spark, _LABEL):
            rebuilt = stack.enter_context(rebuilding(spark, stores, wanted))
        if not wanted.apply:
            show(rebuilt, done=elsewhere)
            if dry_run and rebuilt.changed and not output.json:
                output.text(f"Next: {NextStep(settings.again(), 'applies this plan')}")
            return FOUND if dry_run and rebuilt.changed else OK
        if not rebuilt.changed:
            rebuilt.apply()  # a repair that was killed as its last step is ended
            show(rebuilt, done=False)
            return OK
        show(rebuilt, done=False)
        if not (yes or agreed(output, "reindex")):
            output.warn("Nothing was changed.")
            return FOUND
        settings.on_interrupt = "the swap is not finished, nothing is lost; run it again"
        rebuilt.apply()
        settings.on_interrupt = "queues and index are rebuilt"
        show(rebuilt, done=True)
        return OK
