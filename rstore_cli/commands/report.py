"""`rstore report`: a store's state, findings and plans in one file, for a ticket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import settings_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def report(
    context: typer.Context,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs nothing beside it.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace topics, groups, addresses and the store's path by numbers.")
    ] = False,
) -> None:
    """Collect state, findings, what a broker would do at its start and the plan of a recovery in one file.

    Reads only, the whole log too; a broker may be running. No bodies, keys or properties are in it.
    """
    settings = settings_of(context)
    output = settings.output()
    if html is None and not output.json:
        raise InvalidArgument("--html FILE is required", hint="or --json, for JSON on stdout")
    config = settings.load()
    if html is not None and html.resolve().is_relative_to(config.store_path_root_dir.resolve()):
        raise InvalidArgument("--html is inside the store", path=html)

    from engine.console.report import as_html, redacted
    from engine.console.report import report as collect
    from engine.files.disk import Disk

    with output.progress("report") as tick:
        conf = None if settings.config is None else str(settings.config)
        document = collect(Disk(), config, conf, tick)
    if redact:
        document = redacted(document)
    if html is not None:
        Disk().write_file_atomically(str(html), as_html(document).encode("utf-8", "backslashreplace"))
    if output.json:
        output.document(document)
    elif html is not None:
        output.text(f"The report is in {html}.")
