"""What check and doctor report: findings, each with a stable code (finding_codes.py has them all).

A finding says what is wrong, where, and what to run. Many of one kind in one place (a queue, a file) are one finding
that counts them and names the first; many places of one kind are named up to `PLACES`, and then counted.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TypedDict

from engine.dataclass import dataclass
from engine.format import names
from engine.inspect.finding_codes import CODES, Code, Fix, Severity

PLACES = 20
"""Findings of one code that are listed one by one."""
FIRST = 3
"""Occurrences in one place that are named."""


def place(path: str, offset: int) -> str:
    """How a place in the log is written: its file and physical offset."""
    directory, name = os.path.split(path)
    member, kept = directory.split(os.sep)[-2:] if directory.count(os.sep) else ("", directory)
    of_entries = member.startswith(names.DLEDGER) and kept == names.DLEDGER_DATA
    kept = f"{member}/{kept}" if of_entries else names.COMMITLOG
    return f"{kept}/{name} at {offset}"


class FindingJson(TypedDict):
    """A finding as CLI.md "Judgements" has it."""

    code: str
    severity: str
    where: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `count`: how many occurrences it stands for; `fix`: what mends it."""

    code: str
    severity: Severity
    where: str
    message: str
    hint: str
    count: int = 1
    fix: Fix = Fix.ADVISE

    def to_json(self) -> FindingJson:
        """The JSON of CLI.md "Judgements"."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "where": self.where,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(slots=True)
class _Group:
    """Occurrences of one code in one place."""

    where: str
    fix: Fix
    hint: str
    count: int = 0
    details: list[str] = field(default_factory=list)


class Findings:
    """Collects occurrences. Bounded: per code `PLACES` places, each with its first details, and counts beyond."""

    def __init__(self, codes: dict[str, Code] | None = None) -> None:
        self._codes = CODES if codes is None else codes
        self._groups: dict[str, dict[str, _Group]] = {}
        self._more: dict[str, tuple[int, int]] = {}

    def add(
        self,
        code: str,
        group: str,
        where: str,
        detail: str = "",
        count: int = 1,
        *,
        fix: Fix | None = None,
        hint: str | None = None,
    ) -> None:
        """Note `count` occurrences of `code` in the place `group`; the first of them is at `where`.

        `fix`, `hint`: what mends it there, where that is not what the code says.
        """
        assert code in self._codes, code
        groups = self._groups.setdefault(code, {})
        known = groups.get(group)
        if known is None:
            if len(groups) >= PLACES:
                places, many = self._more.get(code, (0, 0))
                self._more[code] = (places + 1, many + count)
                return
            known = groups[group] = _Group(where, fix or self._codes[code].fix, hint or self._codes[code].hint)
        known.count += count
        if detail and len(known.details) < FIRST and detail not in known.details:
            known.details.append(detail)

    def merge(self, other: Findings) -> None:
        """Take what another collected (in another process, perhaps)."""
        for code, groups in other._groups.items():
            for group, theirs in groups.items():
                first = theirs.details[0] if theirs.details else ""
                self.add(code, group, theirs.where, first, theirs.count, fix=theirs.fix, hint=theirs.hint)
                for detail in theirs.details[1:]:
                    self.add(code, group, theirs.where, detail, 0)
        for code, (places, many) in other._more.items():
            mine, count = self._more.get(code, (0, 0))
            self._more[code] = (mine + places, count + many)

    def __contains__(self, code: str) -> bool:
        return code in self._groups

    def totals(self) -> dict[str, int]:
        """Occurrences by code."""
        return {
            code: sum(g.count for g in groups.values()) + self._more.get(code, (0, 0))[1]
            for code, groups in self._groups.items()
        }

    def result(self) -> tuple[Finding, ...]:
        """The findings: errors first, then in the table's order."""
        rank = list(Severity)
        order = list(self._codes)
        findings = []
        for name in sorted(self._groups, key=lambda n: (rank.index(self._codes[n].severity), order.index(n))):
            code = self._codes[name]
            for group in self._groups[name].values():
                message = _message(code, group)
                findings.append(Finding(name, code.severity, group.where, message, group.hint, group.count, group.fix))
            if name in self._more:
                _, many = self._more[name]
                text = f"{many:,} more elsewhere: {code.what}"
                findings.append(Finding(name, code.severity, "elsewhere", text, code.hint, many, code.fix))
        return tuple(findings)


def _message(code: Code, group: _Group) -> str:
    text = f"{group.count:,} times: {code.what}" if group.count > 1 else code.what
    if not group.details:
        return text
    rest = ", …" if group.count > len(group.details) else ""
    return f"{text} ({', '.join(group.details)}{rest})"
