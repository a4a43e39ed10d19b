"""`rstore doctor`: why a broker does not start on this store, and what it makes of its configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument, RStoreError
from rstore_cli._common import FOUND, Settings, settings_of
from rstore_cli.commands.check import show_findings, show_next

if TYPE_CHECKING:
    from engine.broker.outlook import Outlook
    from engine.broker_conf.report import Report
    from engine.config import StoreConfig
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    context: typer.Context,
    conf: Annotated[
        Path | None,
        typer.Option("--conf", metavar="FILE", help="Check only this properties file of a broker, and no store."),
    ] = None,
    upgrade_to: Annotated[
        str,
        typer.Option(
            "--upgrade-to",
            metavar="RELEASE",
            help="Show instead what this release would not read, or read otherwise: 4.9.8, 5.3.1, 5.3.3, 5.4.0, 5.5.0, "
            "or 4.9, 5.3 …",
        ),
    ] = "",
) -> None:
    """Show why a broker does not start on this store: files, sizes, paths, rights, disk, configuration, kind of store.

    With -c or --conf also a verdict on each key of the broker's properties file: in force, misread, ignored, unknown;
    and whom the daemon (serve) lets in with it, and which of its options change that.
    Reads only, and no messages: rstore check reads those. Exit code 1 when something prevents a broker's start.
    With --upgrade-to it reads the log, too, for an upgrade or the way back: exit code 1 when something is lost, is
    never delivered, or prevents the start.
    """
    settings = settings_of(context)
    output = settings.output()
    config = None if conf is not None else _settings(settings)
    if upgrade_to:
        _show_upgrade(output, config, conf or settings.config, upgrade_to)
        return
    if config is None:
        file = conf or settings.config
        assert file is not None
        _only_conf(output, file, unread_store=conf is None)
        return

    from engine.files.disk import Disk
    from engine.inspect.check.doctor import doctor as look
    from engine.pipeline.ready import ready

    file = settings.config
    diagnosis = look(Disk(), config, None if file is None else str(file), _replication(config, output))
    spark = ready()
    served = None if file is None else _outlook(file)
    if output.json:
        daemon = None if served is None else served.to_json()
        output.document({**diagnosis.to_json(), "daemon": daemon, "sparkJobs": spark.to_json()})
    else:
        verdict = "Nothing prevents a broker's start." if diagnosis.starts else "Do not start a broker yet:"
        if diagnosis.starts and diagnosis.newer:
            used = "" if diagnosis.release is None else f" ({diagnosis.release.least} or later)"
            verdict = f"Nothing that was checked prevents the start of its own RocketMQ 5 broker{used}."
        output.text(f"{verdict} The log was not read." if diagnosis.starts else verdict)
        if diagnosis.configuration is not None:
            output.text(_counts(str(file), diagnosis.configuration))
        show_findings(output, diagnosis.findings, diagnosis.next)
        if diagnosis.configuration is not None:
            _show_outlook(output, served)
        output.text()
        why = "; ".join(diagnosis.code_14)
        output.text(
            f"Code 14 (SERVICE_NOT_AVAILABLE) here and now: {why}."
            if why
            else "Code 14 (SERVICE_NOT_AVAILABLE): no cause in the store or on this machine; the running "
            "broker may have one (shutting down, or an earlier error of log, queue or index)."
        )
        if spark.why is None:
            packages = ", ".join(f"{name} {version}" for name, version in spark.packages.items())
            output.text(f"Spark jobs (rstore pipeline) can run: Java {spark.java_version} in {spark.java}, {packages}.")
        else:
            output.text(f"Spark jobs (rstore pipeline) can't run: {spark.why}.")
        show_next(output, diagnosis.next)
    if not diagnosis.starts:
        raise typer.Exit(FOUND)


def _show_upgrade(output: Output, config: StoreConfig | None, conf: Path | None, version: str) -> None:
    """`config`: None where there is no store to look at, or its settings are invalid: the file alone is judged."""
    from engine.files.disk import Disk
    from engine.repair.start.upgrade import judge_settings, plan_upgrade

    file = None if conf is None else str(conf)
    if config is None:
        assert file is not None
        upgrade = judge_settings(Disk(), file, version)
    else:
        with output.progress("reading the log") as tick:
            upgrade = plan_upgrade(Disk(), config, version, conf=file, progress=tick)
    if output.json:
        output.document(upgrade.to_json())
    else:
        what = f"the settings in {file}" if config is None else "this store"
        used = f" The store is of {upgrade.release or 'RocketMQ 4.9, as far as it tells'}." if upgrade.root else ""
        output.text(f"RocketMQ {upgrade.to} on {what}.{used}")
        show_findings(output, upgrade.findings, upgrade.next)
        if upgrade.ok:
            output.text("Nothing that was looked at is lost, or prevents its start.")
        if file is None:
            output.text("No settings were judged: name the broker's file with -c.")
        show_next(output, upgrade.next)
    if not upgrade.ok:
        raise typer.Exit(FOUND)


def _replication(config: StoreConfig, output: Output) -> dict[str, Any] | None:
    """What the store's daemon says of its replication; None: no daemon runs, or it does not answer us."""
    from engine.daemon import DaemonConnection

    try:
        live = DaemonConnection(config.store_path_root_dir).ask("GET", "/status")
    except RStoreError as error:  # another user's, or it hangs: the files say enough
        output.warn(f"The daemon did not answer: {error}")
        return None
    return live.get("replication") if isinstance(live, dict) else None


