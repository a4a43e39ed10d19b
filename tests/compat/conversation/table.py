"""What differs between two brokers' answers, and which of it is so on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

Answers = Mapping[str, Mapping[str, Any]]
_MISSING = "<not there>"


@dataclass(frozen=True, slots=True)
class Explained:
    """A difference on purpose: at the steps and in the fields that match, for this reason.

    `theirs`, `ours`: patterns of what is answered; a difference of another kind is not explained. `always`: False where
    it is left to chance whether they differ.
    """

    steps: str
    fields: str
    reason: str
    theirs: str = ".*"
    ours: str = ".*"
    always: bool = True

    def fits(self, difference: Difference) -> bool:
        """Whether it is this one."""
        return (
            fnmatchcase(difference.step, self.steps)
            and fnmatchcase(difference.field, self.fields)
            and re.fullmatch(self.theirs, _said(difference.theirs), re.DOTALL) is not None
            and re.fullmatch(self.ours, _said(difference.ours), re.DOTALL) is not None
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of one step."""

    step: str
    field: str
    theirs: Any
    ours: Any
    reason: str | None = None


def compare(theirs: Answers, ours: Answers, explained: Iterable[Explained]) -> list[Difference]:
    """What differs, in the script's order, explained where it is on purpose."""
    found = []
    known = list(explained)
    for step in dict.fromkeys([*theirs, *ours]):
        one, two = theirs.get(step, {"answer": _MISSING}), ours.get(step, {"answer": _MISSING})
        fields = ["answer"] if one.get("answer") != two.get("answer") else list(dict.fromkeys([*one, *two]))
        for field in fields:
            left, right = one.get(field, _MISSING), two.get(field, _MISSING)
            if left != right:
                row = Difference(step, field, left, right)
                reason = next((each.reason for each in known if each.fits(row)), None)
                found.append(Difference(step, field, left, right, reason))
    return found


def unused(differences: Iterable[Difference], explained: Iterable[Explained]) -> list[Explained]:
    """Explanations of what differs no more."""
    rows = list(differences)
    return [one for one in explained if one.always and not any(one.fits(row) for row in rows)]


def to_text(steps: int, version: str, differences: list[Difference]) -> str:
    """The table, as Markdown."""
    bad = sum(1 for one in differences if one.reason is None)
    lines = [
        f"# rstore serve and Apache RocketMQ {version}: the same script, the same answers",
        "",
        f"{steps} steps; {len({one.step for one in differences})} of them differ, in {len(differences)} fields, of "
        f"which {bad} are not explained.",
        "",
        "| step | field | Apache's | ours | why |",
        "|---|---|---|---|---|",
    ]
    for one in differences:
        cells = (one.step, one.field, _cell(one.theirs), _cell(one.ours), one.reason or "**not explained**")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(value: Any) -> str:
    text = _said(value).replace("|", "\\|").replace("\n", "⏎").replace("\x01", "␁").replace("\x02", "␂")
    return f"`{text[:300]}{'…' if len(text) > 300 else ''}`"
