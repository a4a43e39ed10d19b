"""Tables as lines of text: side by side where they fit, with cells of several lines where they nearly do, and otherwise
row by row, a value a line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rstore_cli.screen import cells, holds_command, pad, wrap

GAP = 2
_TALL = 5
"""Lines of a cell, at most, in a table that is still read as one."""
_WORDS = (20, 16, 10)
"""Columns below which no column of text is made narrower because of its long names: the first that fits."""

Row = Sequence[str]


def table_lines(
    heads: Row, rows: Sequence[Row], numbers: Collection[int], room: int | None, whole: Collection[int] = ()
) -> tuple[int, list[str]]:
    """How many of the lines are the heads', and the lines.

    Args:
        heads: a name a column; they may be broken.
        rows: as many cells each.
        numbers: columns that stand to the right and are never broken.
        room: columns of the terminal; None: as wide as it gets.
        whole: columns of text that are never broken either: what is copied to the next command.
    """
    widths = _natural(heads, rows)
    if room is not None and _total(widths) > room:
        narrow = _fitted(heads, rows, {*numbers, *whole}, room)
        if narrow is None:
            return 0, _stacked(heads, rows, room)
        widths = narrow
    first = _drawn(heads, widths, numbers, bottom=True)
    return len(first), [*first, *(line for row in rows for line in _drawn(row, widths, numbers))]


def left(heads: Row, rows: Sequence[Row], room: int) -> int:
    """Columns that one more column may take beside these, whose cells are not broken."""
    return room - _total([max(_word(head), _widest(rows, i)) for i, head in enumerate(heads)]) - GAP


def _natural(heads: Row, rows: Sequence[Row]) -> list[int]:
    return [max(cells(head), _widest(rows, i)) for i, head in enumerate(heads)]


def _widest(rows: Sequence[Row], column: int) -> int:
    return max((cells(row[column]) for row in rows), default=0)


def _word(text: str) -> int:
    return max(map(cells, text.split(" ")))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _fitted(heads: Row, rows: Sequence[Row], whole: Collection[int], room: int) -> list[int] | None:
    """Widths that fit; None where the table would be no table any more."""
    widths = [max(_word(head), _widest(rows, i)) for i, head in enumerate(heads)]
    words = [max((_word(row[i]) for row in rows), default=0) for i in range(len(heads))]
    for most in _WORDS:
        least = [width if i in whole else max(_word(heads[i]), min(most, words[i])) for i, width in enumerate(widths)]
        if _total(least) <= room:
            break
    else:
        return None
    while (more := _total(widths) - room) > 0:
        wide = [i for i in range(len(widths)) if widths[i] > least[i]]
        widest = max(wide, key=lambda i: widths[i])
        second = max((widths[i] for i in wide if widths[i] < widths[widest]), default=0)
        widths[widest] = max(least[widest], widths[widest] - more, second - 1 if second else 0)
    tall = max((len(wrap(cell, width)) for row in rows for cell, width in zip(row, widths, strict=True)), default=1)
    return widths if tall <= _TALL else None


def _drawn(row: Row, widths: Sequence[int], numbers: Collection[int], *, bottom: bool = False) -> list[str]:
    parts = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, parts))
    blank = [[""] * (height - len(part)) for part in parts]
    columns = [more + part if bottom else part + more for part, more in zip(parts, blank, strict=True)]
    return [
        (" " * GAP).join(pad(columns[i][y], width, right=i in numbers) for i, width in enumerate(widths)).rstrip()
        for y in range(height)
    ]


def _stacked(heads: Row, rows: Sequence[Row], room: int) -> list[str]:
    """Row by row, with an empty line between; empty cells are left out."""
    names = max(map(cells, heads))
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for head, cell in zip(heads, row, strict=True):
            if cell:
                lines += facts_lines(head, cell, names, room)
    return lines


def facts_lines(name: str, value: str, names: int, room: int | None) -> list[str]:
    """A name, `names` columns wide, and its value; a value of several lines stays one below the other.

    Words stay whole, and so does a line with a command in it: what is broken can't be copied to a shell.
    """
    lines: list[str] = []
    for line in value.split("\n"):
        keep = room is None or holds_command(line) or room - names - GAP < _WORDS[-1]
        lines += [line] if keep or room is None else wrap(line, room - names - GAP, words=False)
    first, *more = lines
    return [
        f"{pad(name, names)}{' ' * GAP}{first}".rstrip(),
        *(f"{' ' * (names + GAP)}{line}".rstrip() for line in more),
    ]
