"""Tables as lines of text: side by side where they fit, with names shortened and sentences of several lines where they
nearly do, and otherwise row by row, a value a line. Where lines are counted (`rstore top`): one line a row, always."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

from rstore_cli.screen import cells, is_copied, pad, shorten, words, wrap

GAP = 2
_TALL = 5
"""Lines of a cell, at most, in a table that is still read as one."""
_WORDS = (20, 16, 10)
"""Columns below which no name is shortened: the first that fits."""
_SHORTEST = 8
"""Columns of a name where there is one line a row, whatever the screen."""

Row = Sequence[str]


def table_lines(
    heads: Row, rows: Sequence[Row], numbers: Collection[int], room: int | None, whole: Collection[int] = ()
) -> tuple[int, list[str]]:
    """How many of the lines are the heads', and the lines.

    Args:
        heads: a name a column; they may be broken.
        rows: as many cells each.
        numbers: columns that stand to the right, and are neither broken nor shortened.
        room: columns of the terminal; None: as wide as it gets.
        whole: columns of text that are not either: what is copied to the next command.
    """
    widths = _natural(heads, rows)
    if room is not None and _total(widths) > room:
        narrow = _fitted(heads, rows, {*numbers, *whole}, room)
        if narrow is None:
            return 0, _stacked(heads, rows, {*numbers, *whole}, room)
        widths = narrow
    first = _drawn(heads, widths, numbers, bottom=True)
    return len(first), [*first, *(line for row in rows for line in _drawn(row, widths, numbers))]


def one_line_each(
    heads: Row, rows: Sequence[Row], numbers: Collection[int], room: int, spare: Collection[int] = ()
) -> list[str]:
    """One line for the heads and one for each row.

    Args:
        heads, rows, numbers, room: as for `table_lines`.
        spare: columns that are left out where names would be shortened to less than 16 columns beside them.
    """
    widths = _natural(heads, rows)
    least = [width if i in numbers else min(width, _WORDS[1]) for i, width in enumerate(widths)]
    kept = [i for i in range(len(heads)) if _total(least) <= room or i not in spare]
    least = [widths[i] if i in numbers else min(widths[i], _SHORTEST) for i in kept]
    fitted = _narrowed([widths[i] for i in kept], least, room) or least
    right = [at for at, i in enumerate(kept) if i in numbers]
    return [
        _line([shorten(row[i], width) for i, width in zip(kept, fitted, strict=True)], fitted, right)
        for row in (heads, *rows)
    ]


def left(heads: Row, rows: Sequence[Row], room: int) -> int:
    """Columns that one more column may take beside these, whose cells are not broken."""
    return room - _total([max(_word(head), _widest(rows, i)) for i, head in enumerate(heads)]) - GAP


def _natural(heads: Row, rows: Sequence[Row]) -> list[int]:
    return [max(cells(head), _widest(rows, i)) for i, head in enumerate(heads)]


def _widest(rows: Sequence[Row], column: int) -> int:
    return max((cells(row[column]) for row in rows), default=0)


def _word(text: str) -> int:
    return max(map(cells, words(text)), default=0)


def _copied(text: str) -> int:
    """Columns of the longest word that is copied as a whole."""
    return max(map(cells, filter(is_copied, words(text))), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _fitted(heads: Row, rows: Sequence[Row], whole: Collection[int], room: int) -> list[int] | None:
    """Widths that fit; None where the table would be no table any more."""
    widths = [max(_word(head), _widest(rows, i)) for i, head in enumerate(heads)]
    longest = [max((_word(row[i]) for row in rows), default=0) for i in range(len(heads))]
    copied = [max((_copied(row[i]) for row in rows), default=0) for i in range(len(heads))]
    for most in _WORDS:
        least = [
            width if i in whole else max(_word(heads[i]), min(most, longest[i]), copied[i])
            for i, width in enumerate(widths)
        ]
        fitted = _narrowed(widths, least, room)
        if fitted is not None:
            break
    else:
        return None
    tall = max((len(_broken(cell, width)) for row in rows for cell, width in zip(row, fitted, strict=True)), default=1)
    return fitted if tall <= _TALL else None


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """The widths, the widest made narrower first and none below its least; None where they can't fit."""
    if _total(least) > room:
        return None
    narrowed = list(widths)
    while (more := _total(narrowed) - room) > 0:
        wide = [i for i in range(len(narrowed)) if narrowed[i] > least[i]]
        widest = max(wide, key=lambda i: narrowed[i])
        second = max((narrowed[i] for i in wide if narrowed[i] < narrowed[widest]), default=0)
        narrowed[widest] = max(least[widest], narrowed[widest] - more, second - 1 if second else 0)
    return narrowed


def _broken(cell: str, width: int) -> list[str]:
    return wrap(cell, width, whole=False)


def _drawn(row: Row, widths: Sequence[int], numbers: Collection[int], *, bottom: bool = False) -> list[str]:
    parts = [_broken(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, parts))
    blank = [[""] * (height - len(part)) for part in parts]
    columns = [more + part if bottom else part + more for part, more in zip(parts, blank, strict=True)]
    return [_line([column[y] for column in columns], widths, numbers) for y in range(height)]


def _line(row: Row, widths: Sequence[int], numbers: Collection[int]) -> str:
    padded = (pad(cell, width, right=i in numbers) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
    return (" " * GAP).join(padded).rstrip()


def _stacked(heads: Row, rows: Sequence[Row], whole: Collection[int], room: int) -> list[str]:
    """Row by row, with an empty line between; empty cells are left out."""
    names = names_width(heads, room)
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for i, (head, cell) in enumerate(zip(heads, row, strict=True)):
            if cell:
                lines += facts_lines(head, cell, names, None if i in whole else room)
    return lines


def names_width(names: Iterable[str], room: int | None) -> int:
    """Columns for the names of facts: as many as they take, but no more than two fifths of the screen."""
    longest = max(map(cells, names), default=0)
    return longest if room is None else min(longest, max(room * 2 // 5, _WORDS[1]))


def facts_lines(name: str, value: str, names: int, room: int | None) -> list[str]:
    """A name, `names` columns wide, and its value; a value of several lines stays one below the other.

    Words stay whole, and so does a command: what is broken can't be copied to a shell.
    """
    values: list[str] = []
    for line in value.split("\n"):
        keep = room is None or room - names - GAP < _WORDS[-1]
        values += [line] if keep or room is None else wrap(line, room - names - GAP)
    heads = wrap(name, names, whole=False) or [""]
    return [f"{pad(head, names)}{' ' * GAP}{line}".rstrip() for head, line in zip_longest(heads, values, fillvalue="")]
