"""A verdict on each key of a broker's properties file, and what is dangerous in it.

`read_conf` takes the bytes and never raises: a file that no broker starts with is a report that says so.
"""

from __future__ import annotations

import enum
from typing import Any

from engine.broker_conf import in_force
from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.dangers import dangers_of
from engine.broker_conf.facts import Danger
from engine.broker_conf.keys import Key
from engine.broker_conf.not_keys import STARTUP_KEYS, nearest, why_not
from engine.broker_conf.properties import Line, demand_bounded, lines_of
from engine.broker_conf.release_keys import newer_brokers
from engine.broker_conf.values import COMMENT, ENCODING, Value, ValueKind, as_meant, as_text, read_value, shown
from engine.dataclass import dataclass
from engine.errors import InvalidArgument

_BOM = "\xef\xbb\xbf"
"""A byte order mark of UTF-8, as Java reads it."""


_NO_FREE_TEXT = frozenset(
    {
        *("deleteWhen", "messageDelayLevel", "namesrvAddr", "haMasterAddress", "brokerIP1", "brokerIP2"),
        *("dLegerPeers", "dLegerSelfId", "preferredLeaderId", "messageStorePlugIn", "msgTraceTopicName"),
    }
)


class Judgement(enum.Enum):
    """What a broker makes of a line."""

    IN_FORCE = "in force"
    MISREAD = "misread"
    IGNORED = "ignored"
    NEWER = "newer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LineVerdict:
    """On one line. `written`: its value. `in_force`: the value that the broker goes by, None where it has no such key.

    `why`: of what is not in force as written. `meaning`: of the key.
    """

    key: str
    line: int
    written: str
    judgement: Judgement
    in_force: Value = None
    why: str = ""
    meaning: str = ""

    @property
    def name(self) -> str:
        """The key as the file has it."""
        return as_meant(self.key)

    @property
    def text(self) -> str:
        """One sentence, where it is not in force as written."""
        if self.judgement is Judgement.UNKNOWN:
            return f"unknown to a 4.9.8 broker{f': {self.why}' if self.why else ''}"
        if self.judgement in (Judgement.IGNORED, Judgement.NEWER):
            return self.why
        if self.judgement is Judgement.MISREAD:
            return f"{self.why}; in force: {_plain(self.in_force)}"
        return str(self.judgement.value)

    def to_json(self) -> dict[str, Any]:
        """One line of "keys"."""
        return {
            "key": self.name,
            "line": self.line,
            "written": as_meant(self.written),
            "verdict": self.judgement.value,
            "inForce": self.in_force,
            "why": self.why or None,
            "meaning": self.meaning or None,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """On a file. `settings`: class and key → value of every key once a broker has started with it; {} if it does not.

    `starts`: the file does not keep a broker from starting.
    """

    verdicts: tuple[LineVerdict, ...]
    dangers: tuple[Danger, ...]
    settings: in_force.InForce

    @property
    def starts(self) -> bool:
        """Whether a broker starts with it."""
        return not self.stops

    @property
    def stops(self) -> tuple[str, ...]:
        """What keeps a broker from starting."""
        return tuple(danger.what for danger in self.dangers if danger.stops)

    def of(self, *judgements: Judgement) -> tuple[LineVerdict, ...]:
        """Those verdicts."""
        return tuple(verdict for verdict in self.verdicts if verdict.judgement in judgements)

    def to_json(self) -> dict[str, Any]:
        """The "configuration" of doctor."""
        return {
            "starts": self.starts,
            "keys": [verdict.to_json() for verdict in self.verdicts],
            "dangers": [danger.to_json() for danger in self.dangers],
        }


def read_conf(data: bytes) -> Report:
    """What a broker makes of a file with these bytes. Raises InvalidArgument as `demand_bounded`."""
    demand_bounded(text := data.decode(ENCODING))
    try:
        properties = lines_of(text)
    except InvalidArgument as error:
        return Report((), (Danger((), error.message, error.hint or "", stops=True),), {})
    read = in_force.of_file(properties.values)
    settings = in_force.started(read)
    last = properties.last
    verdicts = tuple(_judge(line, last[line.key], read, settings) for line in properties.lines)
    misread = {v.key: v.written for v in verdicts if v.judgement is Judgement.MISREAD and last[v.key].number == v.line}
    return Report(verdicts, dangers_of(settings, read, properties.values, misread), settings)


def _judge(line: Line, last: Line, read: in_force.InForce, settings: in_force.InForce) -> LineVerdict:
    keys = all_keys().get(line.key, ())
    meaning = keys[0].meaning if keys else STARTUP_KEYS.get(line.key, "")

    def verdict(judgement: Judgement, value: Value, why: str = "") -> LineVerdict:
        return LineVerdict(line.key, line.number, line.value, judgement, value, why, meaning)

    if not meaning:
        newer = newer_brokers(line.key)
        if newer is not None:
            return verdict(Judgement.NEWER, None, f"read by {newer}, not by a 4.9.8 broker")
        why = why_not(line.key)
        if why is not None:
            return verdict(Judgement.IGNORED, None, why)
        return verdict(Judgement.UNKNOWN, None, _unknown(line.key))
    if line != last:
        return verdict(Judgement.IGNORED, None, f"line {last.number} sets the key again and is in force")
    if not keys:
        return verdict(Judgement.IN_FORCE, line.value)
    key = keys[-1]
    value, at_start = read[key.owner, key.name], settings[key.owner, key.name]
    if value != at_start or (key.name == "haListenPort"):
        return verdict(Judgement.IGNORED, at_start, _OVERRULED[key.name].format(as_text(at_start)))
    why = _misread(key, line.value, value)
    return verdict(Judgement.MISREAD if why else Judgement.IN_FORCE, value, why)


def _unknown(key: str) -> str:
    """Why a broker has no such key, and which is meant; "": nobody knows."""
    bare = key.removeprefix(_BOM)
    meant = bare if bare in all_keys() else nearest(bare)
    why = f"did you mean {meant}?" if meant else ""
    if key == bare:
        return why
    mark = "the file begins with a byte order mark (BOM), which is part of the key: save the file without it"
    return f"{mark}; {why}" if why else mark


def _plain(value: Value) -> str:
    """Text in quotes: a blank at its end is seen."""
    if not isinstance(value, str) or not value:
        return as_text(value) or "nothing"
    return shown(value) if as_meant(value) == value else f"{shown(value)}, read as ISO-8859-1 (a character a byte)"


_OVERRULED = {
    "brokerId": "the broker sets it to {} at its start, as its role or DLedger demands",
    "haListenPort": "a 4.9.8 broker sets it to listenPort + 1, {}; RocketMQ 5 takes it as written",
    "registerNameServerPeriod": "the broker limits it to 10000 to 60000: {}",
    "bitMapLengthConsumeQueueExt": "the broker computes it at its start: {}, from expectConsumerNumUseFilter and "
    "maxErrorRateOfBloomFilter",
}


_NOT_TAKEN = {"transientStorePoolEnable": "has no effect with SYNC_FLUSH or on a SLAVE"}
"""Why a value that a broker reads is not the one in force."""


def _misread(key: Key, text: str, value: Value) -> str:
    """Why the value is not what the line says; "": it is."""
    try:
        taken = read_value(key.kind, text)
    except ValueError:
        return f"not {key.kind.wanted}{_why_text(text)}"
    if key.kind is ValueKind.BOOLEAN and text.lower() not in ("true", "false"):
        return f"neither true nor false{_why_text(text)}"
    if key.kind is ValueKind.STRING:
        return _odd_text(text, escapes=key.name not in _NO_FREE_TEXT)
    if taken != value:
        return f"{as_text(taken)} {_NOT_TAKEN.get(key.name, 'is invalid')}"
    return ""


def _why_text(text: str) -> str:
    if COMMENT.search(text):
        return ": a comment after a value is part of the value"
    return ": the blanks at its end are part of the value" if text != text.rstrip() else ""


def _odd_text(text: str, *, escapes: bool) -> str:
    """`escapes`: characters that are not ASCII make sense here."""
    if COMMENT.search(text):
        return "a comment after a value is part of the value"
    if text != text.strip():
        return "the blanks at its end are part of the value"
    if as_meant(text) == text:
        return ""
    return "read as ISO-8859-1, not as UTF-8" + (": \\u escapes are needed" if escapes else "")
