"""What check and doctor report: findings, each with a stable code, and all codes in one table (CHECK.md shows it).

A finding says what is wrong, where, and what to run. Many of one kind in one place (a queue, a file) are one finding
that counts them and names the first; many places of one kind are named up to `PLACES`, and then counted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypedDict

PLACES = 20
"""Findings of one code that are listed one by one."""
FIRST = 3
"""Occurrences in one place that are named."""


class Severity(enum.Enum):
    """Error: messages can't be read, or a start fails or cuts. Warning: it works, but not as it says."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding: how bad, what it says (after a count where there are many), what to run."""

    severity: Severity
    what: str
    hint: str


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_RECOVER = "rstore recover --dry-run shows what recovery makes of it"
_SCAN = _RECOVER + "; rstore salvage scan tells what is lost"
_REINDEX_QUEUE = "rstore recover compares the queue with the log and mends it"
_REINDEX = "move index/ out of the store, then rstore recover makes it anew from the log"
_DOCTOR = "rstore doctor tells more; rstore recover sets aside what holds no data"

CODES: dict[str, Code] = {
    # files
    "file-size": Code(_ERROR, "a file of the wrong size or place, so a broker does not start", _DOCTOR),
    "file-stray": Code(_ERROR, "something that is no store file, so a broker does not start", _DOCTOR),
    "file-odd": Code(_INFO, "something that a broker passes over", "nothing to do; move it away if it is not yours"),
    "not-closed": Code(_WARNING, "the store was not closed (its abort file is there)", _RECOVER),
    # the log
    "log-gone": Code(_ERROR, "there are consume queues, but no commit log", "is its disk mounted? Start no broker"),
    "log-gap": Code(_ERROR, "segments are missing in the log", "find the missing files; " + _RECOVER),
    "log-damage": Code(_ERROR, "no sound record in the log, and sound ones behind it", _SCAN),
    "log-tail": Code(_WARNING, "bytes behind the log's end that are no sound record", _RECOVER),
    "log-offset": Code(_WARNING, "a record whose own physicalOffset names another place", _RECOVER + " (it mends it)"),
    "log-accepted": Code(_INFO, "a lost stretch of the log that an earlier repair went on behind", "nothing to do"),
    "log-bridged": Code(
        _INFO, "a damaged stretch of the log that a repair bridged", "rstore salvage list and show name what it held"
    ),
    # consume queues
    "queue-gap": Code(_ERROR, "files are missing in the middle of a queue", _RECOVER),
    "unit-missing": Code(_ERROR, "a record has no unit at its queue offset: consumers don't get it", _RECOVER),
    "unit-deleted": Code(
        _INFO, "a record of a topic that was deleted, or deleted and made again: no consumer finds it", "nothing to do"
    ),
    "unit-invalid": Code(_ERROR, "no unit among the units: a broker ends the queue there", _RECOVER),
    "unit-nowhere": Code(_ERROR, "a unit points where no record of its size is", _RECOVER),
    "unit-elsewhere": Code(
        _WARNING, "a unit points at a record that names another queue or queue offset", "recovery leaves it as it is"
    ),
    "unit-tags": Code(_ERROR, "a unit's tags code is not its record's: tag filters pass it over", _REINDEX_QUEUE),
    "unit-delivery-time": Code(
        _ERROR, "a delayed message's unit holds no delivery time: it is delivered at once", _RECOVER
    ),
    "unit-delivery-other": Code(
        _WARNING,
        "a delivery time that messageDelayLevel does not give",
        "give the broker's own messageDelayLevel with -c broker.conf; else: " + _REINDEX_QUEUE,
    ),
    "unit-lost": Code(_INFO, "a unit points into a lost stretch of the log", "its message is lost; nothing to do"),
    "unit-repeated": Code(_INFO, "a unit repeats its neighbour, as a repair fills what was lost", "nothing to do"),
    "ext-missing": Code(_ERROR, "a unit's address in the extension holds no unit", _REINDEX_QUEUE),
    "ext-wrong": Code(_ERROR, "an extension unit is not its record's (tags code or store time)", _REINDEX_QUEUE),
    # index
    "index-header": Code(_ERROR, "an index file's header does not fit its entries", _REINDEX),
    "index-entry": Code(_ERROR, "an index entry that can't be", _REINDEX),
    "index-link": Code(_ERROR, "an index entry is linked wrongly: keys behind it are not found", _REINDEX),
    "index-slot": Code(_ERROR, "a slot does not name the newest of its entries: keys are not found", _REINDEX),
    "index-order": Code(_ERROR, "an index file begins before the one before it ends", _REINDEX),
    "index-nowhere": Code(_ERROR, "an index entry points where no record is", _REINDEX),
    "index-key": Code(_ERROR, "an index entry's key is none of its record's", _REINDEX),
    "index-time": Code(_ERROR, "an index entry's time is not its record's: queries by time pass it over", _REINDEX),
    "index-missing": Code(
        _ERROR,
        "a record's key is not in the index: queries don't find it",
        _REINDEX + " (a broker with messageIndexEnable=false has none: -c broker.conf)",
    ),
    "index-twice": Code(_INFO, "a key is in the index twice, as a broker's own recovery does", "nothing to do"),
    "index-lost": Code(_INFO, "an index entry points into a lost stretch of the log", "nothing to do"),
    # checkpoint and config
    "checkpoint-missing": Code(_WARNING, "the checkpoint is missing or short: it reads as zeros", _RECOVER),
    "checkpoint-ahead": Code(
        _WARNING, "the checkpoint is not one of this log: a recovery may begin too late", "rstore recover --abnormal"
    ),
    "config-bad": Code(
        _ERROR, "a configuration file that can't be read, nor its .bak", "restore the file before a broker starts"
    ),
    "config-bak": Code(
        _WARNING, "a configuration file that can't be read: a broker takes its .bak", "copy the .bak over the file"
    ),
    "config-bak-bad": Code(_INFO, "a .bak that can't be read", "nothing to do while the file itself is good"),
    "config-value": Code(
        _ERROR, "a configuration file that says what can't be", "mend the file before a broker starts"
    ),
    "consumer-ahead": Code(
        _WARNING, "a group's offset is above its queue's maximum", "mqadmin resetOffsetByTime sets the group back"
    ),
    "consumer-queue": Code(_INFO, "a group's offset of a queue that is not there", "nothing to do"),
    "delay-range": Code(
        _WARNING, "a delay level's offset is outside of its queue", "a broker corrects it when it starts"
    ),
    "topic-unknown": Code(_INFO, "topics in the log have no configuration", "mqadmin updateTopic, if they are wanted"),
    "topic-unused": Code(_INFO, "topics have a configuration, but no queues", "nothing to do"),
    # the check itself
    "live": Code(_INFO, "a live process has the store: its ends were not judged", "stop it for a check of everything"),
    "time-box": Code(_INFO, "the time was up before everything was looked at", "rstore check with a longer --time-box"),
}
"""Every code that check reports. Stable: scripts go by them."""


