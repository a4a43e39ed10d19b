"""Pictures of a job's answer: PNG or SVG by matplotlib, or a page that needs nothing else (tables and inline SVG).

Which pictures there are follows from the tables of an answer; the rest only draws them. matplotlib is imported only
here and in the bench, and only when something is drawn.
"""

from __future__ import annotations

import html
import importlib
import io
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, StorageError, from_os_error
from engine.format.quantities import time_text
from engine.pipeline.bins import bin_ms, words

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from engine.pipeline.result import JobResult, Table

_COLOURS = ("#2a6f97", "#e09f3e", "#9e2a2b")
_MOST_BARS = 24
_MOST_STEPS = 400
_PIECES = 120
_PICTURES = (".png", ".svg")
_PAGE = ".html"
_WIDTH = 9.0


@dataclass(frozen=True, slots=True)
class Series:
    """Values under a name, one for each label of its chart."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture.

    Attributes:
        title: above it.
        axis: what the values are.
        labels: one for each value.
        series: stacked, where there are several.
        across: whether the bars lie, a label a line (names); else they stand side by side (times, places).
    """

    title: str
    axis: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    across: bool = True


def draw(result: JobResult, path: str | os.PathLike[str]) -> None:
    """Draw an answer into a new file, or over an old one: `.png`, `.svg` or `.html`.

    Raises:
        InvalidArgument: another kind of file, or an answer without a picture (a page has its tables all the same).
        StorageError: matplotlib is missing, or the system refuses.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in (*_PICTURES, _PAGE):
        raise InvalidArgument(f"unknown kind of chart: {target.name}", hint="use FILE.png, FILE.svg or FILE.html")
    drawn = charts(result)
    if kind == _PAGE:
        data = page(result, [_picture([chart], "svg").decode() for chart in drawn]).encode()
    elif drawn:
        data = _picture(drawn, kind[1:])
    else:
        raise InvalidArgument(f"{result.job} has no data for a chart", hint="FILE.html has its tables")
    try:
        target.write_bytes(data)
    except OSError as error:
        raise from_os_error(error, "writing the chart", target) from None


def charts(result: JobResult) -> list[Chart]:
    """The pictures of an answer; those that would be empty are left out."""
    makers: dict[str, Sequence[Callable[[JobResult], Chart | None]]] = {
        "stats": (_times, _topics, _sizes),
        "lag": (_groups,),
        "diff": (_divergence,),
        "verify": (_damage,),
    }
    made = (make(result) for make in makers.get(result.job, ()))
    return [chart for chart in made if chart is not None and any(any(one.values) for one in chart.series)]


# --- what there is to see --------------------------------------------------------------------------------------------


def _times(result: JobResult) -> Chart | None:
    """Every bar between the first and the last: of less than a day finer than hours, of a long time several hours."""
    width = bin_ms(result.facts.get("first_store_timestamp"), result.facts.get("last_store_timestamp"))
    if width is None:
        return _hours(result)
    known = dict(_columns(result.table("times"), "time_timestamp", "messages"))
    stamps = range(min(known), max(known) + 1, width)
    values = tuple(float(known.get(stamp, 0)) for stamp in stamps)
    labels = tuple(_time_name(stamp, width) for stamp in stamps)
    title = f"Messages by {words(width)}, from {_time_name(stamps[0], 1)} UTC"
    return Chart(title, "messages", labels, (Series("messages", values),), False)


def _hours(result: JobResult) -> Chart | None:
    """Every hour between the first and the last; of a long time, several hours a bar."""
    rows = _columns(result.table("hours"), "hour_timestamp", "hour", "messages")
    known = {int(stamp): (hour, count) for stamp, hour, count in rows if stamp is not None}
    if not known:
        return None
    hour = 3_600_000
    first, last = min(known), max(known)
    steps = (last - first) // hour + 1
    width = -(-steps // _MOST_STEPS)
    sums: Counter[int] = Counter()
    for stamp, (_, count) in known.items():
        sums[(stamp - first) // hour // width] += count
    names = [_hour_name(first + i * width * hour) for i in range(-(-steps // width))]
    title = "Messages by hour" if width == 1 else f"Messages by {width} hours"
    return Chart(
        title, "messages", tuple(names), (Series("messages", tuple(map(float, _filled(sums, len(names))))),), False
    )


def _topics(result: JobResult) -> Chart:
    rows = sorted(_columns(result.table("topics"), "topic", "bytes"), key=lambda row: -row[1])
    return _bars("Bytes by topic", "MiB", [(str(topic), (size / (1 << 20),)) for topic, size in rows], ("bytes",))


def _sizes(result: JobResult) -> Chart | None:
    """Every power of two between the smallest and the largest, those without a record, too."""
    known = dict(_columns(result.table("size_histogram"), "from_bytes", "messages"))
    if not known:
        return None
    lows = [1 << bits for bits in range(min(known).bit_length() - 1, max(known).bit_length())]
    labels = tuple(f"{low}" for low in lows)
    values = tuple(float(known.get(low, 0)) for low in lows)
    return Chart("Records by size (bytes, from)", "records", labels, (Series("records", values),), False)


def _groups(result: JobResult) -> Chart:
    rows = _columns(result.table("groups"), "group", "topic", "messages")
    bars = [(f"{group}: {topic}", (float(messages),)) for group, topic, messages in rows if messages]
    return _bars("Unread messages by group and topic", "messages", bars, ("unread",))


def _divergence(result: JobResult) -> Chart:
    kinds = ("missing_in_a", "missing_in_b", "differing")
    rows = _columns(result.table("queues"), "topic", "queue_id", *kinds)
    bars = [(f"{topic}/{queue}", tuple(map(float, counts))) for topic, queue, *counts in rows]
    bars.sort(key=lambda bar: -sum(bar[1]))
    a, b = result.facts["a"], result.facts["b"]
    names = (f"missing in {a}", f"missing in {b}", "differ")
    return _bars(f"Divergence of {a} and {b} by queue", "messages", [bar for bar in bars if any(bar[1])], names)


def _damage(result: JobResult) -> Chart | None:
    """Damaged bytes along the logs, each cut into pieces of one length."""
    stores = {store: (start, end) for store, start, end in _columns(result.table("stores"), "store", "start", "end")}
    bad = _columns(result.table("damage"), "store", "physical_offset", "length")
    if not bad:
        return None
    low = min(*(at for _, at, _ in bad), *(start for start, _ in stores.values()))
    high = max(*(at + max(1, length) for _, at, length in bad), *(end for _, end in stores.values()))
    step = max(1, -(-(high - low) // _PIECES))
    pieces = -(-(high - low) // step)
    series = []
    for store in dict.fromkeys(store for store, _, _ in bad):
        sums = [0.0] * pieces
        for name, at, length in bad:
            if name == store:
                _spread(sums, at - low, max(1, length), step)
        series.append(Series(str(store), tuple(sums)))
    labels = tuple(f"{(low + i * step) / (1 << 20):.1f}" for i in range(pieces))
    return Chart("Damage along the log (MiB from its start)", "damaged bytes", labels, tuple(series), False)


def _spread(sums: list[float], at: int, length: int, step: int) -> None:
    end = at + length
    while at < end:
        piece = at // step
        until = min(end, (piece + 1) * step)
        sums[piece] += until - at
        at = until


def _bars(title: str, axis: str, bars: Sequence[tuple[str, tuple[float, ...]]], names: tuple[str, ...]) -> Chart:
    """Bars, the largest first; after `_MOST_BARS` the rest as one."""
    shown = list(bars[:_MOST_BARS])
    rest = bars[_MOST_BARS:]
    if rest:
        sums = tuple(sum(values[i] for _, values in rest) for i in range(len(names)))
        shown = [*shown, (f"{len(rest)} more", sums)]
    series = tuple(Series(name, tuple(values[i] for _, values in shown)) for i, name in enumerate(names))
    return Chart(title, axis, tuple(label for label, _ in shown), series)


def _columns(table: Table, *names: str) -> list[tuple[Any, ...]]:
    places = [table.columns.index(name) for name in names]
    return [tuple(row[i] for i in places) for row in table.rows]


def _filled(sums: Counter[int], count: int) -> list[int]:
    return [sums[i] for i in range(count)]


def _time_name(millis: int, width: int) -> str:
    """The time of a bar; with its day and its milliseconds where bars are as fine as that."""
    form = "%Y-%m-%d %H:%M:%S" if width == 1 else "%H:%M" if width >= 60_000 else "%H:%M:%S"
    text = time_text(millis, form, utc=True)
    if text is None:
        return str(millis)
    return text if width >= 60_000 else f"{text}.{millis % 1000:03d}"


def _hour_name(millis: int) -> str:
    return time_text(millis, "%Y-%m-%d %H:00", utc=True) or str(millis)


# --- how it is drawn -------------------------------------------------------------------------------------------------


def _picture(drawn: Sequence[Chart], kind: str) -> bytes:
    """All charts, one below the other."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise StorageError("matplotlib is not installed: no chart", hint="pip install 'rstore[bench]'") from None
    heights = [1.2 + 0.26 * len(chart.labels) if chart.across else 3.2 for chart in drawn]
    out = io.BytesIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "rstore", "font.size": 9, "text.parse_math": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a font without somebody's letters: boxes stand for them
        figure = figures.Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        places = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, chart in zip(places, drawn, strict=True):
            _draw(axes, chart)
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(out, format=kind, metadata=metadata, dpi=120)
    return out.getvalue()


