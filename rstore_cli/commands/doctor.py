"""`rstore doctor`: why a broker does not start on this store."""

from __future__ import annotations

import typer

from rstore_cli._common import FOUND, settings_of
from rstore_cli.commands.check import show_findings, show_next

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(context: typer.Context) -> None:
    """Why a broker does not start on this store: files, sizes, paths, rights, disk, configuration, kind of store.

    Reads only, and never a message: rstore check does that. Exit code 1 when something keeps a broker from starting.
    """
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.pipeline.ready import ready
    from engine.repair.doctor import doctor as look

    found = look(Disk(), config)
    spark = ready()
    if output.json:
        output.document({**found.to_json(), "sparkJobs": spark.to_json()})
    else:
        said = "Nothing here keeps a broker from starting." if found.starts else "A broker does not start like this:"
        output.text(f"{said} The log was not read." if found.starts else said)
        show_findings(output, found.findings, found.next)
        output.text()
        why = "; ".join(found.code_14)
        output.text(
            f"Code 14 (SERVICE_NOT_AVAILABLE) here and now: {why}."
            if why
            else "Code 14 (SERVICE_NOT_AVAILABLE): nothing here is a reason; it would come from the running broker "
            "(shutting down, or an earlier error of log, queue or index)."
        )
        if spark.why is None:
            packages = ", ".join(f"{name} {version}" for name, version in spark.packages.items())
            output.text(f"Spark jobs (rstore pipeline) can run: Java {spark.java_version} in {spark.java}, {packages}.")
        else:
            output.text(f"Spark jobs (rstore pipeline) can't run: {spark.why}.")
        show_next(output, found.next)
    if not found.starts:
        raise typer.Exit(FOUND)
