"""Message properties: `name \\x01 value` joined by `\\x02` (FORMAT.md; Apache MessageDecoder).

Reading follows MessageDecoder#string2messageProperties to the letter, so that a damaged string gives the same map
as Apache's: a piece shorter than 3 characters, without a separator, or with an empty name or value is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from engine.format.numbers import parse_int

NAME_VALUE = "\x01"
SEPARATOR = "\x02"

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TIMER_OUT_MS = "TIMER_OUT_MS"
"""When (ms since 1970) a timer message of RocketMQ 5 is delivered."""
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
"""When (ms since 1970) a client of RocketMQ 5 wants it delivered; in place of it:"""
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
"""In how long, from when it is stored."""
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
"""When (ms since 1970) the timer took it, and gave it out: of a message that was delivered."""
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
"""How often it was put into the timer again, as its time was still far away."""
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
"""Of one that deletes another: its UNIQ_KEY or TOPIC+UNIQ_KEY. Source: TimerMessageStore#buildDeleteKey."""
TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"
"""Of one that was delivered or rolled: when (ms) it was put into the timer, and taken out of it."""
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
REPLAYED = "RSTORE_REPLAYED"
"""Ours, on a message that `rstore salvage replay` has put: `<repair>:<physical offset that it had>`."""

MULTI_DISPATCH_SPLITTER = ","


def parse(text: str) -> dict[str, str]:
    """The properties in `text`, in order; a name that comes twice keeps its first place and its last value."""
    pairs: dict[str, str] = {}
    for piece in text.split(SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE)
        if name and value:  # a piece of 3 characters at least, then
            pairs[name] = value
    return pairs


def parser_of(*names: str) -> Callable[[str], dict[str, str]]:
    """Gives of a text the properties of these names alone, as `parse` does, in less time where there are others."""
    one = "|".join(map(re.escape, names))
    pattern = re.compile(f"(?:\\A|{SEPARATOR})({one}){NAME_VALUE}([^{SEPARATOR}]+)")
    return lambda text: dict(pattern.findall(text))


def join(properties: Mapping[str, str]) -> str:
    """The string that 4.9.8 stores: no trailing separator. Source: MessageDecoder#messageProperties2String."""
    return SEPARATOR.join(map(NAME_VALUE.join, properties.items()))


def separated(text: str) -> str:
    """Properties as they stand before others: with a separator at the end, where there are any."""
    return text + SEPARATOR if text and not text.endswith(SEPARATOR) else text


def key_words(keys: str | None) -> list[str]:
    """The words of KEYS that are indexed: split at blanks, empty ones left out. Source: IndexService#buildIndex."""
    return [word for word in keys.split(" ") if word] if keys else []


def waits_for_flush(properties: Mapping[str, str]) -> bool:
    """Whether a put waits for its flush: yes unless WAIT is there and isn't "true".

    Source: Message#isWaitStoreMsgOK (Boolean.parseBoolean).
    """
    value = properties.get(WAIT)
    return value is None or value.lower() == "true"


def delay_level(properties: Mapping[str, str]) -> int:
    """The DELAY level, 0 without one. A value that is not a 32-bit integer counts as 0."""
    value = properties.get(DELAY)
    if value is None:
        return 0
    try:
        return parse_int(value)
    except ValueError:
        return 0
