"""Rows of a timer log, a timer wheel and what waits in them, as `dump timerlog` and `dump timerwheel` print them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.format import properties
from engine.format.quantities import moment
from engine.inspect.dump.dump import BLANK, DAMAGE
from rstore_cli.log_rows import file_name
from rstore_cli.render import printable, size

if TYPE_CHECKING:
    from engine.inspect.dump.timer_due import DueRow
    from engine.inspect.store.timer_log import TimerRow
    from engine.inspect.store.timer_wheel import SlotRow
    from rstore_cli.render import Output

_TIME = 23
_WIDTHS = {
    **{"dueTime": _TIME, "hour": _TIME, "storeTimestamp": _TIME},
    **{"timerOffset": 12, "physicalOffset": 14, "previous": 12, "first": 12, "last": 12},
}
"""Columns of what usually stands below a head; of others 8."""
_TEXTS = 1 << 10
"""Topics that are kept as JSON."""


class TimerColumns:
    """Rows below their heads, each head printed once; on a terminal that is too narrow one value a line."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._heads: tuple[str, ...] = ()

    def row(self, values: dict[str, Any]) -> None:
        """One row; texts stand to the left."""
        heads = tuple(values)
        widths = [max(len(head), _WIDTHS.get(head, 8)) for head in heads]
        if self._output.width is not None and sum(widths) + 2 * len(widths) > self._output.width:
            self._output.facts([(head, str(value)) for head, value in values.items()])
            self._output.text()
            return
        if heads != self._heads:
            self._heads = heads
            self._output.raw(self._line(heads, widths, heads).rstrip())
        self._output.raw(self._line(heads, widths, values.values()).rstrip())

    @staticmethod
    def _line(heads: tuple[str, ...], widths: list[int], cells: Any) -> str:
        left = ("dueTime", "kind", "topic/queue", "waits", "family", "topic", "word", "uniqKey", "name")
        parts = (
            f"{cell!s:<{width}}" if head in left else f"{cell!s:>{width}}"
            for head, width, cell in zip(heads, widths, cells, strict=True)
        )
        return "  ".join(parts)


def timer_line(row: TimerRow) -> dict[str, Any]:
    """One thing in the timer log, as JSON."""
    line: dict[str, Any] = {"kind": row.kind, "timerOffset": row.offset}
    unit = row.unit
    if unit is None:
        line["length"] = row.length
        return line if row.reason is None else line | {"reason": row.reason, "file": file_name(row.path)}
    return line | {
        "dueTime": unit.due_time,
        "writeTime": unit.write_time,
        "magic": unit.magic,
        "physicalOffset": unit.physical_offset,
        "size": unit.message_size,
        "topicHash": unit.topic_hash,
        "previous": unit.previous,
    }


def show_timer(output: Output, columns: TimerColumns, row: TimerRow) -> None:
    """The same, for people."""
    unit = row.unit
    if row.kind == BLANK:
        output.text(f"blank at {row.offset}, {size(row.length)}: end of the file")
    elif unit is None:
        output.text(f"! damage at {row.offset}, {size(row.length)}, in {file_name(row.path)}: {row.reason}")
    else:
        columns.row(
            {
                "timerOffset": row.offset,
                "dueTime": moment(unit.due_time),
                "magic": unit.magic,
                "physicalOffset": unit.physical_offset,
                "size": unit.message_size,
                "previous": unit.previous,
            }
        )


class DueLines:
    """Messages that wait, as JSON lines: those of `DueRow.to_json`, made of a template."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._texts: dict[str, str] = {}
        names = (
            "kind",
            "dueTime",
            "timerOffset",
            "physicalOffset",
            "size",
            "topic",
            "queueId",
            "deliverTime",
            "uniqKey",
        )
        self._template = "{" + ",".join(f"{output.encoded(name)}:%s" for name in names) + "}\n"

    def line(self, row: DueRow) -> str:
        """One of them, with its end."""
        timed = row.timed
        if timed is None or row.unit_offset is None:
            return self._output.encoded(row.to_json()) + "\n"
        key = timed.named.get(properties.UNIQ_KEY)
        return self._template % (
            self._text(row.kind), row.due_time, row.unit_offset, row.physical_offset, row.size,
            self._text(timed.topic), timed.queue_id, timed.deliver_time,
            f'"{key}"' if key is not None and key.isascii() and key.isalnum() else self._output.encoded(key),
        )  # fmt: skip

    def _text(self, text: str) -> str:
        encoded = self._texts.get(text)
        if encoded is None:
            if len(self._texts) > _TEXTS:
                self._texts.clear()
            encoded = self._texts[text] = self._output.encoded(text)
        return encoded


def show_due(output: Output, columns: TimerColumns, row: DueRow) -> None:
    """A message that waits, for people."""
    due = "-" if row.due_time is None else moment(row.due_time)
    if row.timed is None:
        unit = "" if row.unit_offset is None else f", unit at {row.unit_offset}"
        place = "" if row.physical_offset is None else f", physical offset {row.physical_offset}"
        output.text(f"! damage: due {due}{unit}{place}: {printable(row.reason or '')}")
        return
    columns.row(
        {
            "dueTime": due,
            "kind": row.kind,
            "timerOffset": "-" if row.unit_offset is None else row.unit_offset,
            "physicalOffset": row.physical_offset,
            "size": row.size,
            "topic/queue": f"{printable(row.timed.topic)}/{printable(row.timed.queue)}",
        }
    )


def slot_line(row: SlotRow) -> dict[str, Any]:
    """A slot, as JSON."""
    if row.reason is not None:
        kind = {"kind": DAMAGE, "slot": row.number, "offset": row.offset}
        return kind | {"reason": row.reason, "file": file_name(row.path)}
    return {
        "kind": "slot",
        "slot": row.number,
        "dueTime": row.due_time,
        "first": row.slot.first,
        "last": row.slot.last,
        "count": row.slot.count,
        "waits": row.waits,
    }


def show_slot(output: Output, columns: TimerColumns, row: SlotRow) -> None:
    """The same, for people."""
    if row.reason is not None:
        output.text(f"! damage in slot {row.number}, at {row.offset} of {file_name(row.path)}: {row.reason}")
        return
    values = slot_line(row)
    del values["kind"]
    waits = {True: "yes", False: "no", None: "unknown"}[row.waits]
    columns.row(values | {"dueTime": moment(row.due_time), "waits": waits})
