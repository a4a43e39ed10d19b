"""The table of test_loss_table.py: what is lost of each damaged store by rstore and by Apache 4.9.8.

Its rows come in as properties of the tests' reports, so that it is one table whatever worker ran a test.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .apache import Line

OURS = "rstore-loss"
"""The property with a case's row: `id`, `base`, `category`, `note`, `exit`, `sound`, `how`, `ours`, `recorded`."""
APACHE = "apache-loss"
"""The property with Apache's loss by case id."""
OPENED = "repaired-in-apache"
"""The property with the number of repaired stores that Apache opened: `stores`, `bridged`, `puts`."""
WALKED = "walked-in-apache"
"""The property with the number of stores of the proof's shapes that Apache opened once they were repaired."""

NOT_OPENED = {2: "load fails", 3: "start fails", 4: "error", None: "hangs"}
HEAD = ("case", "damage", "store", "sound", "by", "queue", "key", "place", "Apache", "queue", "moved", "key", "place")
TOTALS = (
    *("damage", "cases", "sound", "lost by rstore", "lost by Apache", "moved", "cases with loss", "not opened"),
    "unread in them",
)
LEGEND = """\
Sound: records that the damage left whole, counted against the undamaged store. Then how rstore repaired the store
(`recover`; `bridge`: recover --bridge; `refused`: no log is left) and how many sound messages it does not give by
queue, by key, at their place in the log; the same for Apache RocketMQ 4.9.8 on the same damaged store. Moved: in its
queue, at another queue offset. A message that is lost in several ways counts once in the totals."""


def rows(properties: Iterable[tuple[str, Any]]) -> list[Line]:
    """The rows by case id; `apache` is what it lost, None where it was not run."""
    found: list[Line] = []
    apache: dict[str, Line] = {}
    for name, value in properties:
        if name == OURS:
            found.append(value)
        elif name == APACHE:
            apache |= value
    return [{**row, "apache": apache.get(row["id"])} for row in sorted(found, key=_id)]


def opened(properties: Iterable[tuple[str, Any]]) -> list[str]:
    """Sentences about the repaired stores that Apache opened; none where it wasn't asked to."""
    said = []
    for name, value in properties:
        if name == OPENED:
            counts = f"{value['stores']} of these stores after rstore's repair, {value['bridged']} of them bridged"
            said.append(
                f"Apache 4.9.8 opened {counts}:\nonce as closed, once as crashed, and once to put "
                f"{value['puts']} messages and get them as a consumer does."
            )
        elif name == WALKED:
            said.append(
                f"Apache 4.9.8 opened {value} stores of the proof's shapes (tests/proof), repaired by the commands\n"
                "that rstore names: it cut no log, and read by queue, place and key what is in them."
            )
    return said


def _id(row: Line) -> str:
    return str(row["id"])


def _theirs(row: Line) -> Line | None:
    """Apache's loss: as read from it, else as recorded; None where it doesn't open the store."""
    if row["exit"] != 0:
        return None
    found: Line = row["apache"] or {**row["recorded"], "key": "?"}
    return found


def _cells(row: Line) -> list[str]:
    ours, theirs = row["ours"], _theirs(row)
    left = [row["id"], row["category"], row["base"], row["sound"], row["how"], ours["queue"] + ours["moved"]]
    left += [ours["key"], ours["place"]]
    if theirs is None:
        return [str(cell) for cell in (*left, NOT_OPENED[row["exit"]], "-", "-", "-", "-")]
    return [str(cell) for cell in (*left, "opens", theirs["queue"], theirs["moved"], theirs["key"], theirs["place"])]


def _loses(row: Line) -> bool:
    theirs = _theirs(row)
    lost = theirs is None and row["sound"] > 0
    return lost or row["ours"]["messages"] > 0 or (theirs is not None and theirs["messages"] + theirs["moved"] > 0)


def _totals(found: list[Line]) -> list[list[str]]:
    kinds: dict[str, list[Line]] = defaultdict(list)
    for row in found:
        kinds[row["category"]].append(row)
    return [_total(kind, kinds[kind]) for kind in sorted(kinds)] + [_total("all", found)]


def _total(kind: str, found: list[Line]) -> list[str]:
    opened = [theirs for theirs in map(_theirs, found) if theirs is not None]
    closed = [row for row in found if row["exit"] != 0]
    numbers = (
        *(len(found), sum(row["sound"] for row in found), sum(row["ours"]["messages"] for row in found)),
        *(sum(theirs["messages"] for theirs in opened), sum(theirs["moved"] for theirs in opened)),
        *(sum(theirs["messages"] > 0 for theirs in opened), len(closed), sum(row["sound"] for row in closed)),
    )
    return [kind, *map(str, numbers)]


def _aligned(head: tuple[str, ...], body: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = []
    for cells in (head, *body):
        padded = [_side(head[i])(cell, widths[i]) for i, cell in enumerate(cells)]
        lines.append("  ".join(padded).rstrip())
    return lines


def _side(name: str) -> Callable[[str, int], str]:
    return str.ljust if name in ("case", "damage", "store", "by", "Apache") else str.rjust


def text(found: list[Line]) -> list[str]:
    """For a terminal: the cases in which anything is lost, then the totals by kind of damage."""
    losing = [_cells(row) for row in found if _loses(row)]
    lines = [*LEGEND.splitlines(), "", *(_aligned(HEAD, losing) if losing else [])]
    lines += [f"(nothing lost in {len(found) - len(losing)} other cases)", "", *_aligned(TOTALS, _totals(found))]
    if not any(row["apache"] for row in found):
        lines.append("Apache was not run: its loss is what the corpora have recorded, which says nothing of keys.")
    return lines


def _markdown(head: tuple[str, ...], body: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body)]


def write(found: list[Line], directory: Path) -> None:
    """All cases, as loss.md and loss.json."""
    directory.mkdir(exist_ok=True)
    parts = ["# What is lost of the damaged stores", "", LEGEND, "", *_markdown(TOTALS, _totals(found)), ""]
    parts += [*_markdown(HEAD, [_cells(row) for row in found]), ""]
    (directory / "loss.md").write_text("\n".join(parts), encoding="utf-8")
    (directory / "loss.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
