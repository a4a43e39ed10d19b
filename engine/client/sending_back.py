"""Messages that were not consumed, given back to the broker, which keeps them for the group until later.

Source: DefaultMQPushConsumerImpl#sendMessageBack, ConsumeMessageOrderlyService#sendMessageBack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.messages import RETRY_TOPIC, OutgoingMessage, ReceivedMessage
from engine.errors import RStoreError
from engine.format.names import RETRY_PREFIX
from engine.format.properties import DELAY, UNIQ_KEY, WAIT

if TYPE_CHECKING:
    import logging

    from engine.client.calls import BrokerCalls
    from engine.client.producer import Producer

_ORIGIN = "ORIGIN_MESSAGE_ID"
_DELAY_FROM = 3


class SendingBack:
    """See the module. For one loop.

    Args:
        group: on the wire.
        producer: sends what a broker does not take back.
        most_times: after how many failures a message is a dead letter.
    """

    def __init__(
        self, calls: BrokerCalls, producer: Producer, group: str, most_times: int, log: logging.Logger
    ) -> None:
        self._calls = calls
        self._producer = producer
        self._group = group
        self._most_times = most_times
        self._log = log

    async def give(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Whether the message is with a broker now: given back, or else sent to the group's retry topic."""
        try:
            await self._calls.send_back(self._group, message, delay_level, self._most_times)
        except RStoreError as error:
            self._log.warning("message %s was not given back, it is sent: %s", message.id, error)
            return await self.send(message, message.reconsume_times + 1)
        return True

    async def send(self, message: ReceivedMessage, times: int) -> bool:
        """Send it to the retry topic of the group, as one that has failed `times` times."""
        copy = retry_of(message, self._group, times, self._most_times)
        try:
            await self._producer.send(copy)
        except RStoreError as error:
            self._log.warning("message %s was not sent to %s: %s", message.id, copy.topic, error)
            return False
        return True


def retry_of(message: ReceivedMessage, group: str, times: int, most_times: int) -> OutgoingMessage:
    """The message that makes a broker give this one to the group again."""
    kept = {name: value for name, value in message.properties.items() if name not in ("TRAN_MSG", WAIT, DELAY)}
    system = {
        **kept,
        _ORIGIN: message.properties.get(_ORIGIN) or message.stored.msg_id,
        RETRY_TOPIC: message.topic,
        "RECONSUME_TIME": str(times),
        "MAX_RECONSUME_TIMES": str(most_times),
        UNIQ_KEY: message.id,
    }
    return OutgoingMessage(
        RETRY_PREFIX + group,
        message.body,
        delay_level=_DELAY_FROM + message.reconsume_times,
        flag=message.stored.flag,
        system=system,
    )
