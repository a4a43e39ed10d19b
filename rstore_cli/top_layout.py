"""`rstore top` on a screen of a given size: which rows are seen, how many are not, and what the keys do."""

from __future__ import annotations

from dataclasses import replace

from engine.dataclass import dataclass
from rstore_cli.grid import facts_lines, names_width, one_line_each
from rstore_cli.render import printable
from rstore_cli.screen import cells
from rstore_cli.top_frame import Frame, Sort

Line = tuple[str, str]
"""Text and its style: "", bold, dim or red."""

_SORTS = {"p": Sort.PUT, "g": Sort.GET, "l": Sort.LAG, "n": Sort.NAME}
_STEPS = {"up": -1, "down": 1, "k": -1, "j": 1}
_TABLES = ("topics", "groups")


@dataclass(frozen=True, slots=True)
class TopView:
    """What of a frame is looked at. `first`: the first row that is seen of topics and of groups; `active`: the table
    (0 or 1) that scrolls."""

    sort: Sort = Sort.LAG
    first: tuple[int, int] = (0, 0)
    active: int = 0

    def after(self, key: str, frame: Frame, rows: tuple[int, int]) -> TopView:
        """What is looked at once a key was pressed; `rows`: how many of each table are seen now."""
        if key in _SORTS:
            return replace(self, sort=_SORTS[key], first=(0, 0))
        if key == "tab":
            return replace(self, active=1 - self.active)
        page = max(rows[self.active] - 1, 1)
        many = (len(frame.topics), len(frame.groups))[self.active]
        steps = {**_STEPS, "pageup": -page, "pagedown": page, " ": page, "home": -many, "end": many}
        if key not in steps:
            return self
        last = max(many - rows[self.active], 0)
        moved = min(max(min(self.first[self.active], last) + steps[key], 0), last)
        return replace(self, first=(moved, self.first[1]) if self.active == 0 else (self.first[0], moved))


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines for the screen, and how many rows of each table they show."""

    lines: tuple[Line, ...]
    rows: tuple[int, int]


def draw(frame: Frame, view: TopView, columns: int, height: int, trouble: str = "") -> Drawn:
    """A screen of `height` lines, at most `columns` wide: facts, topics, groups, keys. `trouble`: what to say above."""
    facts = [*frame.facts(), *([("trouble", printable(trouble))] if trouble else [])]
    names = names_width((name for name, _ in facts), columns)
    lines = [
        (line, "red" if name == "trouble" or "PUTS ARE REFUSED" in value else "")
        for name, value in facts
        for line in facts_lines(name, value, names, columns)
    ]
    room = max(height - len(lines) - len(("", "heads", "", "heads", "keys")), 2)
    counts = (len(frame.topics), len(frame.groups))
    shares = _shares(counts, room)
    tables = (
        (*frame.topic_table(), (1, 2, 3, 4, 5), (4, 2)),
        (*frame.group_table(), (2, 3, 4), (4, 3)),
    )
    shown = []
    for number, (heads, rows, numbers, spare) in enumerate(tables):
        body, seen = _window(len(rows), view.first[number], shares[number])
        drawn = one_line_each(heads, rows, numbers, columns, spare)
        lines += [("", ""), (drawn[0], "bold")]
        lines += [(line, "") for line in drawn[1 + body.start : 1 + body.stop]]
        if seen:
            lines.append((seen, "dim"))
        shown.append(len(body))
    lines += [("", "")] * (height - 1 - len(lines))
    return Drawn((*lines[: height - 1], (_keys(view, columns), "dim")), (shown[0], shown[1]))


def _keys(view: TopView, columns: int) -> str:
    here, other = _TABLES[view.active], _TABLES[1 - view.active]
    keys = f"sorted by {view.sort.value}: p put g get l lag n name  ↑ ↓ scroll {here}  Tab {other}  q quit"
    return (
        keys if cells(keys) <= columns else f"by {view.sort.value}: p g l n  ↑ ↓ {here}  Tab {other}  q quit"[:columns]
    )


def _shares(counts: tuple[int, int], room: int) -> tuple[int, int]:
    """Lines for each table: half each, and what one does not need for the other."""
    half = room // 2
    first = min(counts[0], max(half, room - counts[1]))
    return max(first, 1), max(room - first, 1)


def _window(many: int, first: int, room: int) -> tuple[range, str]:
    """Which rows are seen in that many lines, and the line that tells of the others ("" where all are seen)."""
    if many <= room:
        return range(many), ""
    seen = max(room - 1, 1)
    start = min(first, many - seen)
    above, below = start, many - start - seen
    hidden = [f"{below} more"] if below else []
    hidden += [f"{above} above"] if above else []
    return range(start, start + seen), "… " + ", ".join(hidden)


def keys_of(pressed: bytes) -> list[str]:
    """The keys in what a terminal sent: names of those that send more than one byte."""
    keys: list[str] = []
    text = pressed.decode("latin-1")
    while text:
        sent = next((one for one in _SENT if text.startswith(one)), text[0])
        keys.append(_SENT.get(sent, sent))
        text = text[len(sent) :]
    return keys


_SENT = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown",
    "\x1b[H": "home", "\x1b[F": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\t": "tab",
}  # fmt: skip
