"""What `rstore status` says to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.format.quantities import moment
from engine.inspect.next_step import command_line
from engine.inspect.store.change_gate import ChangeKind, hindering
from engine.inspect.store.newer import ROCKSDB_CONFIG, ROCKSDB_QUEUES
from rstore_cli.render import Output, count, printable, short, size

if TYPE_CHECKING:
    from engine.inspect.status.forecast import FileSystem, Forecast, Threshold
    from engine.inspect.status.log_state import MessagePlace
    from engine.inspect.status.status import StoreStatus
    from engine.inspect.store.newer import Newer

SHOWN = 15
"""Rows of a table, warnings of a kind."""
_FAR_HOURS = 24 * 365 * 10
_STYLES = {"clean": "green", "running": "green", "empty": "green", "damaged": "red"}


def show(output: Output, status: StoreStatus, hours: int) -> None:
    """The whole screen; of the hours, the last `hours`."""
    files, point = status.files, status.files.checkpoint
    output.facts(
        [
            ("store", files.root),
            ("state", f"{status.state.value.upper()}: {status.why}"),
            *([("kind", f"{files.newer.kind}: {files.newer}; {_may_do(files.newer)}")] if files.newer else []),
            *([("release", str(status.release))] if status.release else []),
            *([] if status.next is None else [("next", str(status.next))]),
            ("commit log", _log_line(status)),
            ("messages", "\n".join(_messages(status))),
            ("queues", _queues_line(status)),
            *([("compacted", _compacted_line(status))] if status.compacted else []),
            ("index", _index_line(status)),
            (
                "checkpoint",
                f"log {moment(point.physic_msg_timestamp)}, queues {moment(point.logics_msg_timestamp)}, "
                f"index {moment(point.index_msg_timestamp)}"
                + ("" if files.checkpoint_ok else " (file missing or short)"),
            ),
            ("sizes", "\n".join(_sizes(status))),
            ("disk", "\n".join(_disk(status.forecast))),
            ("fills", "\n".join(_fills(status.forecast))),
            ("retention", _retention(status.forecast)),
        ],
        styles={"state": _STYLES.get(status.state.value, "yellow")},
    )
    _warnings(output, status)
    _topics(output, status)
    _hours(output, status, hours)
    _unread(output, status)


def _may_do(newer: Newer) -> str:
    return "read here, and never changed" if hindering(newer, ChangeKind.LOG) else "read and recovered here"


def show_daemon(output: Output, live: dict[str, Any]) -> None:
    """What its daemon says of itself."""
    connections = live["connections"]
    flow = live["flowControl"]
    refused = ", ".join(f"{number} {reason}" for reason, number in flow["refused"].items())
    health = "healthy" if live["health"]["healthy"] else "; ".join(one["message"] for one in live["health"]["reasons"])
    output.facts(
        [
            ("daemon", f"process {live['pid']} at {live['address']}, up for {duration(live['uptime'])}"),
            ("health", health),
            ("clients", ", ".join(f"{number} at {name}" for name, number in connections.items())),
            ("held pulls", str(live["heldPulls"])),
            ("puts/s", _rates(live["rates"]["put"])),
            ("gets/s", _rates(live["rates"]["get"])),
            ("pending", f"{size(live['flushLag'])} to flush, {size(live['dispatchLag'])} to dispatch"),
            ("refused", refused or "nothing"),
            *replication(live["replication"]),
            *_archive(live.get("archive")),
        ]
    )
    output.text()


def replication(live: dict[str, Any]) -> list[tuple[str, str]]:
    """A master's slaves, or how far a slave is; nothing for a master that has none."""
    copied = live.get("copied")
    if copied is not None:
        lag = "" if copied["lag"] is None else f", lag {size(copied['lag'])}"
        lines = [("slave of", f"{copied['master'] or 'no master yet'}: {copied['state']}{lag}")]
        return lines + [("trouble", printable(text)) for text in [copied["error"]] if text]
    return [
        ("slave", f"{one['address']}: " + ("silent" if one["acked"] is None else f"lag {size(one['lag'])}"))
        for one in live["slaves"]
    ]


