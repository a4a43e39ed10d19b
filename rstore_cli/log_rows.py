"""One thing in the log, as `dump commitlog` prints it: a line of JSON, or a few lines of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rstore_cli.messages import to_text
from rstore_cli.render import size

if TYPE_CHECKING:
    from engine.inspect.dump.dump import LogRow


def row_line(row: LogRow, encode: Callable[[Any], str]) -> str:
    """A blank or damage as a line of JSON, with its end."""
    line: dict[str, Any] = {"kind": row.kind, "physicalOffset": row.offset, "length": row.length}
    if row.reason is not None:
        line |= {"reason": row.reason, "file": file_name(row.path)}
    return encode(line) + "\n"


def row_text(row: LogRow, *, redact: bool) -> str:
    """The same, or a message, as lines for people, with their ends."""
    if row.message is not None:
        lines = to_text(row.message, redact=redact)
        if row.message.physical_offset != row.offset:
            lines.append(
                f"  ! displaced: it is at {row.offset}, but its physicalOffset is {row.message.physical_offset}"
            )
    elif row.reason is not None:
        lines = [f"! damage at {row.offset}, {size(row.length)}, in {file_name(row.path)}: {row.reason}"]
    else:
        lines = [f"blank at {row.offset}, {size(row.length)}: end of the segment"]
    return "".join(line + "\n" for line in lines)


def file_name(path: str | None) -> str:
    """The last part of a path."""
    return "" if path is None else path.rpartition("/")[2]
