"""What the embedded name service knows beside the broker's topics: permissions taken away, its own settings.

Permissions live here alone: the next change of the broker's topics, which is a registration that differs, brings the
topics' own back. Sources: RouteInfoManager#operateWritePermOfBroker, NamesrvConfig; remoting.md 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.topics import PERM_WRITE, READ_WRITE

if TYPE_CHECKING:
    from engine.broker.topics import TopicConfig, TopicTable

ORDER_SPACE = "ORDER_TOPIC_CONFIG"
"""The namespace of queues by broker for topics whose order counts (remoting.md 2.4)."""
_ORDER = "orderMessageEnable"


class NameTable:
    """See the module. For the loop's thread alone."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._perms: dict[str, int] = {}
        self._as_of = (0, 0)
        self.settings = {_ORDER: "false", "productEnvName": "center", "clusterTest": "false"}

    @property
    def tells_order(self) -> bool:
        """Whether routes say which queues of an ordered topic there are (orderMessageEnable)."""
        return self.settings[_ORDER].lower() == "true"

    def perm_of(self, topic: TopicConfig) -> int:
        """A topic's permissions as routes say."""
        broker = self._topics.settings.permission
        registered = topic.perm if broker & READ_WRITE == READ_WRITE else broker  # as #registerBrokerAll has it
        return self._known().get(topic.name, registered)

    def wipe_write(self) -> int:
        """Take the right to write from every topic; how many there are."""
        self._set({name: self.perm_of(topic) & ~PERM_WRITE for name, topic in self._topics.topics.items()})
        return len(self._perms)

    def add_write(self) -> int:
        """Let every topic be read and written; how many there are."""
        self._set(dict.fromkeys(self._topics.topics, READ_WRITE))
        return len(self._perms)

    def _set(self, perms: dict[str, int]) -> None:
        self._perms = perms
        self._as_of = self._version()

    def _known(self) -> dict[str, int]:
        if self._perms and self._as_of != self._version():
            self._perms = {}
        return self._perms

    def _version(self) -> tuple[int, int]:
        version = self._topics.version
        return version.timestamp, version.counter