def _archive(live: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What the daemon has archived, and what waits; nothing without serve --archive."""
    if live is None:
        return []
    waiting = f", {live['waiting']} waiting" if live["waiting"] else ""
    lines = [("archive", f"{count(live['archived'], 'segment')} archived{waiting}")]
    return lines + [("trouble", printable(text)) for text in (live["waitsFor"], live["error"]) if text]


def _rates(rates: dict[str, float | None]) -> str:
    known = [f"{rate:.1f} in {time}" for time, rate in rates.items() if rate is not None]
    return ", ".join(known) or "unknown yet"


# --- the log and its times -------------------------------------------------------------------------------------------


def _log_line(status: StoreStatus) -> str:
    log = status.log
    if not log.files:
        return "no files"
    return f"{count(log.files, 'file')}, {size(log.size)}, offsets {log.min_offset} to {log.max_offset}"


def _messages(status: StoreStatus) -> list[str]:
    log = status.log
    lines = [
        f"{what} {moment(place.timestamp)}, {_ago(status.now - place.timestamp)} ({_where(place)})"
        for what, place in (("oldest", log.oldest), ("newest", log.newest))
        if place is not None
    ]
    return lines or ["none"]


def _where(place: MessagePlace) -> str:
    return f"{short(place.topic)}/{place.queue_id} #{place.queue_offset}, at {place.offset}"


def _ago(millis: int) -> str:
    return f"{duration(millis)} ago" if millis >= 0 else f"{duration(-millis)} ahead of this machine's clock"


def _compacted_line(status: StoreStatus) -> str:
    queues = status.compacted
    topics = len({queue.queue.topic for queue in queues})
    left = sum(queue.compacted_to is None for queue in queues)
    line = (
        f"{count(len(queues), 'queue')} of {count(topics, 'topic')}, {size(sum(one.size for one in queues))} of files"
    )
    return f"{line}; {left} of them never compacted so far" if left else line


def _index_line(status: StoreStatus) -> str:
    if not status.files.index:
        return "no files"
    entries = count(status.index_entries, "entry", "entries")
    return f"{count(len(status.files.index), 'file')}, {entries}, up to {moment(status.index_timestamp)}"


def _queues_line(status: StoreStatus) -> str:
    log = status.log
    unread = ", ".join(status.files.newer.not_counted)
    if not status.queues:
        return f"none read ({unread} is not read)" if unread else "none"
    about = "~" if status.estimated else ""
    line = f"{count(status.queues, 'queue')} of {count(len(status.topics), 'topic')}, "
    line += about + count(status.messages, "message", zero=True)
    if unread:
        return f"{line}; {unread} is not read"
    if log.not_dispatched:
        waiting = f"{count(log.not_dispatched, 'record')} ({size(log.not_dispatched_bytes)})"
        return f"{line}; {waiting} of the log not dispatched yet"
    return f"{line}; queues are up to date with the log" if log.files else line


def _sizes(status: StoreStatus) -> list[str]:
    inferred = any(not given for _, given in status.sizes.values())
    values = ", ".join(f"{key} {value}" for key, (value, _) in status.sizes.items())
    if not inferred:
        return [values]
    files = status.files
    there = (bool(files.log), bool(files.queues), bool(files.index), bool(files.index))
    if not any(there):
        return [values, "(Apache's defaults)"]
    given = [was_given for _, was_given in status.sizes.values()]
    of_default = [
        key for key, from_files, known in zip(status.sizes, there, given, strict=True) if not from_files and not known
    ]
    also = f"; {', '.join(of_default)}: Apache's default, as no file shows it" if of_default else ""
    return [values, f"(inferred from the files{also})"]


# --- the disk --------------------------------------------------------------------------------------------------------


def _named(system: FileSystem, forecast: Forecast) -> str:
    return f"{', '.join(system.paths)}: " if len(forecast.file_systems) > 1 else ""


def _percent(ratio: float) -> str:
    return f"{round(max(0.0, ratio) * 100)} %"


def _disk(forecast: Forecast) -> list[str]:
    return [
        f"{_named(s, forecast)}{_percent(s.used_ratio)} used, {size(s.usage.usable)} free of {size(s.usage.total)}"
        for s in forecast.file_systems
    ]


def _fills(forecast: Forecast) -> list[str]:
    rate = forecast.rate
    if rate is None:
        lines = ["no messages, so no rate"]
    else:
        until = "now" if rate.live else f"its newest message, {moment(rate.end)}"
        over = f"over the {duration(rate.end - rate.start)} up to {until}"
        if rate.enough:
            lines = [f"{size(rate.per_hour)} of log an hour, {over}"]
        else:
            lines = [f"{size(rate.size)} of log {over}: too short for a forecast (one hour at least)"]
    for system in forecast.file_systems:
        named = _named(system, forecast)
        if system.per_hour:
            lines.append(f"{named}with queues and index {size(system.per_hour)} an hour")
        elif named:
            lines.append(named.removesuffix(": "))
        known = [t for t in system.thresholds if t.state != "unknown"]
        lines += [f"{_when(t, live=rate is not None and rate.live)}: {t.does}" for t in known]
    return lines


def _when(threshold: Threshold, *, live: bool) -> str:
    """When a file system reaches a ratio, retention left aside."""
    reached = f"{threshold.percent} %"
    if threshold.hours is None:
        return f"{reached} never at this rate"
    if threshold.state == "already":
        return f"{reached} already"
    if threshold.hours > _FAR_HOURS:
        return f"{reached} in more than ten years"
    after = duration(round(threshold.hours * 3_600_000))
    at = f" ({moment(threshold.at)[:16]})" if threshold.at is not None else ""
    kept = ", if nothing is deleted" if threshold.retention_holds else ""
    return f"{reached} in {after}{'' if live else ' at this rate'}{at}{kept}"


def _retention(forecast: Forecast) -> str:
    kept = forecast.retention
    default = "" if kept.given else ", the default"
    rule = f"segments are deleted {count(kept.reserved, 'hour')} after their last message (fileReservedTime{default})"
    if kept.wait is None:
        what = kept.problem if kept.stops else f"{kept.problem}: only when the disk is full"
        return f"{rule}, but {what}"
    if kept.problem is not None:
        rule += f", but {kept.problem}"
    else:
        rule += f", at {kept.delete_when} o'clock (deleteWhen)"
    if kept.steady is None:
        return rule
    systems = [(_named(s, forecast), s.steady_ratio) for s in forecast.file_systems if s.steady_ratio is not None]
    if any(ratio > 1 for _, ratio in systems):
        small = ", ".join(name.removesuffix(": ") or "the disk" for name, ratio in systems if ratio > 1)
        return f"{rule}.\nAt this rate {size(kept.steady)} of log arrive before that: more than {small} can hold"
    above = [t for s in forecast.file_systems for t in s.thresholds if not t.retention_holds]
    levels = ", ".join(f"{name}{_percent(ratio)}" for name, ratio in systems)
    text = f"{rule}.\nAt this rate the log levels off at {size(kept.steady)}, the disk at {levels}"
    return f"{text}: that is above {min(t.percent for t in above)} %" if above else text


# --- tables ----------------------------------------------------------------------------------------------------------


def _topics(output: Output, status: StoreStatus) -> None:
    if not status.topics:
        return
    output.text()
    output.table(
        ["topic", "queues", "messages", "bytes"],
        [
            [short(t.topic), str(t.queues), f"{t.messages:,}", ("~" if t.estimated else "") + size(t.size)]
            for t in status.topics[:SHOWN]
        ],
        numbers=(1, 2, 3),
    )
    _more(output, len(status.topics), "topic")
    if status.estimated:
        output.text("~ estimated from samples of long queues; --full reads every unit")


def _hours(output: Output, status: StoreStatus, hours: int) -> None:
    """The log by hour of store time (local time), with bars."""
    older, listed = status.hours[0], status.hours[1:]
    if not listed:
        return
    shown = listed[-hours:]
    newer = status.files.newer
    about = "~" if status.estimated else ""
    most = max(hour.size for hour in shown) or 1
    rows = [[moment(h.start)[:16], f"{about}{h.messages:,}", size(h.size)] for h in shown]
    before = [older, *listed[:-hours]]
    if any(h.size for h in before):
        messages, total = sum(h.messages for h in before), sum(h.size for h in before)
        rows.insert(0, ["before", f"{about}{messages:,}", size(total)])
    heads = ["stored in the hour from", "messages", "log"]
    numbers = [1, 2]
    if newer.no_queue_files:  # they tell how many
        heads, numbers, rows = [heads[0], heads[2]], [1], [[row[0], row[2]] for row in rows]
    if room := output.room_for_bars(heads, rows):
        bars = [output.bar(hour.size / most, room) for hour in shown]
        rows = [[*row, bar] for row, bar in zip(rows, [""] * (len(rows) - len(bars)) + bars, strict=True)]
        heads.append("")
    output.text()
    output.table(heads, rows, numbers=numbers)
    if newer.no_queue_files:
        counts = command_line(status.files.config, "verify-crc")
        text = f"messages are counted by queues, and {ROCKSDB_QUEUES} are not read: {counts} counts the log's records"
        output.text(text)


def _unread(output: Output, status: StoreStatus) -> None:
    unread = status.unread
    lagging = [g for g in unread.by_messages() if g.messages or g.unknown]
    if status.files.newer.no_config_files:
        output.text()
        where = status.files.newer.where(ROCKSDB_CONFIG)
        output.text(f"{ROCKSDB_CONFIG} ({where}) are not read: lag unknown")
        return
    if status.files.newer.no_queue_files:
        output.text()
        output.text(f"{ROCKSDB_QUEUES} are not read: lag unknown")
        return
    if not status.queues:
        return
    output.text()
    if unread.source is None and not any(g.messages for g in lagging):
        output.text(f"lag unknown: {unread.name} missing or unreadable")
        return
    if lagging:
        output.table(
            ["group", "topic", "lag", "bytes", "oldest", ""],
            [
                [
                    short(g.group, 32),
                    short(g.topic, 32),
                    f"{g.messages:,}",
                    ("~" if g.estimated else "") + size(g.size),
                    duration(status.now - g.oldest_timestamp) if g.oldest_timestamp else "-",
                    f"no offset for {g.unknown:,} more" if g.unknown else "",
                ]
                for g in lagging[:SHOWN]
            ],
            numbers=(2, 3, 4),
        )
        _more(output, len(lagging), "group")
    done = len(unread.groups) - len(lagging)
    lines = [] if unread.source is None else [f"offsets of config/{unread.source}, written {moment(unread.written)}"]
    if done:
        lines.append(f"{count(done, 'more group/topic pair')} {'has' if done == 1 else 'have'} no backlog")
    if unread.without:
        named = ", ".join(short(g, 32) for g in unread.without[:3]) + (", …" if len(unread.without) > 3 else "")
        lines.append(f"groups without offsets (new, or broadcasting: the clients keep them): {named}")
    for line in lines:
        output.text(line)


def _more(output: Output, number: int, what: str) -> None:
    if number > SHOWN:
        output.text(f"… and {count(number - SHOWN, f'more {what}')} (--json lists all)")


def _warnings(output: Output, status: StoreStatus) -> None:
    lines = []
    for finding in status.findings:
        hint = "" if finding.hint in ("", str(status.next)) else f". {finding.hint}"
        lines.append(f"{finding.where}: {finding.message}{hint}")
    if status.repairs:
        lines.append(f"{count(len(status.repairs), 'earlier repair')} in salvage/, last: {status.repairs[-1]}")
    if lines:
        output.text()
        for line in lines:
            output.text(f"! {line}", style="yellow")


def duration(millis: int) -> str:
    """A length of time in its two largest units: 3 d 4 h; 12 min 3 s; 0.8 s."""
    if millis < 0:
        return f"-{duration(-millis)}"
    seconds = millis // 1000
    if seconds < 60:
        return f"{millis / 1000:.1f} s"
    for name, length, small, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            whole, rest = divmod(seconds, length)
            return f"{whole:,} {name} {rest // part} {small}" if rest // part else f"{whole:,} {name}"
    raise AssertionError(millis)