def _settings(settings: Settings) -> StoreConfig | None:
    """None: the broker's file has what no store can have, which is to be reported as a finding. Raises StorageError."""
    quiet, settings.quiet = settings.quiet, True  # all of it is reported below
    try:
        return settings.load()
    except InvalidArgument as error:
        if settings.config is None or error.path != os.fspath(settings.config):
            raise
        return None
    finally:
        settings.quiet = quiet


def _only_conf(output: Output, file: Path, *, unread_store: bool) -> None:
    """`unread_store`: a store was named, too, which can't be read with such settings."""
    from engine.broker_conf.report import Judgement
    from engine.broker_conf.values import shown
    from engine.files.disk import Disk
    from engine.inspect.check.doctor_conf import CONF_CODES, OF_THE_WHOLE_FILE, look_at_conf
    from engine.inspect.finding import Findings
    from rstore_cli.render import printable

    findings = Findings(CONF_CODES)
    report = look_at_conf(Disk(), str(file), findings)
    served = _outlook(file)
    if output.json:
        daemon = None if served is None else served.to_json()
        output.document(
            {"ok": report.starts and not unread_store, "file": str(file), **report.to_json(), "daemon": daemon}
        )
    else:
        output.text(_counts(str(file), report))
        for verdict in report.verdicts:
            line = f"{verdict.line:>4}  {printable(verdict.name) or shown('')}"
            if verdict.judgement is Judgement.IN_FORCE:
                output.text(f"{line} = {shown(verdict.written, 60)}")
            else:
                output.text(f"{line}  [{verdict.judgement.value}]")
                output.text(f"        {verdict.text}")
        show_findings(output, tuple(f for f in findings.result() if f.code in OF_THE_WHOLE_FILE), None)
        _show_outlook(output, served)
        if unread_store:
            output.text("The store was not checked: these sizes are invalid.")
    if unread_store or not report.starts:
        raise typer.Exit(FOUND)


def _outlook(file: Path) -> Outlook | None:
    """What `rstore serve` would let in with this file."""
    from engine.broker.outlook import outlook
    from engine.files.disk import Disk

    return outlook(Disk(), str(file))


def _show_outlook(output: Output, served: Outlook | None) -> None:
    from engine.broker.outlook import lines
    from rstore_cli.render import printable

    if served is not None:
        output.text()
        for line in lines(served):
            output.text(printable(line))


def _counts(file: str, report: Report) -> str:
    from engine.broker_conf.report import Judgement
    from rstore_cli.render import count

    counts = [(len(report.of(judgement)), judgement.value) for judgement in Judgement]
    summary = ", ".join(f"{number} {word}" for number, word in counts if number)
    return f"{file}: {count(len(report.verdicts), 'setting')}{f': {summary}' if summary else ''}"
