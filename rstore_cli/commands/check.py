"""`rstore check`: everything in a store against everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rstore_cli._common import FOUND, Jobs, parse_duration, settings_of
from rstore_cli.render import BATCHES, Output, count, messages_in, printable, size

if TYPE_CHECKING:
    from engine.errors import NextStep
    from engine.inspect.check.check import CheckResult
    from engine.inspect.finding import Finding

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def check(
    context: typer.Context,
    jobs: Jobs = None,
    time_box: Annotated[
        str | None,
        typer.Option("--time-box", metavar="TIME", help="Time limit (30s, 5m); what was not checked is listed."),
    ] = None,
) -> None:
    """Check log, queues, extension, index, checkpoint and config against each other, in both directions.

    Reads only. Exit code 1 when there is an error or a warning. A broker may be running: what it is writing is not
    checked.
    """
    settings = settings_of(context)
    output = settings.output()
    limit = None if time_box is None else parse_duration(time_box, "--time-box")
    config = settings.load(numpy=True)

    from engine.files.disk import Disk
    from engine.inspect.check.check import check as look
    from engine.repair.recover.following import mended_by_recovery

    disk = Disk()
    with output.progress("check") as tick:
        checked = look(
            disk,
            config,
            jobs=jobs,
            time_box_ms=limit,
            progress=tick,
            mended=mended_by_recovery(disk, jobs=jobs),
        )
    if output.json:
        output.document(checked.to_json())
    else:
        _show(output, checked)
    if not checked.ok:
        raise typer.Exit(FOUND)


_STYLES = {"error": "red", "warning": "yellow"}


def _show(output: Output, checked: CheckResult) -> None:
    seen = checked.counts
    output.text(
        f"{messages_in(seen['messages'], seen['records'])} ({size(seen['bytes'])}), {count(seen['units'], 'unit')} in "
        f"{count(seen['queues'], 'queue')}, {count(seen['indexEntries'], 'index entry', 'index entries')}, "
        f"{count(seen['configFiles'], 'config file')}; {checked.seconds:.1f} s"
    )
    if checked.batches:
        output.text(BATCHES)
    show_findings(output, checked.findings, checked.next)
    if not seen["configFiles"] and seen["units"] and not any(f.code == "config-missing" for f in checked.findings):
        output.text(
            "No configuration (config/): a broker started here serves none of these topics; "
            "rstore rebuild-config rebuilds it from log and queues."
        )
    if checked.ok:
        output.text("Nothing is wrong." if checked.complete else "Nothing is wrong in the part that was checked.")
    show_next(output, checked.next)


def show_next(output: Output, following: NextStep | None) -> None:
    """The one thing to do next."""
    if following is not None:
        output.text(f"Next: {following}")


def show_findings(output: Output, findings: tuple[Finding, ...], following: NextStep | None) -> None:
    """Findings as people read them: worst first, each with what to know; the same advice is given once."""
    if not findings:
        return
    shown_hints: set[str] = {"", str(following)}  # what comes next is said at the end
    for finding in findings:
        output.text()
        word = finding.severity.value
        output.text(f"{word.upper():<8} {printable(finding.where)}  [{finding.code}]", style=_STYLES.get(word))
        output.text(f"         {printable(finding.message)}")
        if finding.hint not in shown_hints:
            output.text(f"         {printable(finding.hint)}")
        shown_hints.add(finding.hint)
    output.text()
    by = {word: sum(f.severity.value == word for f in findings) for word in ("error", "warning")}
    notes = len(findings) - sum(by.values())
    output.text(
        f"{count(by['error'], 'error')}, {count(by['warning'], 'warning')}"
        + (f", {count(notes, 'note')}" if notes else "")
    )
