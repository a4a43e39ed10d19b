"""When a message of rmq_sys_wheel_timer is due, by its own properties.

`plain_event` is a fast lane for who reads many: it takes what most messages are, by the bytes of their properties, and
leaves everything else to `timing_of`. The tests compare the two.

Source: TimerMessageStore (5.3.3); BROKER.md 2.8.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from engine.broker.put.timer_gate import TIMES
from engine.format import properties
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND_MS = 1000
ROLL_MS = 2 * 24 * 3600 * SECOND_MS
"""Who is due later than that is put into the queue again. Source: timerRollWindowSlot."""
_OUT, _DELIVER, _SEC = (
    name.encode() for name in (properties.TIMER_OUT_MS, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC)
)
_NAMES = "|".join((properties.TIMER_OUT_MS, properties.TIMER_DEL_UNIQKEY, *TIMES))
_PAIRS = re.compile(
    f"(?:\\A|{properties.SEPARATOR})({_NAMES}){properties.NAME_VALUE}([^{properties.SEPARATOR}]+)".encode()
)
_DELAYS = frozenset(name.encode() for name in TIMES)
_DIGITS = 15
"""Of numbers that need no bound."""


class Timing(NamedTuple):
    """What a timer message says of its time, ms. `event`: when something is to be done; `rolls`: put in again then."""

    out: int
    event: int
    rolls: bool


def timing_of(pairs: Mapping[str, str], stored_ms: int) -> Timing | None:
    """When a message of rmq_sys_wheel_timer is due; None: it does not say.

    No setting counts here: a message that is read again after a start is due when it was before. What the client has
    asked for is within the second after TIMER_OUT_MS, which was made of it (TimerGate). Source: #doEnqueue for ROLL_MS.
    """
    try:
        out = parse_int(pairs[properties.TIMER_OUT_MS], LONG_MIN, LONG_MAX - SECOND_MS)
    except (KeyError, ValueError):
        return None
    if out < 0:
        return None
    ahead = out - stored_ms
    if ahead >= ROLL_MS:
        rolled = ROLL_MS // 2 if ahead - ROLL_MS < ROLL_MS // 3 else ROLL_MS
        return Timing(out, stored_ms + rolled, True)
    if properties.TIMER_DEL_UNIQKEY in pairs:  # it is there for all that are due in its second
        return Timing(out, out + SECOND_MS, False)
    return Timing(out, min(max(_asked_ms(pairs, stored_ms), out + 1), out + SECOND_MS), False)


def _asked_ms(pairs: Mapping[str, str], stored_ms: int) -> int:
    name = next((name for name in TIMES if name in pairs), None)
    if name is None:
        return LONG_MAX
    try:
        value = parse_int(pairs[name], LONG_MIN, LONG_MAX)
    except ValueError:
        return LONG_MAX
    if name == properties.TIMER_DELIVER_MS:
        return value
    return stored_ms + (value * SECOND_MS if name == properties.TIMER_DELAY_SEC else value)


def plain_event(raw: bytes, stored_ms: int) -> int | None:
    """`Timing.event` of a message that deletes none and is not rolled; None: `timing_of` says.

    `raw`: its properties.
    """
    named = dict(_PAIRS.findall(raw))
    out_text = named.pop(_OUT, b"")
    if not out_text.isdigit() or len(out_text) > _DIGITS or len(named) > 1:
        return None
    out = int(out_text)
    if out - stored_ms >= ROLL_MS:
        return None
    for name, text in named.items():
        if name not in _DELAYS or not text.isdigit() or len(text) > _DIGITS:
            return None
        asked = int(text)
        if name != _DELIVER:
            asked = stored_ms + (asked * SECOND_MS if name == _SEC else asked)
        return min(max(asked, out + 1), out + SECOND_MS)
    return out + SECOND_MS
