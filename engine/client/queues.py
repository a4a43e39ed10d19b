"""A queue as clients name it: topic, broker name, queue id. Source: MessageQueue (common)."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """A queue of a topic on the brokers of one name. Ordered as Apache's: topic, broker name, queue id."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        """As Apache writes it: consistent hashing hashes these words. Source: MessageQueue#toString."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker}, queueId={self.queue_id}]"