class FindingJson(TypedDict):
    """A finding as cli.md fixes it."""

    code: str
    severity: str
    where: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `count`: how many occurrences it stands for."""

    code: str
    severity: Severity
    where: str
    message: str
    hint: str
    count: int = 1

    def to_json(self) -> FindingJson:
        """The JSON of cli.md."""
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
    count: int = 0
    details: list[str] = field(default_factory=list)


class Findings:
    """Collects occurrences. Bounded: per code `PLACES` places, each with its first details, and counts beyond."""

    def __init__(self, codes: dict[str, Code] | None = None) -> None:
        self._codes = CODES if codes is None else codes
        self._groups: dict[str, dict[str, _Group]] = {}
        self._more: dict[str, tuple[int, int]] = {}

    def add(self, code: str, group: str, where: str, detail: str = "", count: int = 1) -> None:
        """Note `count` occurrences of `code` in the place `group`; the first of them is at `where`."""
        assert code in self._codes, code
        groups = self._groups.setdefault(code, {})
        found = groups.get(group)
        if found is None:
            if len(groups) >= PLACES:
                places, many = self._more.get(code, (0, 0))
                self._more[code] = (places + 1, many + count)
                return
            found = groups[group] = _Group(where)
        found.count += count
        if detail and len(found.details) < FIRST and detail not in found.details:
            found.details.append(detail)

    def merge(self, other: Findings) -> None:
        """Take what another collected (in another process, perhaps)."""
        for code, groups in other._groups.items():
            for group, found in groups.items():
                self.add(code, group, found.where, found.details[0] if found.details else "", found.count)
                for detail in found.details[1:]:
                    self.add(code, group, found.where, detail, 0)
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
        found = []
        for name in sorted(self._groups, key=lambda n: (rank.index(self._codes[n].severity), order.index(n))):
            code = self._codes[name]
            for group in self._groups[name].values():
                found.append(Finding(name, code.severity, group.where, _message(code, group), code.hint, group.count))
            if name in self._more:
                _, many = self._more[name]
                text = f"{many:,} more in other places: {code.what}"
                found.append(Finding(name, code.severity, "elsewhere", text, code.hint, many))
        return tuple(found)


def _message(code: Code, group: _Group) -> str:
    text = f"{group.count:,} times: {code.what}" if group.count > 1 else code.what
    if not group.details:
        return text
    rest = ", …" if group.count > len(group.details) else ""
    return f"{text} ({', '.join(group.details)}{rest})"
