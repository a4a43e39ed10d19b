"""What the proof says: a few lines for each store that failed, a table by shape, all of it as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import shapes
from .kills import Killed
from .store import Judged

HEAD = (
    "shape",
    "stores",
    "sound messages",
    "lost by place",
    "by queue",
    "by key",
    "invented",
    "timers, epochs",
    "second run",
    "dry run",
)
HEAD += ("undo", "dead ends", "faults", "Apache: stores", "not opened", "lost", "opens repaired", "what it is")


def lines(one: Judged, again: str) -> Iterator[str]:
    """For a terminal: nothing of a store that came back whole."""
    if not one.findings:
        return
    yield f"FAILED store {one.number} ({one.base}, {one.sound} of {one.records} sound, {one.seconds:.1f} s)"
    for name, how in one.damage:
        yield f"    {name}: {how}"
    for mode, kind, said in one.findings:
        yield f"  {mode}: {kind}: {said}"
    yield f"    {again}"


def table(found: Sequence[Judged]) -> list[str]:
    """By shape; a store with several damages counts for each of them."""
    by_shape: dict[str, list[Judged]] = defaultdict(list)
    for one in found:
        for name in {name for name, _ in one.damage}:
            by_shape[name].append(one)
    rows = [_row(name, by_shape[name], shapes.what(name)) for name in shapes.EVERY if name in by_shape]
    rows.append(_row("all", list(found), ""))
    return [f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD), *rows)]


def _row(name: str, those: list[Judged], what: str) -> tuple[str, ...]:
    def worst(field: str) -> int:
        return sum(max((getattr(verdict, field) for verdict in one.verdicts), default=0) for one in those)

    def having(*kinds: str) -> int:
        return sum(any(kind in kinds for _, kind, _ in one.findings) for one in those)

    numbers = (len(those), sum(one.sound for one in those), worst("place"), worst("queue"), worst("key"))
    numbers += (having("invented", "broken"), having("parts"), having("second"), having("dry-run"), having("undo"))
    numbers += (having("dead-end", "refused"), having("fault", "hang"))
    asked = [one.apache for one in those if one.apache is not None]
    numbers += (len(asked), sum(one["exit"] != 0 for one in asked), sum(one["lost"] for one in asked))
    opened = [one for one in those if one.opened]
    return (name, *map(str, numbers), f"{sum(one.differs is None for one in opened)} of {len(opened)}", what)


def apache_line(found: Sequence[Judged]) -> str:
    """What Apache was asked for, and what came of it."""
    asked = [one.apache for one in found if one.apache is not None]
    opened = [one for one in found if one.opened]
    return (
        f"Apache: {len(asked)} damaged stores, {sum(one['exit'] != 0 for one in asked)} not opened, "
        f"{sum(one['lost'] for one in asked)} messages lost, "
        f"{sum(one.get('timer', 0) for one in asked)} timer messages not delivered; "
        f"{len(opened)} repaired stores opened, "
        f"{sum(one.differs is not None for one in opened)} read otherwise, "
        f"{sum(one.refused is not None for one in found)} not repaired"
    )


def write(found: Sequence[Judged], place: Path, seed: int) -> None:
    """proof.md and proof.json."""
    place.mkdir(parents=True, exist_ok=True)
    head = f"# Proof: {len(found)} damaged stores, seed {seed}\n\n"
    (place / "proof.md").write_text(head + "\n".join(table(found)) + "\n", encoding="utf-8")
    text = json.dumps({"seed": seed, "stores": [one.to_json() for one in found]}, indent=1, ensure_ascii=False)
    (place / "proof.json").write_text(text + "\n", encoding="utf-8")


def kill_lines(one: Killed, seed: int) -> Iterator[str]:
    """For a terminal: nothing of a command that every kill left well."""
    if one.findings:
        yield f"FAILED {one.plan} {one.number} ({one.base}): rstore {' '.join(one.words)}"
        for name, how in one.damage:
            yield f"    {name}: {how}"
        for kill, said in one.findings:
            yield f"  {kill}: {said}"
        yield f"    python -m tests.proof --stores 0 --kills 1 --seed {seed} --only {one.number}"


def write_kills(found: Sequence[Killed], place: Path, seed: int) -> list[str]:
    """The table by command, also as kills.md and kills.json."""
    by_plan: dict[str, list[Killed]] = defaultdict(list)
    for one in found:
        by_plan[one.plan].append(one)
    head = ("command", "stores", "killed", "before it had changed anything", "ended badly")
    rows = [
        (
            name,
            len(those),
            sum(o.kills for o in those),
            sum(o.early for o in those),
            sum(len(o.findings) for o in those),
        )
        for name, those in by_plan.items()
    ]
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 5))))  # type: ignore[misc]
    table = [f"| {' | '.join(map(str, cells))} |" for cells in (head, ("---",) * len(head), *rows)]
    place.mkdir(parents=True, exist_ok=True)
    (place / "kills.md").write_text(f"# Kills, seed {seed}\n\n" + "\n".join(table) + "\n", encoding="utf-8")
    text = json.dumps({"seed": seed, "stores": [one.to_json() for one in found]}, indent=1, ensure_ascii=False)
    (place / "kills.json").write_text(text + "\n", encoding="utf-8")
    return table
