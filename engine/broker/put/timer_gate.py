"""What a put makes of a timer message: one that is to be delivered at a time of its own, to the millisecond.

It goes to rmq_sys_wheel_timer with its time, its topic and its queue among its properties, as RocketMQ 5 writes it, so
that a broker of RocketMQ 5 that opens the store delivers it, too. A delay level counts before such a time.

Source: HookUtils#handleScheduleMessage, SendMessageProcessor#attachRecallHandle (5.3.3); BROKER.md 2.8.
"""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING

from engine.broker.requests.answers import Answer
from engine.broker.tables.topics import RETRY
from engine.format import names, properties
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.put.timer_schedule import TimerSchedule
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.broker.tables.topics import TopicTable
    from engine.format.message import Message

TIMES = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)
"""The properties that say when, the first that is there counts."""
_TIMES = frozenset(TIMES)
PRECISIONS = (100, 200, 500, 1000)
"""Source: MessageStoreConfig#setTimerPrecisionMs."""
_ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay {}ms; or if set del msg, the delay "
    "time should be bigger than the current time"
)
_FLOW_CONTROL = (
    "timer message is under flow control, max num limit is {0} or the current value is greater than {1} and less than "
    "{0}, trigger random flow control"
)
_OFF = "accurate timer message is not enabled, timerWheelEnable is false"


class TimerGate:
    """See the module. For the loop's thread alone."""

    def __init__(
        self, *, schedule: TimerSchedule, topics: TopicTable, settings: CurrentSettings, now_ms: Callable[[], int]
    ) -> None:
        self._schedule = schedule
        self._topics = topics
        self._settings = settings
        self._now_ms = now_ms

    def admit(self, message: Message) -> Message:
        """The message as it is put. Raises Answer: it is no timer message that can be taken."""
        pairs = message.properties
        if _TIMES.isdisjoint(pairs):
            return message
        if properties.delay_level(pairs) > 0:
            return message._replace(properties={k: v for k, v in pairs.items() if k not in TIMES})
        if properties.TIMER_OUT_MS in pairs or message.topic == names.TIMER_TOPIC:
            return message
        settings, now = self._settings.now, self._now_ms()
        if not settings.timer_messages:
            raise Answer(ResponseCode.SYSTEM_ERROR, _OFF)
        illegal = Answer(ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL.format(settings.timer_most_s * 1000))
        try:
            deliver = _deliver_ms(pairs, now)
        except ValueError:
            raise illegal from None
        if deliver <= now:
            if properties.TIMER_DEL_UNIQKEY in pairs:
                raise illegal
            return message
        if deliver - now > settings.timer_most_s * 1000:
            raise illegal
        precision = max((one for one in PRECISIONS if one <= settings.timer_precision_ms), default=PRECISIONS[0])
        out = (deliver - 1) // precision * precision
        self._demand_room(out, settings.timer_most_a_slot)
        self._topics.there_soon(names.TIMER_TOPIC)
        real = {properties.REAL_TOPIC: message.topic, properties.REAL_QID: str(message.queue_id)}
        waiting = {**pairs, properties.TIMER_OUT_MS: str(out), **real}
        return message._replace(topic=names.TIMER_TOPIC, queue_id=0, properties=waiting)

    def _demand_room(self, out: int, most: int) -> None:
        """Source: TimerMessageStore#isReject. Raises Answer."""
        there = self._schedule.in_slot(out)
        if there <= most:
            return
        if there >= 2 * most or random.randrange(1000) > 1000 * (there - most) / (most + 0.1):
            raise Answer(ResponseCode.SYSTEM_ERROR, _FLOW_CONTROL.format(2 * most, most))


def _deliver_ms(pairs: Mapping[str, str], now: int) -> int:
    """When it is to be delivered, ms. Raises ValueError: that is no number."""
    name = next(name for name in TIMES if name in pairs)
    value = parse_int(pairs[name], LONG_MIN, LONG_MAX)
    if name == properties.TIMER_DELIVER_MS:
        return value
    return now + (value * 1000 if name == properties.TIMER_DELAY_SEC else value)


def recall_handle(message: Message, broker_name: str) -> str | None:
    """By which a client can recall a timer message that was put; None: it is none. Source: RecallMessageHandle."""
    pairs = message.properties
    out, topic, key = (
        pairs.get(name) for name in (properties.TIMER_OUT_MS, properties.REAL_TOPIC, properties.UNIQ_KEY)
    )
    if out is None or topic is None or topic.startswith(RETRY):
        return None
    words = (
        "v1",
        topic,
        broker_name,
        str(int(out) + 1),
        "null" if key is None else key,
    )  # the second after TIMER_OUT_MS
    return base64.urlsafe_b64encode(" ".join(words).encode()).decode()
