"""What check and doctor report: findings, each with a stable code, and all codes in one table (CHECK.md shows it).

A finding says what is wrong, where, and what to run. Many of one kind in one place (a queue, a file) are one finding
that counts them and names the first; many places of one kind are named up to `PLACES`, and then counted.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import TypedDict

PLACES = 20
"""Findings of one code that are listed one by one."""
FIRST = 3
"""Occurrences in one place that are named."""


def place(path: str, offset: int) -> str:
    """How a place in the log is written: its file and physical offset."""
    return f"commitlog/{os.path.basename(path)} at {offset}"


class Severity(enum.Enum):
    """Error: messages can't be read, or a start fails or cuts. Warning: it works, but not as it says."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Fix(enum.Enum):
    """What mends a finding, in the order in which it is done (next_step.py says by which command)."""

    BRING = "bring"
    """A person brings or sets something first: a disk, a right, a setting. The code's hint says what."""
    UNDO = "undo"
    """The undo that was interrupted ends."""
    BRIDGE = "bridge"
    """A recovery that bridges."""
    RECOVER = "recover"
    """A recovery."""
    REBUILD = "rebuild"
    """A recovery that reads the whole log."""
    CONFIG = "config"
    """The configuration is made again."""
    ADVISE = "advise"
    """A person decides; the code's hint says what. Messages and queues are not concerned."""
    NOTHING = "nothing"
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding: how bad, what it says (after a count where there are many), what to know, what mends it."""

    severity: Severity
    what: str
    hint: str = ""
    fix: Fix = Fix.ADVISE


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_NOTHING = "nothing to do"

CODES: dict[str, Code] = {
    # files
    "newer-store": Code(
        _INFO,
        "a part of RocketMQ 5: the store is read, and never changed by rstore",
        "its own 5.x broker repairs it when it starts",
        Fix.NOTHING,
    ),
    "file-size": Code(_ERROR, "a file of the wrong size or place, so a broker does not start", fix=Fix.RECOVER),
    "file-stray": Code(_ERROR, "something that is no store file, so a broker does not start", fix=Fix.RECOVER),
    "file-absent": Code(
        _ERROR,
        "a link whose target is not there: data is absent, and a broker goes on without it",
        "mount the disk that it leads to; start no broker before",
        Fix.BRING,
    ),
    "file-odd": Code(_INFO, "something that a broker passes over", "move it away if it is not yours", Fix.NOTHING),
    "not-closed": Code(_WARNING, "the store was not closed (its abort file is there)", fix=Fix.RECOVER),
    "repair-unfinished": Code(_WARNING, "a repair was interrupted", "a recovery finishes it", Fix.RECOVER),
    "undo-unfinished": Code(_WARNING, "taking a repair back was interrupted", fix=Fix.UNDO),
    "disk-room": Code(
        _INFO,
        "the disk has no room for another segment: puts that need one are refused, messages can be read",
        "free space; what a repair saves can go to another disk: rstore recover --salvage-dir DIR",
        Fix.NOTHING,
    ),
    # the log
    "log-misplaced": Code(
        _ERROR, "a segment under another name than its records say: messages are not where they belong", fix=Fix.RECOVER
    ),
    "log-surplus": Code(
        _ERROR,
        "a file with records that have no place in the log",
        "quarantine/ keeps the file then",
        Fix.BRIDGE,
    ),
    "log-gone": Code(
        _ERROR,
        "there are consume queues, but no commit log",
        "mount its disk, and start no broker before; if the log is lost for good: rstore recover --yes-the-log-is-gone",
        Fix.BRING,
    ),
    "path-missing": Code(
        _ERROR,
        "a directory of the commit log is not there",
        "mount its disk, and start no broker before; if it never held a segment, or all that it held is lost for good, "
        "make it (mkdir)",
        Fix.BRING,
    ),
    "path-unnamed": Code(
        _ERROR,
        "a missing segment of the log lies in a directory that no setting names",
        "name all directories of the log (storePathCommitLog in the broker.conf that -c gives), or move the file back "
        "into the log's directory",
        Fix.BRING,
    ),
    "log-gap": Code(
        _ERROR, "segments are missing in the log", "if the missing files can be found, put them back first", Fix.BRIDGE
    ),
    "log-damage": Code(_ERROR, "no sound record in the log, and sound ones after it", fix=Fix.BRIDGE),
    "log-tail": Code(_WARNING, "bytes after the log's end that are no sound record", fix=Fix.RECOVER),
    "log-stale": Code(
        _WARNING,
        "a stale record after the log's end: of a log that was cut, in a file that is used again",
        "the next start takes it for a message; a recovery sets it aside",
        Fix.RECOVER,
    ),
    "log-offset": Code(_WARNING, "a record whose own physicalOffset names another place", fix=Fix.REBUILD),
    "record-suspect": Code(
        _WARNING,
        "a record with a sound body and a header, topic or properties that no broker writes",
        "it stays readable. Keep its queue and index: they may be the only evidence of what it contained; reindex "
        "replaces them",
        Fix.ADVISE,
    ),
    "record-unusual": Code(
        _INFO,
        "a record with an unusual header or properties: a client may have sent them, or they are damaged",
        "nothing to do: its queue unit and index entries agree with it",
        Fix.NOTHING,
    ),
    "log-accepted": Code(
        _INFO, "a lost range of the log that an earlier repair continued after", _NOTHING, Fix.NOTHING
    ),
    "log-bridged": Code(
        _INFO,
        "a damaged range of the log that a repair bridged",
        "rstore salvage list and rstore salvage show name what it held",
        Fix.NOTHING,
    ),
    # consume queues
    "queue-empty": Code(_WARNING, "a queue's file that holds nothing, after a gap", fix=Fix.RECOVER),
    "queue-gap": Code(_ERROR, "files are missing in the middle of a queue", fix=Fix.RECOVER),
    "unit-missing": Code(_ERROR, "a record has no unit at its queue offset: consumers don't get it", fix=Fix.REBUILD),
    "unit-deleted": Code(
        _INFO,
        "a record of a topic that was deleted, or deleted and made again: no consumer finds it",
        _NOTHING,
        Fix.NOTHING,
    ),
    "unit-invalid": Code(_ERROR, "an invalid unit between valid ones: a broker ends the queue there", fix=Fix.REBUILD),
    "unit-nowhere": Code(_ERROR, "a unit points where no record of its size is", fix=Fix.REBUILD),
    "unit-elsewhere": Code(
        _WARNING, "a unit points at a record that names another queue or queue offset", fix=Fix.REBUILD
    ),
    "unit-tags": Code(_ERROR, "a unit's tags code is not its record's: tag filters pass it over", fix=Fix.REBUILD),
    "unit-witness": Code(
        _WARNING,
        "a unit's tags code is not that of its record, which is suspect",
        "keep the queue: it shows what the record contained, and reindex replaces it",
        Fix.ADVISE,
    ),
    "unit-delivery-time": Code(
        _ERROR, "a delayed message's unit holds no delivery time: it is delivered at once", fix=Fix.REBUILD
    ),
    "unit-delivery-other": Code(
        _WARNING,
        "a delivery time that messageDelayLevel does not give",
        "give the broker's own messageDelayLevel with -c broker.conf first",
        Fix.REBUILD,
    ),
    "unit-lost": Code(_INFO, "a unit points into a lost range of the log", "its message is lost", Fix.NOTHING),
    "unit-repeated": Code(
        _INFO, "a unit repeats its neighbour, as a repair fills what was lost", _NOTHING, Fix.NOTHING
    ),
    "unit-surplus": Code(
        _WARNING,
        "a unit after a queue's last message repeats it, and no message was lost there: consumers get it twice",
        fix=Fix.REBUILD,
    ),
    "ext-missing": Code(_ERROR, "a unit's address in the extension holds no unit", fix=Fix.REBUILD),
    "ext-wrong": Code(_ERROR, "an extension unit is not its record's (tags code or store time)", fix=Fix.REBUILD),
    # index
    "index-header": Code(_ERROR, "an index file's header does not fit its entries", fix=Fix.REBUILD),
    "index-entry": Code(_ERROR, "an invalid index entry", fix=Fix.REBUILD),
    "index-link": Code(_ERROR, "an index entry is linked wrongly: keys after it are not found", fix=Fix.REBUILD),
    "index-slot": Code(_ERROR, "a slot does not name the newest of its entries: keys are not found", fix=Fix.REBUILD),
    "index-order": Code(_ERROR, "an index file begins before the one before it ends", fix=Fix.REBUILD),
    "index-nowhere": Code(_ERROR, "an index entry points where no record is", fix=Fix.REBUILD),
    "index-key": Code(_ERROR, "an index entry's key is not a key of its record", fix=Fix.REBUILD),
    "index-witness": Code(
        _WARNING,
        "an index entry or a key that does not fit its record, which is suspect",
        "keep the index: it shows what the record contained, and reindex replaces it",
        Fix.ADVISE,
    ),
    "index-time": Code(
        _ERROR,
        "an index entry's time is not its record's: queries by time pass it over",
        fix=Fix.REBUILD,
    ),
    "index-missing": Code(
        _ERROR,
        "a record's key is not in the index: queries don't find it",
        "a broker with messageIndexEnable=false has none: give its settings with -c broker.conf then",
        Fix.REBUILD,
    ),
    "index-twice": Code(_INFO, "a key is in the index twice, as after a broker's own recovery", _NOTHING, Fix.NOTHING),
    "index-lost": Code(_INFO, "an index entry points into a lost range of the log", _NOTHING, Fix.NOTHING),
    # checkpoint and config
    "checkpoint-missing": Code(_WARNING, "the checkpoint is missing or short: it reads as zeros", fix=Fix.RECOVER),
    "checkpoint-ahead": Code(
        _WARNING, "the checkpoint is not one of this log: a recovery may begin too late", fix=Fix.REBUILD
    ),
    "config-bad": Code(_ERROR, "a configuration file that can't be read, nor its .bak", fix=Fix.CONFIG),
    "config-bak": Code(_WARNING, "a configuration file that can't be read: a broker takes its .bak", fix=Fix.CONFIG),
    "config-bak-bad": Code(
        _INFO, "a .bak that can't be read", "nothing to do while the file itself is good", Fix.NOTHING
    ),
    "config-value": Code(_ERROR, "a configuration file that contains an invalid value", fix=Fix.CONFIG),
    "config-odd": Code(_INFO, "a configuration file that is no strict JSON; a broker reads it", _NOTHING, Fix.NOTHING),
    "config-missing": Code(_WARNING, "a configuration file is missing: a broker starts without it", fix=Fix.CONFIG),
    "config-absent": Code(
        _INFO,
        "there is no such configuration file; it may never have been written",
        "if it was lost, rstore rebuild-config makes it again",
        Fix.NOTHING,
    ),
    "topic-hidden": Code(
        _WARNING,
        "a topic's perm or readQueueNums hides messages from consumers",
        "rstore rebuild-config --topic NAME makes them readable",
    ),
    "group-disabled": Code(
        _INFO,
        "a group may not consume",
        "if that is not intended: rstore rebuild-config --group NAME, or mqadmin updateSubGroup -s true",
        Fix.NOTHING,
    ),
    "consumer-ahead": Code(
        _WARNING,
        "a group's offset is above its queue's maximum",
        "rstore offsets set sets it, or mqadmin resetOffsetByTime on a running broker",
    ),
    "consumer-queue": Code(_INFO, "a group's offset of a queue that is not there", _NOTHING, Fix.NOTHING),
    "delay-range": Code(
        _WARNING, "a delay level's offset is outside of its queue", "a broker corrects it when it starts"
    ),
    "topic-unknown": Code(
        _INFO,
        "topics in the log have no configuration",
        "rstore rebuild-config --topic NAME, if they are wanted",
        Fix.NOTHING,
    ),
    "topic-unused": Code(_INFO, "topics have a configuration, but no queues", _NOTHING, Fix.NOTHING),
    # the check itself
    "live": Code(
        _INFO,
        "a live process has the store: its ends were not judged",
        "stop it for a check of everything",
        Fix.NOTHING,
    ),
    "time-box": Code(
        _INFO, "the time was up before everything was looked at", "rstore check without --time-box", Fix.NOTHING
    ),
}
"""Every code that check reports. Stable: scripts go by them."""


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
        found = groups.get(group)
        if found is None:
            if len(groups) >= PLACES:
                places, many = self._more.get(code, (0, 0))
                self._more[code] = (places + 1, many + count)
                return
            found = groups[group] = _Group(where, fix or self._codes[code].fix, hint or self._codes[code].hint)
        found.count += count
        if detail and len(found.details) < FIRST and detail not in found.details:
            found.details.append(detail)

    def merge(self, other: Findings) -> None:
        """Take what another collected (in another process, perhaps)."""
        for code, groups in other._groups.items():
            for group, found in groups.items():
                first = found.details[0] if found.details else ""
                self.add(code, group, found.where, first, found.count, fix=found.fix, hint=found.hint)
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
                message = _message(code, group)
                found.append(Finding(name, code.severity, group.where, message, group.hint, group.count, group.fix))
            if name in self._more:
                _, many = self._more[name]
                text = f"{many:,} more in other places: {code.what}"
                found.append(Finding(name, code.severity, "elsewhere", text, code.hint, many, code.fix))
        return tuple(found)


def _message(code: Code, group: _Group) -> str:
    text = f"{group.count:,} times: {code.what}" if group.count > 1 else code.what
    if not group.details:
        return text
    rest = ", …" if group.count > len(group.details) else ""
    return f"{text} ({', '.join(group.details)}{rest})"
