"""`rstore status`: what state the store is in, and why, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rstore_cli._common import settings_of
from rstore_cli.render import Output, count, moment, short, size

if TYPE_CHECKING:
    from engine.repair.status import StoreStatus

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 15


@app.command()
def status(context: typer.Context) -> None:
    """What state the store is in, and why: files, offsets, sizes, space by topic, disk.

    Reads only, and runs beside a live broker.
    """
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.repair.status import status as look

    with output.progress("queues", is_bytes=False) as tick:
        found = look(Disk(), config, progress=tick)
    if output.json:
        output.document(found.to_json())
    else:
        _show(output, found)


def _show(output: Output, found: StoreStatus) -> None:
    files, point = found.files, found.files.checkpoint
    output.facts(
        [
            ("store", files.root),
            ("state", f"{found.state.value.upper()}: {found.why}"),
            ("commit log", _log_line(found)),
            ("messages", _times_line(found)),
            ("queues", _queues_line(found)),
            ("index", _index_line(found)),
            (
                "checkpoint",
                f"log {moment(point.physic_msg_timestamp)}, queues {moment(point.logics_msg_timestamp)}, "
                f"index {moment(point.index_msg_timestamp)}"
                + ("" if files.checkpoint_ok else "  (the file is missing or short)"),
            ),
            ("sizes", "\n".join(_sizes(found))),
            (
                "disk",
                f"{found.disk_used:.0%} used, {size(found.disk_usable)} free of {size(found.disk_total)}",
            ),
        ]
    )
    _warnings(output, found)
    if found.topics:
        output.text()
        output.table(
            ["topic", "queues", "messages", "bytes"],
            [
                [short(t.topic), str(t.queues), ("~" if t.estimated else "") + f"{t.messages:,}", size(t.size)]
                for t in found.topics[:_SHOWN]
            ],
            numbers=(1, 2, 3),
        )
        if len(found.topics) > _SHOWN:
            output.text(f"… and {count(len(found.topics) - _SHOWN, 'more topic')} (--json lists all)")


def _log_line(found: StoreStatus) -> str:
    log = found.log
    if not log.files:
        return "no files"
    return f"{count(log.files, 'file')}, {size(log.size)}, offsets {log.min_offset} to {log.max_offset}"


def _times_line(found: StoreStatus) -> str:
    log = found.log
    if not log.min_timestamp and not log.max_timestamp:
        return "none"
    return f"stored from {moment(log.min_timestamp)} to {moment(log.max_timestamp)}"


def _index_line(found: StoreStatus) -> str:
    if not found.files.index:
        return "no files"
    entries = count(found.index_entries, "entry", "entries")
    return f"{count(len(found.files.index), 'file')}, {entries}, up to {moment(found.index_timestamp)}"


def _queues_line(found: StoreStatus) -> str:
    log = found.log
    if not found.files.queues:
        return "none"
    line = f"{count(len(found.files.queues), 'queue')} of {count(len(found.topics), 'topic')}"
    if log.behind:
        return f"{line}; {count(log.behind, 'record')} ({size(log.behind_bytes)}) of the log are not in them yet"
    return f"{line}; every message of the log's end is in them" if log.files else line


def _sizes(found: StoreStatus) -> list[str]:
    inferred = any(not given for _, given in found.sizes.values())
    values = ", ".join(f"{key} {value}" for key, (value, _) in found.sizes.items())
    has_files = bool(found.files.log)
    return [values] + (["(told by the files)" if has_files else "(Apache's defaults)"] if inferred else [])


def _warnings(output: Output, found: StoreStatus) -> None:
    log = found.log
    lines = []
    if log.damage is not None:
        lines.append(f"damage in the log at {log.damage[0]}: {log.damage[1]}. Next: rstore recover --dry-run")
    if log.missing:
        lines.append(f"segments are missing in the log: {size(log.missing)}. Next: rstore recover --dry-run")
    lines += [f"{odd.path}: {odd.why}" for odd in found.files.odd[:_SHOWN]]
    if len(found.files.odd) > _SHOWN:
        lines.append(f"… and {len(found.files.odd) - _SHOWN} more files that don't belong here")
    if found.repairs:
        lines.append(f"what earlier repairs removed is kept ({len(found.repairs)} so far), last: {found.repairs[-1]}")
    if lines:
        output.text()
        for line in lines:
            output.text(f"! {line}")