def _draw(axes: Any, chart: Chart) -> None:
    places = range(len(chart.labels))
    before = [0.0] * len(places)
    for series, colour in zip(chart.series, _cycle(len(chart.series)), strict=True):
        if chart.across:
            axes.barh(places, series.values, left=before, color=colour, height=0.7, label=_printable(series.name))
        else:
            axes.bar(places, series.values, bottom=before, color=colour, width=0.9, label=_printable(series.name))
        before = [a + b for a, b in zip(before, series.values, strict=True)]
    axes.set_title(chart.title, loc="left")
    if chart.across:
        axes.set_yticks(places, [_printable(label)[:60] for label in chart.labels])
        axes.invert_yaxis()
        axes.set_xlabel(chart.axis)
    else:
        every = max(1, -(-len(chart.labels) // 12))
        axes.set_xticks(list(places)[::every], list(chart.labels)[::every], rotation=30, ha="right")
        axes.set_ylabel(chart.axis)
    if len(chart.series) > 1:
        axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _cycle(count: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


# --- the page --------------------------------------------------------------------------------------------------------

_STYLE = """body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 2em}th,td{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left;
vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}"""


def page(result: JobResult, pictures: Sequence[str]) -> str:
    """The answer as one HTML document: facts, SVG pictures, notes, tables. No scripts, nothing from elsewhere."""
    title = f"rstore pipeline {result.job}"
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>",
        _rows((), [(name.replace("_", " "), value) for name, value in result.facts.items()]),
        *(svg[svg.index("<svg") :] for svg in pictures),
        *(f"<p>{html.escape(note)}</p>" for note in result.notes),
    ]
    for table in result.tables:
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        parts.append(_rows(table.columns, table.rows) if table.rows else "<p>none</p>")
    return "\n".join([*parts, "</body></html>\n"])


def _rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}\n{lines}\n</table>"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f'<td class="n">{value:,.1f}</td>'
    return f"<td>{html.escape(_printable(str(value)))}</td>"


def _printable(text: str) -> str:
    """Names come from logs: no XML takes all that they may hold."""
    return "".join(c if c.isprintable() else "·" for c in text)
